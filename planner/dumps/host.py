"""What a host's topology means: who shares a PCIe switch or a socket, which NICs are near, who has how many links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.dumps.records import HostTopology, Pair, PairLink

NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Near to far."""
BEHIND_ONE_SWITCH = ("PIX", "PXB")
VIRTUAL = ("veth", "virbr", "docker", "br-", "cni", "flannel", "cali", "lo")
"""How interfaces are called that are no adapters: those of containers and virtual machines."""
Groups = list[tuple[int, ...]]


def joined_groups(count: int, pairs: Iterable[Pair]) -> Groups:
    """0 to `count` - 1 in groups that the pairs join, each ascending.

    >>> joined_groups(4, [(0, 2), (2, 3)])
    [(0, 2, 3), (1,)]
    """
    group = list(range(count))
    for one, other in pairs:
        old, new = sorted((group[one], group[other]))[::-1]
        if old != new:
            group = [new if each == old else each for each in group]
    return [tuple(i for i in range(count) if group[i] == each) for each in sorted(set(group))]


def path_of(link: PairLink) -> str:
    """The way over PCIe between two accelerators, empty where direct links hide it."""
    return link.path or (link.kind if link.kind in NEARNESS else "")


def switch_groups(topology: HostTopology) -> Groups | None:
    """Accelerators by the PCIe switch that they share; None where the dump does not tell.

    Two accelerators near the same NIC share its switch, also where their own links hide how they are joined.
    """
    gpus = len(topology.gpus)
    paths = {pair: path for pair, link in topology.pairs.items() if (path := path_of(link))}
    if not paths and not topology.nic_pairs:
        return None
    pairs = [pair for pair, path in paths.items() if path in BEHIND_ONE_SWITCH]
    for nic in range(len(topology.nics)):
        near = [gpu for gpu in range(gpus) if topology.nic_pairs.get((gpu, nic)) in BEHIND_ONE_SWITCH]
        pairs += [(near[0], gpu) for gpu in near[1:]]
    return joined_groups(gpus, pairs)


def numa_groups(topology: HostTopology) -> Groups | None:
    """Accelerators by NUMA node; None where the dump does not tell."""
    gpus = topology.gpus
    if gpus and all(gpu.numa is not None for gpu in gpus):
        nodes = dict.fromkeys(gpu.numa for gpu in gpus)
        return [tuple(i for i, gpu in enumerate(gpus) if gpu.numa == node) for node in nodes]
    paths = {pair: path for pair, link in topology.pairs.items() if (path := path_of(link))}
    if len(paths) < len(topology.pairs) or not paths:
        return None
    return joined_groups(len(gpus), [pair for pair, path in paths.items() if path != "SYS"])


def nearest_nics(topology: HostTopology, gpu: int) -> tuple[str, tuple[int, ...]]:
    """How near the nearest NICs of an accelerator are, and which they are; ("", ()) where there are none."""
    kinds = {nic: topology.nic_pairs.get((gpu, nic), "") for nic in range(len(topology.nics))}
    for kind in NEARNESS:
        if near := tuple(nic for nic, each in kinds.items() if each == kind):
            return kind, near
    return "", ()


def data_nics(topology: HostTopology) -> tuple[int, ...]:
    """The NICs that accelerators send by: those as near to one as the nearest kind of the host, and able to.

    A host lists its management and storage adapters too; those stand further off. Ports that are down do not count.
    """
    real = [nic for nic, each in enumerate(topology.nics) if not each.name.startswith(VIRTUAL)]
    alive = [nic for nic in real if topology.nics[nic].state in ("", "active")]
    for kinds in (BEHIND_ONE_SWITCH, ("PHB",)):
        near = [nic for nic in alive if any(topology.nic_pairs.get((gpu, nic)) in kinds for gpu in _gpus(topology))]
        if near:
            return tuple(near)
    return tuple(alive)


def link_totals(topology: HostTopology) -> list[int]:
    """How many direct links each accelerator has to the others together; a link of unknown width counts as one."""
    totals = [0] * len(topology.gpus)
    for pair, link in topology.pairs.items():
        for gpu in pair:
            totals[gpu] += 1 if link.links is None else link.links
    return totals


def linked_pairs(topology: HostTopology) -> dict[Pair, PairLink]:
    """The pairs that have direct links."""
    return {pair: link for pair, link in topology.pairs.items() if link.direct}


def span(numbers: Sequence[int]) -> str:
    """Numbers in short.

    >>> span([0, 1, 2, 3, 6]), span([4]), span([])
    ('0-3, 6', '4', 'none')
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    shown = [f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts]
    return ", ".join(shown) or "none"


def _gpus(topology: HostTopology) -> range:
    return range(len(topology.gpus))
