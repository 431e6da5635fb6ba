"""Time of one collective operation.

Sizes are those that nccl-tests prints: the full tensor (of an all-gather its output, of a reduce-scatter its input,
of an all-to-all what one rank sends, its own part included). Bandwidths are one rank's, one direction; for a ring
the bus bandwidth. A group of one and a message of no bytes need no call: they cost exactly 0, also on links of
infinite bandwidth. NCCL drops calls of zero elements too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.quantities import Bytes, BytesPerSecond, Count, Scalar, Seconds


def all_reduce_bytes(size: Bytes, group: Count) -> Bytes:
    """Bytes that each rank sends in an all-reduce.

    W = 2 (n-1)/n size

    Source: nccl-tests, doc/PERFORMANCE.md: the factor between algorithm and bus bandwidth. Holds for a ring, and is
    the least possible without reduction in the switches.

    >>> all_reduce_bytes(1e9, 8)
    1750000000.0
    """
    return 2 * gather_bytes(size, group)


def gather_bytes(size: Bytes, group: Count) -> Bytes:
    """Bytes that each rank sends in an all-gather or a reduce-scatter.

    W = (n-1)/n size

    Source and validity as for `all_reduce_bytes`.

    >>> gather_bytes(1e9, 8)
    875000000.0
    """
    return (group - 1) / group * size


def all_to_all_bytes(size: Bytes, group: Count) -> Bytes:
    """Bytes that each rank sends to others in an all-to-all: all but the part that it keeps.

    W = (n-1)/n size

    Source: as `all_reduce_bytes`. Holds where every pair of ranks exchanges the same amount.

    >>> all_to_all_bytes(1e9, 8)
    875000000.0
    """
    return gather_bytes(size, group)


def send_bytes(size: Bytes, group: Count) -> Bytes:
    """Bytes that a rank sends to its neighbour; none where it is alone.

    W = size (n > 1)

    Source: the message itself.

    >>> float(send_bytes(1e9, 2)), float(send_bytes(1e9, 1))
    (1000000000.0, 0.0)
    """
    return size * np.greater(group, 1)


@dataclass(frozen=True, eq=False)
class HierarchicalBytes:
    """Bytes that each rank sends to peers inside its domain, and across to other domains. Scalars or columns."""

    inside: Bytes
    across: Bytes


def hierarchical_all_reduce_bytes(size: Bytes, local: Count, domains: Count) -> HierarchicalBytes:
    """Bytes that each rank sends in an all-reduce in three stages.

    inside = 2 (l-1)/l size,  across = 2 (d-1)/d size/l

    Reduce-scatter among the l ranks of a domain, all-reduce of each rank's 1/l across the d domains, all-gather
    inside. Source: the two-dimensional all-reduce of Mikami et al. 2018 (arXiv 1811.05233), volumes of
    `all_reduce_bytes`; HSDP does the same with its shard and replica groups.

    >>> volume = hierarchical_all_reduce_bytes(8e9, 8, 4)
    >>> volume.inside, volume.across
    (14000000000.0, 1500000000.0)
    """
    return HierarchicalBytes(inside=all_reduce_bytes(size, local), across=all_reduce_bytes(size / local, domains))


def bus_bandwidth(
    *, group: Count, local: Count, local_bandwidth: BytesPerSecond, remote_bandwidth: BytesPerSecond
) -> BytesPerSecond:
    """Bandwidth of a ring over a group that has `local` ranks in each link domain.

    B = min(local_bandwidth if local > 1, local remote_bandwidth if group > local)

    `remote_bandwidth` is one rank's share of the domain's way out. A ring enters and leaves a domain once, through
    the shares of all its ranks together, and carries the same bytes on every hop. Infinite for a group of one.
    Source: busbw of 10 nodes of H100 with 400 Gb/s per GPU is 49, 98, 196 and 345 GB/s for 1, 2, 4 and 8 GPUs per
    node (github.com/xxrjun/nccl-tests-cluster), nominally 50, 100, 200 and 360.

    >>> float(bus_bandwidth(group=80, local=8, local_bandwidth=360e9, remote_bandwidth=50e9)) / 1e9
    360.0
    >>> float(bus_bandwidth(group=40, local=4, local_bandwidth=360e9, remote_bandwidth=50e9)) / 1e9
    200.0
    """
    inside = np.where(local > 1, local_bandwidth, np.inf)
    across = np.where(group > local, local * remote_bandwidth, np.inf)
    return np.minimum(inside, across)


def ring_all_reduce_time(size: Bytes, group: Count, *, bandwidth: BytesPerSecond, latency: Seconds) -> Seconds:
    """Time of an all-reduce around a ring.

    T = 2(n-1) latency + 2 (n-1)/n size / bandwidth

    Source: Patarasuk and Yuan 2009 (J. Parallel Distrib. Comput. 69); nccl-tests, doc/PERFORMANCE.md. Holds for one
    ring of equal links.

    >>> ring_all_reduce_time(1e9, 8, bandwidth=100e9, latency=0.0)
    0.0175
    """
    return 2 * (group - 1) * latency + all_reduce_bytes(size, group) / bandwidth


def tree_all_reduce_time(size: Bytes, group: Count, *, bandwidth: BytesPerSecond, latency: Seconds) -> Seconds:
    """Time of an all-reduce over two complementary binary trees, each for half of the data.

    T = 2 log2(n) latency + min(n-1, 2) size / bandwidth

    A rank is inside one tree, where it sends half the data up and half down to each of two children, and a leaf of
    the other: twice the size in all; a pair of ranks sends it once. Source: Sanders, Speck and Traeff 2009 (Parallel
    Computing 35); NCCL's tuner counts the same 2 size (src/graph/tuning.cc, 2.30). Holds for messages long enough to
    be pipelined through the tree; the factor is an upper bound for 3 ranks.

    >>> float(tree_all_reduce_time(1e9, 8, bandwidth=100e9, latency=1e-6))
    0.020006
    """
    return 2 * np.log2(group) * latency + np.minimum(group - 1, 2) * size / bandwidth


def hierarchical_all_reduce_time(
    size: Bytes,
    *,
    local: Count,
    domains: Count,
    local_bandwidth: BytesPerSecond,
    remote_bandwidth: BytesPerSecond,
    local_latency: Seconds,
    remote_latency: Seconds,
) -> Seconds:
    """Time of reduce-scatter inside each domain, all-reduce across domains, all-gather inside, one after the other.

    T = 2(l-1) local_latency + inside / local_bandwidth + 2(d-1) remote_latency + across / remote_bandwidth

    Source: volumes of `hierarchical_all_reduce_bytes`, stages as rings. `remote_bandwidth` is one rank's. Compared
    with a flat ring it sends 1/l of the bytes across, but waits for the inside first.

    >>> time = hierarchical_all_reduce_time(8e9, local=8, domains=4, local_bandwidth=350e9, remote_bandwidth=50e9,
    ...                                     local_latency=0.0, remote_latency=0.0)
    >>> round(time, 6)
    0.07
    """
    volume = hierarchical_all_reduce_bytes(size, local, domains)
    inside = 2 * (local - 1) * local_latency + volume.inside / local_bandwidth
    return inside + 2 * (domains - 1) * remote_latency + volume.across / remote_bandwidth


def all_reduce_time(
    size: Bytes,
    group: Count,
    *,
    domains: Count,
    bandwidth: BytesPerSecond,
    start: Seconds,
    step_latency: Seconds,
    hop_latency: Seconds = 0.0,
    low_latency_bandwidth: BytesPerSecond = 0.0,
    tree_hop_latency: Seconds = 0.0,
    tree_bandwidth: BytesPerSecond = 0.0,
) -> Seconds:
    """Time of an all-reduce, in the fastest of three regimes.

    T = start + min(2(n-1) step_latency + W / bandwidth, h tree_hop_latency + W / tree_bandwidth,
    h hop_latency + W / low_latency_bandwidth)

    W = 2 (n-1)/n size, h = 2 log2(domains) + 0.3 (n/domains - 1). The first regime is a ring, the second trees over the
    domains, the third trees with a protocol of little latency; a bandwidth of 0 means that a regime does not exist.
    Between two domains `bandwidth` is the faster of a ring's and of `two_domain_bandwidth`'s. Source: form fitted to
    published nccl-tests tables (docs/collectives.md). It is least sure from 1 to 64 MiB, where NCCL changes protocol.

    >>> float(all_reduce_time(1e9, 16, domains=2, bandwidth=100e9, start=1e-5, step_latency=3e-6))
    0.01885
    """
    wire = all_reduce_bytes(size, group)
    bulk = ring_all_reduce_time(size, group, bandwidth=bandwidth, latency=step_latency)
    hops = 2 * _one_way_hops(group, domains)
    trees = _faster(bulk, wire=wire, hops_time=hops * tree_hop_latency, low_latency_bandwidth=tree_bandwidth)
    transfer = _faster(trees, wire=wire, hops_time=hops * hop_latency, low_latency_bandwidth=low_latency_bandwidth)
    return _call_time(size, group, start=start, transfer=transfer)


def all_gather_time(
    size: Bytes,
    group: Count,
    *,
    bandwidth: BytesPerSecond,
    start: Seconds,
    step_latency: Seconds,
    hop_latency: Seconds = 0.0,
    low_latency_bandwidth: BytesPerSecond = 0.0,
) -> Seconds:
    """Time of an all-gather of `size` bytes in all, in the faster of two regimes.

    T = start + min((n-1) step_latency + W / bandwidth, (n-1) hop_latency + W / low_latency_bandwidth)

    W = (n-1)/n size.

    Regimes as in `all_reduce_time`, but a ring in both: NCCL has no tree for it (nor, with several ranks in a node, any
    other algorithm: src/graph/tuning.cc, 2.30), so that on many nodes the ring's latency, linear in n, is what large
    groups pay: 1 GiB reaches 36 GB/s on 8 nodes of Polaris and 11 on 540. Source: form fitted to published nccl-tests
    tables.

    >>> float(all_gather_time(1e9, 16, bandwidth=100e9, start=1e-5, step_latency=3e-6))
    0.00943
    """
    return _ring_one_way_time(
        size,
        group,
        wire=gather_bytes(size, group),
        bandwidth=bandwidth,
        start=start,
        step_latency=step_latency,
        hop_latency=hop_latency,
        low_latency_bandwidth=low_latency_bandwidth,
    )


def reduce_scatter_time(
    size: Bytes,
    group: Count,
    *,
    bandwidth: BytesPerSecond,
    start: Seconds,
    step_latency: Seconds,
    hop_latency: Seconds = 0.0,
    low_latency_bandwidth: BytesPerSecond = 0.0,
) -> Seconds:
    """Time of a reduce-scatter of `size` bytes in all: an all-gather run backwards, at the same cost.

    Equation, source and validity as for `all_gather_time`.

    >>> float(reduce_scatter_time(1e9, 16, bandwidth=100e9, start=1e-5, step_latency=3e-6))
    0.00943
    """
    return all_gather_time(
        size,
        group,
        bandwidth=bandwidth,
        start=start,
        step_latency=step_latency,
        hop_latency=hop_latency,
        low_latency_bandwidth=low_latency_bandwidth,
    )


def broadcast_time(
    size: Bytes,
    group: Count,
    *,
    bandwidth: BytesPerSecond,
    start: Seconds,
    step_latency: Seconds,
    hop_latency: Seconds = 0.0,
    low_latency_bandwidth: BytesPerSecond = 0.0,
) -> Seconds:
    """Time of a broadcast of `size` bytes along a chain, or of a reduction to one rank, which runs backwards.

    T = start + min((n-1) step_latency + size / bandwidth, (n-1) hop_latency + size / low_latency_bandwidth)

    Source: nccl-tests, doc/PERFORMANCE.md (bus bandwidth is size over time); NCCL pipelines both through its ring.
    Holds for messages long enough to be pipelined.

    >>> float(broadcast_time(1e9, 8, bandwidth=200e9, start=1e-5, step_latency=1e-6))
    0.005017
    """
    return _ring_one_way_time(
        size,
        group,
        wire=size,
        bandwidth=bandwidth,
        start=start,
        step_latency=step_latency,
        hop_latency=hop_latency,
        low_latency_bandwidth=low_latency_bandwidth,
    )


def all_to_all_time(
    size: Bytes,
    group: Count,
    *,
    local: Count,
    local_bandwidth: BytesPerSecond,
    remote_bandwidth: BytesPerSecond,
    start: Seconds,
    step_latency: Seconds,
    hop_latency: Seconds = 0.0,
    low_latency_share: Scalar = 0.0,
) -> Seconds:
    """Time of an all-to-all in which each rank sends `size` bytes in equal parts, one of them to itself.

    T = start + min((n-1) step_latency + t, (n-1) hop_latency + t / low_latency_share), t = max((l-1)/n size /
    local_bandwidth, (n-l)/n size / remote_bandwidth)

    l ranks share a domain; both kinds of links work at once, and each rank has only its own share of the way out.
    Small parts go with less latency at `low_latency_share` of the bandwidth (0: they do not).
    Source: published tables reach 0.91 to 0.96 of t on InfiniBand NDR, 0.85 on HDR, 0.72 to 0.78 inside a node.

    >>> float(all_to_all_time(1e9, 16, local=8, local_bandwidth=350e9, remote_bandwidth=50e9,
    ...                       start=0.0, step_latency=0.0))
    0.01
    """
    inside = (local - 1) / group * size / local_bandwidth
    across = (group - local) / group * size / remote_bandwidth
    slower = np.maximum(inside, across)
    bulk, hops_time = (group - 1) * step_latency + slower, (group - 1) * hop_latency
    transfer = _faster(bulk, wire=slower, hops_time=hops_time, low_latency_bandwidth=low_latency_share)
    return _call_time(size, group, start=start, transfer=transfer)


def send_time(
    size: Bytes,
    *,
    bandwidth: BytesPerSecond,
    latency: Seconds,
    hop_latency: Seconds = 0.0,
    low_latency_bandwidth: BytesPerSecond = 0.0,
) -> Seconds:
    """Time to send a message to one other rank.

    T = min(latency + size / bandwidth, hop_latency + size / low_latency_bandwidth)

    Source: the usual alpha-beta model (Hockney 1994, Parallel Computing 20), once for each of the library's protocols;
    a low_latency_bandwidth of 0 means that there is one only. 0 for a message of no bytes.

    >>> round(float(send_time(64e6, bandwidth=40e9, latency=15e-6)), 6)
    0.001615
    """
    bulk = latency + size / bandwidth
    return _faster(bulk, wire=size, hops_time=hop_latency, low_latency_bandwidth=low_latency_bandwidth) * (size > 0)


def _ring_one_way_time(
    size: Bytes,
    group: Count,
    *,
    wire: Bytes,
    bandwidth: BytesPerSecond,
    start: Seconds,
    step_latency: Seconds,
    hop_latency: Seconds,
    low_latency_bandwidth: BytesPerSecond,
) -> Seconds:
    """All n - 1 steps with the faster of two protocols."""
    bulk = (group - 1) * step_latency + wire / bandwidth
    hops_time = (group - 1) * hop_latency
    transfer = _faster(bulk, wire=wire, hops_time=hops_time, low_latency_bandwidth=low_latency_bandwidth)
    return _call_time(size, group, start=start, transfer=transfer)


def _one_way_hops(group: Count, domains: Count) -> Scalar:
    """Latencies on the way from one rank to all others: a tree over domains, a short chain inside each."""
    return np.log2(domains) + 0.15 * (group / domains - 1)


def _faster(bulk: Seconds, *, wire: Bytes, hops_time: Seconds, low_latency_bandwidth: BytesPerSecond) -> Seconds:
    """The bulk regime's time, or the low-latency regime's where that exists and is less."""
    exists = low_latency_bandwidth > 0
    # Dividing by 1 where there is no such regime keeps both branches finite.
    low_latency = hops_time + wire / np.where(exists, low_latency_bandwidth, 1.0)
    return np.where(exists, np.minimum(bulk, low_latency), bulk)


def _call_time(size: Bytes, group: Count, *, start: Seconds, transfer: Seconds) -> Seconds:
    """Start and transfer, or nothing where there is nobody to talk to or nothing to say."""
    return (start + transfer) * ((group > 1) & (size > 0))
