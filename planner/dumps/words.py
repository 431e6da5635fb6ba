"""A dump in words: who shares what, which NIC is whose, which links and ports work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from planner.dumps import host as hosts
from planner.dumps.host import span
from planner.dumps.records import CollectiveTable, Dump, HostTopology, LinkStatus, NcclLog, Pair, PortStatus
from planner.quantities import counted, format_bandwidth, format_seconds

KINDS = {
    "PIX": "behind one PCIe switch (PIX)",
    "PXB": "behind several PCIe switches, past no CPU (PXB)",
    "PHB": "through a CPU's root complex (PHB)",
    "NODE": "through several root complexes of one socket (NODE)",
    "SYS": "across the link between sockets (SYS)",
}
MOST_SHOWN = 12
"""Pairs, ports or rows that are listed one by one; of more, the number is given."""


def lines_of(dump: Dump) -> list[str]:
    """What a dump says, a subject a line."""
    found: list[str] = []
    if dump.topology:
        found += topology_lines(dump.topology)
    if dump.link_status:
        found += _link_lines(dump.link_status)
    found += _first([_port_line(port) for port in dump.ports], "port")
    found += _gid_lines(dump)
    if dump.nccl:
        found += _nccl_lines(dump.nccl)
    found += _first([table_line(table) for table in dump.tables], "table")
    return found


def _first(lines: list[str], thing: str) -> list[str]:
    further = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], *([f"{counted(further, thing)} more"] if further > 0 else [])]


def topology_lines(topology: HostTopology) -> list[str]:
    """The matrix in words."""
    return [
        _title(topology),
        *_pair_lines(topology),
        *_numa_lines(topology),
        *_switch_lines(topology),
        *_nic_lines(topology),
        *_pcie_lines(topology),
        *_access_lines(topology),
    ]


def _title(topology: HostTopology) -> str:
    names = Counter(gpu.name for gpu in topology.gpus if gpu.name)
    which = f" ({', '.join(names)})" if names else ""
    return f"{topology.source}: {counted(len(topology.gpus), 'GPU')}{which}, {counted(len(topology.nics), 'NIC')}"


def _pair_lines(topology: HostTopology) -> Iterator[str]:
    """Kind by kind, the pairs that it joins: as groups where it joins all of a group, else one by one."""
    by_kind: dict[str, list[Pair]] = {}
    for pair, link in topology.pairs.items():
        by_kind.setdefault(link.kind, []).append(pair)
    if not topology.links_told and topology.pairs:
        yield "own links of the GPUs: not in the file"
    for kind in sorted(by_kind, key=_nearness):
        yield f"{_kind_words(topology, kind)}: {_pairs_words(topology, by_kind[kind])}"


def _nearness(kind: str) -> tuple[int, str]:
    """Direct links first, then the ways over PCIe, near to far."""
    return (hosts.NEARNESS.index(kind), "") if kind in hosts.NEARNESS else (-1, kind)


def _kind_words(topology: HostTopology, kind: str) -> str:
    link = next(link for link in topology.pairs.values() if link.kind == kind)
    if not link.direct:
        return KINDS.get(kind, f"joined by {kind}")
    if link.nccl_bandwidth:
        return f"direct links (NVL), {format_bandwidth(link.nccl_bandwidth)} by NCCL's count"
    numbers = {link.links for link in topology.pairs.values() if link.kind == kind}
    if numbers == {None}:
        return f"direct links ({kind}), how many is not told"
    many = " or ".join(str(number) for number in sorted(number or 0 for number in numbers))
    return f"{many} direct link{'' if many == '1' else 's'} ({kind})"


def _pairs_words(topology: HostTopology, pairs: Sequence[Pair]) -> str:
    gpus = len(topology.gpus)
    if len(pairs) == gpus * (gpus - 1) // 2:
        return "the two GPUs" if gpus == 2 else f"every pair of the {gpus} GPUs"
    groups = [group for group in hosts.joined_groups(gpus, pairs) if len(group) > 1]
    if sum(len(group) * (len(group) - 1) // 2 for group in groups) == len(pairs):
        return "; ".join(f"GPUs {_numbers(topology, group)}" for group in groups)
    if len(pairs) > MOST_SHOWN:
        return f"{len(pairs)} pairs"
    return ", ".join(f"{_numbers(topology, [one])}-{_numbers(topology, [other])}" for one, other in pairs)


def _numbers(topology: HostTopology, gpus: Sequence[int]) -> str:
    return span([topology.gpus[gpu].index for gpu in gpus])


def _numa_lines(topology: HostTopology) -> Iterator[str]:
    nodes: dict[int, list[int]] = {}
    for gpu, each in enumerate(topology.gpus):
        if each.numa is not None:
            nodes.setdefault(each.numa, []).append(gpu)
    for node, gpus in sorted(nodes.items()):
        cpus = topology.gpus[gpus[0]].cpus
        shown = f" (CPUs {cpus if len(cpus) < 60 else cpus[:57] + '...'})" if cpus else ""
        yield f"NUMA node {node}: GPU{'s' if len(gpus) > 1 else ''} {_numbers(topology, gpus)}{shown}"


def _switch_lines(topology: HostTopology) -> Iterator[str]:
    for group in hosts.switch_groups(topology) or []:
        near = [nic for nic in range(len(topology.nics)) if _behind_one_switch(topology, group, nic)]
        if len(group) > 1 and near:
            names = ", ".join(topology.nics[nic].name for nic in near)
            yield f"one PCIe switch: GPUs {_numbers(topology, group)} with {names}"


def _behind_one_switch(topology: HostTopology, group: Sequence[int], nic: int) -> bool:
    return any(topology.nic_pairs.get((gpu, nic)) in hosts.BEHIND_ONE_SWITCH for gpu in group)


def _nic_lines(topology: HostTopology) -> Iterator[str]:
    """Each accelerator's nearest NICs, whether these make rails, and NICs that are near none."""
    if not topology.nic_pairs:
        return
    nearest = [hosts.nearest_nics(topology, gpu) for gpu in range(len(topology.gpus))]
    for kind, nics in dict.fromkeys(nearest):
        gpus = [gpu for gpu, each in enumerate(nearest) if each == (kind, nics)]
        yield f"GPU{'s' if len(gpus) > 1 else ''} {_numbers(topology, gpus)}: {_nearest_words(topology, kind, nics)}"
    own = {nics for kind, nics in nearest if kind in hosts.BEHIND_ONE_SWITCH and nics}
    if len(own) == len(nearest) and len({nic for nics in own for nic in nics}) == sum(map(len, own)):
        yield "rails: every GPU has a NIC of its own behind its PCIe switch"
    far = sorted(set(range(len(topology.nics))) - set(hosts.data_nics(topology)))
    if far:
        yield f"further from every GPU, or down: {', '.join(_nic_name(topology, nic) for nic in far)}"


