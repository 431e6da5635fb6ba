"""What looks wrong in a dump, each with the reason and the command to run next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.dumps import host as hosts
from planner.dumps.findings_network import NETWORK_CHECKS
from planner.dumps.host import span
from planner.dumps.records import Dump, Finding, HostTopology, LinkStatus, PciDevice
from planner.quantities import counted, format_bandwidth
from planner.spec.cluster import Node, Wiring


def findings(dump: Dump, usual: Node | None = None) -> tuple[Finding, ...]:
    """All that looks wrong, worst first. `usual` is the catalogue's node of the accelerator, where that is known."""
    found = [finding for check in CHECKS for finding in check(dump)]
    if dump.topology and usual:
        found += _against_the_usual(dump.topology, usual)
    for number, host in enumerate(dump.further, start=2):
        alone = Dump(dump.path, dump.formats, topology=host)
        found += [replace(each, what=f"host {number} of the file: {each.what}") for each in findings(alone, usual)]
    return tuple(dict.fromkeys(found))


def checked(dump: Dump) -> tuple[str, ...]:
    """What a dump allowed to be checked, in words."""
    topology = dump.topology
    words = {
        "links between GPUs": bool(topology and topology.links_told and len(topology.gpus) > 1)
        or bool(dump.link_status),
        "how near NICs are to GPUs": bool(topology and topology.nic_pairs),
        "PCIe links": bool(topology and topology.from_machine and any(device.bandwidth for device in topology.pcie)),
        "peer access": bool(topology and topology.peer_access),
        "ports of adapters": bool(dump.ports),
        "addresses of RDMA ports": bool(dump.gids),
        "what NCCL uses": bool(dump.nccl),
        "results of nccl-tests": bool(dump.tables),
    }
    return tuple(word for word, done in words.items() if done)


def _uneven_links(dump: Dump) -> Iterator[Finding]:
    """Accelerators with fewer direct links than the others: a regular wiring gives each as many."""
    topology = dump.topology
    if topology is None or not topology.links_told or not hosts.linked_pairs(topology):
        return
    totals = hosts.link_totals(topology)
    most, fewest = max(totals), [gpu for gpu, total in enumerate(totals) if total < max(totals)]
    suspects = [gpu for gpu in fewest if totals[gpu] == 0]
    if suspects:
        yield _no_links(topology, suspects)
    if not _regular(topology):
        return
    pairs = [pair for pair in topology.pairs if set(pair) <= set(fewest) - set(suspects) and not _usual(topology, pair)]
    for one, other in pairs[:16]:
        word = topology.pairs[one, other].kind
        yield Finding(
            f"GPUs {_index(topology, one)} and {_index(topology, other)} are joined by {word} only",
            f"the others have {most} direct links each, these {totals[one]} and {totals[other]}",
            f"nvidia-smi nvlink -s -i {_index(topology, one)},{_index(topology, other)}",
            kind="links",
        )


def _regular(topology: HostTopology) -> bool:
    """Whether every GPU should have as many links: xGMI only where it joins nearly all pairs (MI250X: 6 or 7)."""
    linked = hosts.linked_pairs(topology)
    return not any(link.kind == "XGMI" for link in linked.values()) or len(linked) > 0.75 * len(topology.pairs)


def _usual(topology: HostTopology, pair: tuple[int, int]) -> bool:
    """Whether a pair has what most pairs have."""
    kinds = Counter(link.kind for link in topology.pairs.values())
    return topology.pairs[pair].kind == kinds.most_common(1)[0][0]


def _no_links(topology: HostTopology, gpus: list[int]) -> Finding:
    numbers = [_index(topology, gpu) for gpu in gpus]
    many = len(numbers) > 1
    return Finding(
        f"GPU{'s' if many else ''} {span(numbers)} {'have' if many else 'has'} no direct link to any other",
        "the others have; a GPU whose links are down reaches them over PCIe, and every collective waits for it",
        f"nvidia-smi nvlink -s -i {','.join(map(str, numbers))}; dmesg | grep -i -e nvlink -e nvswitch -e xid",
        kind="links",
    )


def _index(topology: HostTopology, gpu: int) -> int:
    return topology.gpus[gpu].index


def _inactive_links(dump: Dump) -> Iterator[Finding]:
    statuses = dump.link_status
    if not statuses:
        return
    most = max(status.active for status in statuses)
    for status in statuses:
        if status.active < most:
            down = [i for i, rate in enumerate(status.rates) if rate is None]
            which = f"{_numbered(down)} inactive" if status.rates else "all links inactive"
            yield Finding(
                f"GPU {status.index}: {which}, {status.active} work where others have {most}",
                "a lost link lowers the bandwidth of the GPU to all others, and every collective waits for it",
                f"nvidia-smi nvlink -e -i {status.index}; dmesg | grep -i -e xid -e nvlink",
                kind="links",
            )
    yield from _slow_links(statuses)


