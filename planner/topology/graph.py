"""A cluster drawn as a directed graph of links.

Vertices are tuples whose first word is their kind: ("gpu", node, i), ("nvswitch", pool, domain), ("pcie", node, k),
("socket", node, k), ("memory", node, k), ("nic", node, j), ("leaf", pool, l), ("pod", pool, p), ("spine", site),
("wan",). In a network of three tiers the spines of a pod lie between its leaves and the top of the site, which is then
the core. Every edge has a twin in the other direction and carries `capacity` (B/s, of its own direction), `latency`
(s), `kind` (the link generation, "pcie", "upi", "memory", the fabric's kind, "wan") and `shared_by`, the number of
nodes whose traffic it bears, drawn or not.

Folding: all nodes of a pool are alike, so only those are drawn that show every kind of route: the first two nodes
(neighbours under one leaf), the first of the second link domain, the first under the second leaf, and the first of
the second pod. What undrawn nodes share with them (a leaf's or a pod's uplinks, the WAN) keeps its whole capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import inf

import networkx as nx

from planner.errors import SpecError
from planner.quantities import BytesPerSecond
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wiring
from planner.spec.plan import Int

Vertex = tuple[str | int, ...]

_IN_NODE = ("gpu", "pcie", "socket", "memory", "nic")


def graph(cluster: Cluster, nodes: Iterable[int] | None = None) -> nx.DiGraph:
    """The graph of a cluster: all links of the nodes drawn, and the network above them.

    `nodes` are the indices (over all pools) to draw; by default the representatives described above, so that a
    cluster of any size is drawn in a few milliseconds. Raises SpecError when nodes or sites are not joined.
    """
    _check(cluster)
    drawn = set(folded_nodes(cluster) if nodes is None else nodes)
    links: nx.DiGraph = nx.DiGraph(name=cluster.name)
    for number, (first, pool) in enumerate(numbered_pools(cluster)):
        node = pool.node
        for index in sorted(drawn.intersection(range(first, first + pool.num_nodes))):
            _draw_host(links, node, index)
            _draw_domain(links, node, index, ("nvswitch", number, (index - first) // node.domain_nodes))
            _draw_nics(links, node, index, pool=number, place=index - first)
            _draw_uplinks(links, pool, number, place=index - first)
    _draw_wan(links, cluster)
    return links


def numbered_pools(cluster: Cluster) -> Iterator[tuple[int, Pool]]:
    """Each pool with the index of its first node."""
    first = 0
    for pool in cluster.pools:
        yield first, pool
        first += pool.num_nodes


def folded_nodes(cluster: Cluster) -> list[int]:
    """Indices of the nodes that stand for all others."""
    chosen = []
    for first, pool in numbered_pools(cluster):
        fabric = pool.node.fabric
        offsets = {0, 1, pool.node.domain_nodes, fabric.nodes_per_leaf, fabric.nodes_per_pod}
        chosen += [first + offset for offset in sorted(offsets) if offset < pool.num_nodes]
    return chosen


def nics_of(node: Node, gpu: int) -> range:
    """The NICs nearest to an accelerator: its own share of them, or the one that it has in common with neighbours."""
    nics, gpus = node.fabric.nics_per_node, node.gpus_per_node
    first = gpu * nics // gpus
    return range(first, max((gpu + 1) * nics // gpus, first + 1)) if nics >= gpus else range(first, first + bool(nics))


def leaf_of(fabric: Fabric, place: Int, nic: Int) -> Int:
    """The leaf switch that a NIC is plugged into; `place` counts nodes within the pool."""
    if fabric.nodes_per_leaf:
        return place // fabric.nodes_per_leaf
    return pod_of(fabric, place) * fabric.nics_per_node + nic


def pod_of(fabric: Fabric, place: Int) -> Int:
    """The pod that a node is in; `place` counts nodes within the pool."""
    return place // fabric.nodes_per_pod if fabric.nodes_per_pod else place * 0


def uplink_bandwidth(pool: Pool) -> BytesPerSecond:
    """All links of one leaf to the spines together, one direction."""
    fabric = pool.node.fabric
    nodes = fabric.nodes_per_leaf or fabric.nodes_per_pod or pool.num_nodes
    ports = nodes * fabric.nics_per_node if fabric.nodes_per_leaf else nodes
    return ports * fabric.nic_bandwidth / fabric.oversubscription


def pod_uplink_bandwidth(fabric: Fabric) -> BytesPerSecond:
    """All links of one pod's spines to the core together, one direction."""
    return fabric.nodes_per_pod * fabric.node_bandwidth / (fabric.oversubscription * fabric.pod_oversubscription)


def _check(cluster: Cluster) -> None:
    sites = {pool.site for pool in cluster.pools}
    if len(sites) > 1 and cluster.wan is None:
        raise SpecError(f"sites {', '.join(sorted(sites))} are not joined: declare a wan", where=cluster.name)
    for node in (pool.node for pool in cluster.pools):
        if cluster.num_nodes > 1 and not node.fabric.nics_per_node:
            raise SpecError(
                f"{cluster.num_nodes} nodes, but {node.name} has no NICs: name a network", where=cluster.name
            )
        if node.wiring == Wiring.MESH and node.gpus_per_node > 1 and not node.link_pairs:
            raise SpecError("wiring is a mesh, but link_pairs is empty", where=node.name)