def _nearest_words(topology: HostTopology, kind: str, nics: Sequence[int]) -> str:
    if not kind:
        return "how near the NICs are is not told"
    if kind == "SYS":
        return "no NIC on their side of the link between sockets (SYS)"
    return (
        f"nearest {'NICs' if len(nics) > 1 else 'NIC'} {', '.join(_nic_name(topology, nic) for nic in nics)} ({kind})"
    )


def _nic_name(topology: HostTopology, nic: int) -> str:
    each = topology.nics[nic]
    speed = f" of {each.speed * 8e-9:g} Gb/s" if each.speed else ""
    return f"{each.name}{speed}"


def _pcie_lines(topology: HostTopology) -> Iterator[str]:
    for kind, word in (("gpu", "GPU"), ("nic", "NIC")):
        rates = Counter(
            (device.rate or 0.0, device.width, device.bandwidth or 0.0)
            for device in topology.pcie
            if device.kind == kind and device.bandwidth
        )
        for (rate, width, bandwidth), number in rates.most_common(4):
            yield f"PCIe: {counted(number, word)} at {rate / 1e9:g} GT/s x{width}, {format_bandwidth(bandwidth)}"


def _access_lines(topology: HostTopology) -> Iterator[str]:
    for word, number in Counter(topology.peer_access.values()).most_common():
        yield f"peer access: {word} for {counted(number, 'pair')}"


def _link_lines(statuses: Sequence[LinkStatus]) -> Iterator[str]:
    """Accelerators with the same links together."""
    alike: dict[tuple[str, str], list[int]] = {}
    for status in statuses:
        alike.setdefault((status.name, _links_words(status)), []).append(status.index)
    for (name, words), gpus in alike.items():
        yield f"GPU{'s' if len(gpus) > 1 else ''} {span(gpus)} ({name}): {words}"