def _numbered(links: list[int]) -> str:
    return f"link{'s' if len(links) > 1 else ''} {span(links)}"


def _slow_links(statuses: tuple[LinkStatus, ...]) -> Iterator[Finding]:
    rates = Counter(rate for status in statuses for rate in status.rates if rate)
    usual = max(rates, default=0.0)
    for status in statuses:
        slow = [i for i, rate in enumerate(status.rates) if rate and rate < 0.95 * usual]
        if slow:
            yield Finding(
                f"GPU {status.index}: {_numbered(slow)} below the {format_bandwidth(usual)} of the others",
                "a link that trained at a lower rate slows what is spread over all of them",
                f"nvidia-smi nvlink -e -i {status.index}",
                kind="link_rate",
            )


def _narrow_pcie(dump: Dump) -> Iterator[Finding]:
    """Devices of one kind of which some have slower or narrower links: they sit in the same slots as a rule."""
    topology = dump.topology
    if topology is None or not topology.from_machine:
        return
    for kind in ("gpu", "nic"):
        devices = [
            device for device in topology.pcie if device.kind == kind and device.bandwidth and not device.virtual
        ]
        for device in devices:
            like = [each.bandwidth or 0.0 for each in devices if _alike(each, device)]
            best = max(like)
            if (device.bandwidth or 0.0) < 0.95 * best:
                yield Finding(
                    f"{kind.upper()} {device.bus_id}: PCIe at {(device.rate or 0.0) / 1e9:g} GT/s x{device.width} "
                    f"({format_bandwidth(device.bandwidth or 0.0)}), its like have {format_bandwidth(best)}",
                    "the slot, riser or card trained below what it can: reseat it, look at the BIOS's link settings",
                    f"lspci -vv -s {device.bus_id} | grep -e LnkCap -e LnkSta",
                    kind="pcie",
                )


def _alike(one: PciDevice, other: PciDevice) -> bool:
    """Whether two devices are of one product; without ids accelerators are taken to be, adapters not."""
    return one.device_id == other.device_id and (bool(one.device_id) or one.kind == "gpu" or one is other)


def _peer_access(dump: Dump) -> Iterator[Finding]:
    topology = dump.topology
    refused = {pair: word for pair, word in topology.peer_access.items() if word != "OK"} if topology else {}
    if refused:
        words = ", ".join(sorted(set(refused.values())))
        yield Finding(
            f"no peer access between {counted(len(refused), 'pair')} of GPUs ({words})",
            "bytes between them are copied through host memory; usual for GeForce cards, else look at IOMMU and ACS",
            "nvidia-smi topo -p2p r; lspci -vvv | grep -i acsctl",
            kind="peer_access",
        )


def _wrong_results(dump: Dump) -> Iterator[Finding]:
    for table in dump.tables:
        for note in table.notes:
            if "wrong results" in note:
                yield Finding(
                    f"{table.collective}: {note}", "nccl-tests checks every result", "dcgmi diag -r 3", kind="results"
                )


def _against_the_usual(topology: HostTopology, usual: Node) -> Iterator[Finding]:
    """What the accelerator's usual node has and this one has not."""
    own = usual.wiring in (Wiring.SWITCH, Wiring.MESH)
    if own and topology.links_told and len(topology.gpus) > 1 and not hosts.linked_pairs(topology):
        yield Finding(
            "no direct link between any two GPUs",
            f"{usual.accelerator.name} has them ({usual.link} in {usual.name}); a virtual machine may hide them",
            "nvidia-smi nvlink -s; systemctl status nvidia-fabricmanager",
            kind="links",
        )
    slots = [device for device in topology.pcie if device.kind == "gpu" and device.bandwidth and not device.virtual]
    best = max((device.bandwidth or 0.0 for device in slots), default=0.0)
    if topology.from_machine and slots and best < 0.95 * usual.accelerator.pcie_bandwidth:
        yield Finding(
            f"every GPU's PCIe link is {format_bandwidth(best)}",
            f"{usual.accelerator.name} can do {format_bandwidth(usual.accelerator.pcie_bandwidth)}",
            f"lspci -vv -s {slots[0].bus_id} | grep -e LnkCap -e LnkSta",
            kind="pcie",
        )


Check = Callable[[Dump], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    _uneven_links,
    _inactive_links,
    *NETWORK_CHECKS,
    _narrow_pcie,
    _peer_access,
    _wrong_results,
)