def _join(links: nx.DiGraph, one: Vertex, other: Vertex, kind: str, **attributes: float) -> None:
    """A link, one edge per direction."""
    for vertex in (one, other):
        if vertex not in links:
            links.add_node(vertex, kind=vertex[0], node=vertex[1] if vertex[0] in _IN_NODE else None)
    data = {"kind": kind, "latency": 0.0, "shared_by": 1, **attributes}
    links.add_edge(one, other, **data)
    links.add_edge(other, one, **data)


def _draw_host(links: nx.DiGraph, node: Node, index: int) -> None:
    """PCIe, sockets and, where every byte passes through it, host memory."""
    over_pcie = node.wiring in (Wiring.PCIE, Wiring.HOST)
    kind, latency = (node.link, node.link_latency / 2) if over_pcie else ("pcie", 0.0)
    lane = node.link_bandwidth if over_pcie else node.accelerator.pcie_bandwidth or inf
    for i in range(node.gpus_per_node):
        switch, socket = _plugs(node, index, i)
        if switch:
            _join(links, switch, socket, "pcie", capacity=lane)
        _join(links, ("gpu", index, i), switch or socket, kind, capacity=lane, latency=latency)
    sockets = range(max(node.sockets, 1))
    for one, other in combinations(sockets, 2):
        _join(links, ("socket", index, one), ("socket", index, other), "upi", capacity=node.socket_bandwidth)
    if node.wiring == Wiring.HOST:
        # A staged byte is written once and read once, so each direction has half of the bandwidth.
        capacity = node.host_memory_bandwidth / len(sockets) / 2 or inf
        for k in sockets:
            _join(links, ("socket", index, k), ("memory", index, k), "memory", capacity=capacity)


def _plugs(node: Node, index: int, gpu: int) -> tuple[Vertex | None, Vertex]:
    """The PCIe switch (if any) and the socket that an accelerator hangs on."""
    shared = node.gpus_per_pcie_switch
    first = gpu - gpu % shared if shared else gpu
    socket = ("socket", index, first * max(node.sockets, 1) // node.gpus_per_node)
    return ("pcie", index, gpu // shared) if shared else None, socket


def _draw_domain(links: nx.DiGraph, node: Node, index: int, switch: Vertex) -> None:
    """The accelerators' own links: to a switch that all nodes of the domain share, or to each other."""
    if node.wiring == Wiring.SWITCH:
        capacity, latency = node.link_bandwidth, node.link_latency / 2
        for i in range(node.gpus_per_node):
            _join(links, ("gpu", index, i), switch, node.link, capacity=capacity, latency=latency)
    if node.wiring == Wiring.MESH:
        for (i, j), capacity in node.link_pairs.items():
            one, other = ("gpu", index, i), ("gpu", index, j)
            _join(links, one, other, node.link, capacity=capacity, latency=node.link_latency)


def _draw_nics(links: nx.DiGraph, node: Node, index: int, *, pool: int, place: int) -> None:
    """NICs, each beside the first accelerator that it is nearest to or on it, and their leaves.

    The fabric's latency is from NIC to NIC: half of it lies on each side.
    """
    fabric, bandwidth = node.fabric, node.fabric.nic_bandwidth
    beside = {j: i for i in reversed(range(node.gpus_per_node)) for j in nics_of(node, i)}
    for j in range(fabric.nics_per_node):
        switch, socket = _plugs(node, index, beside[j])
        above: Vertex = ("gpu", index, beside[j]) if node.nics_on_accelerators else switch or socket
        leaf = ("leaf", pool, int(leaf_of(fabric, place, j)))
        _join(links, above, ("nic", index, j), "pcie", capacity=bandwidth)
        _join(links, ("nic", index, j), leaf, fabric.kind, capacity=bandwidth, latency=fabric.latency / 2)


def _draw_uplinks(links: nx.DiGraph, pool: Pool, number: int, *, place: int) -> None:
    """From the leaves of a node to the top of its site, past the spines of its pod if there are pods."""
    fabric = pool.node.fabric
    above: Vertex = ("spine", pool.site)
    pod: Vertex = ("pod", number, int(pod_of(fabric, place)))
    if fabric.nodes_per_pod:
        capacity = pod_uplink_bandwidth(fabric)
        _join(links, pod, above, fabric.kind, capacity=capacity, shared_by=fabric.nodes_per_pod)
    capacity, nodes = uplink_bandwidth(pool), fabric.nodes_per_leaf or fabric.nodes_per_pod or pool.num_nodes
    for j in range(fabric.nics_per_node):
        leaf = ("leaf", number, int(leaf_of(fabric, place, j)))
        _join(links, leaf, pod if fabric.nodes_per_pod else above, fabric.kind, capacity=capacity, shared_by=nodes)


def _draw_wan(links: nx.DiGraph, cluster: Cluster) -> None:
    """Sites in a star around the WAN; half of its latency on each side."""
    sites = {pool.site for pool in cluster.pools}
    if len(sites) < 2 or cluster.wan is None:
        return
    capacity, latency = cluster.wan.bandwidth, cluster.wan.latency / 2
    for site in sites:
        nodes = sum(pool.num_nodes for pool in cluster.pools if pool.site == site)
        _join(links, ("spine", site), ("wan",), "wan", capacity=capacity, latency=latency, shared_by=nodes)