def _links_words(status: LinkStatus) -> str:
    rates = Counter(rate for rate in status.rates if rate)
    working = ", ".join(
        f"{counted(number, 'link')} of {format_bandwidth(rate)}" for rate, number in rates.most_common()
    )
    down = [i for i, rate in enumerate(status.rates) if rate is None]
    if not rates:
        return "no link works"
    return f"{working}{f'; inactive: {span(down)}' if down else ''}"


def _port_line(port: PortStatus) -> str:
    name = port.device if port.port is None else f"{port.device} port {port.port}"
    speed = f"{port.speed * 8e-9:g} Gb/s" if port.speed else ""
    said = ", ".join(word for word in (port.state, port.physical, speed, port.layer or port.transport) if word)
    return f"{name}: {said or 'no port is listed'}"


def _gid_lines(dump: Dump) -> Iterator[str]:
    """The addresses that matter: RoCE v2 over IPv4, which NCCL before 2.21 has to be told by index."""
    usable = [gid for gid in dump.gids if gid.version == "v2" and gid.ipv4]
    for gid in usable[:MOST_SHOWN]:
        yield f"{gid.device} port {gid.port}: RoCE v2 over IPv4 at index {gid.index} ({gid.ipv4}, {gid.interface})"
    if dump.gids and not usable:
        yield f"{counted(len(dump.gids), 'address')}, none of RoCE v2 over IPv4"


def _nccl_lines(log: NcclLog) -> Iterator[str]:
    ranks = f"{counted(log.ranks, 'rank')} on " if log.ranks else ""
    nodes = log.nodes or len(log.hosts)
    yield f"NCCL {log.version or 'of unknown version'}: {ranks}{counted(nodes, 'host')}"
    if log.network or log.devices:
        yield f"network: {' over '.join(word for word in (log.network, _list(log.devices)) if word)}"
    if log.transports:
        yield f"channels by transport: {_list([f'{way} {number}' for way, number in log.transports.items()])}"
    for pattern in log.patterns[:4]:
        yield (
            f"{pattern.pattern} found: {counted(pattern.channels, 'channel')} of {format_bandwidth(pattern.intra)} "
            f"({pattern.intra_type}/{pattern.inter_type})"
        )
    if log.rings:
        unlike = [" ".join(map(str, ring)) for ring in dict.fromkeys(log.rings)]
        yield f"{counted(len(log.rings), 'ring')}: {_list(unlike)}"
    yield from _choice_lines(log)
    if log.settings:
        yield f"set: {_list([f'{name}={value}' for name, value in log.settings.items()])}"


def _choice_lines(log: NcclLog) -> Iterator[str]:
    """Sizes by what ran for them."""
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for choice in log.choices:
        sizes.setdefault((choice.collective, choice.algorithm, choice.protocol), []).append(choice.size)
    for (collective, algorithm, protocol), each in sizes.items():
        yield f"{collective} of {_sizes(min(each), max(each))}: {algorithm}, {protocol}"


def _list(words: Sequence[str]) -> str:
    shown = [word if len(word) < 60 else word[:57] + "..." for word in words[:6]]
    return ", ".join(shown) + (", ..." if len(words) > 6 else "")


def _sizes(low: int, high: int) -> str:
    return size_words(low) if low == high else f"{size_words(low)} to {size_words(high)}"


def size_words(size: int) -> str:
    """A size of a message: 256 MiB rather than 0.2 GiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:.4g} {unit}"
    return f"{size} B"


def table_line(table: CollectiveTable) -> str:
    """A table of nccl-tests in one line."""
    sizes = [sample.size for sample in table.samples]
    best = max(table.samples, key=lambda sample: sample.busbw)
    ranks = f"{table.ranks} ranks" if table.ranks else "ranks unknown"
    nodes = f" on {counted(table.nodes, 'node')}" if table.nodes else ""
    return (
        f"{table.collective or 'unknown collective'}, {ranks}{nodes}: {counted(len(sizes), 'size')} of "
        f"{_sizes(min(sizes), max(sizes))}, best bus bandwidth {format_bandwidth(best.busbw)}, "
        f"{format_seconds(table.samples[0].time)} at {size_words(table.samples[0].size)}"
    )
