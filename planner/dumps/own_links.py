"""How the accelerators of a dump are wired, as a cluster TOML states it: on a switch, pair by pair, or over PCIe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.dumps.host import linked_pairs
from planner.dumps.records import HostTopology, PairLink
from planner.errors import SpecError
from planner.quantities import BytesPerSecond, counted, format_bandwidth
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Node, Wiring

GENERATIONS = {
    "volta": "nvlink2",
    "turing": "nvlink2",
    "ampere": "nvlink3",
    "hopper": "nvlink4",
    "blackwell": "nvlink5",
}
"""Architecture -> link, for cards whose usual host has none but a bridge between two."""
BANDWIDTHS = {"nvlink2": 25e9, "nvlink3": 25e9, "nvlink4": 25e9, "nvlink5": 50e9, "xgmi": 50e9}
"""One link, one direction (stas00/ml-engineering @744d01e, network/README.md, NVLink and xGMI tables)."""
NARROW_CARDS = ("a40", "rtx-a6000", "rtx-3090", "rtx-3090-ti")
NARROW_BANDWIDTH = 14.0625e9
"""One link of the GA102's NVLink: four make 56.25 GB/s (NVIDIA RTX A6000 data sheet: 112.5 GB/s both directions)."""
MOST_LINKS = {"nvlink2": 6, "nvlink3": 12, "nvlink4": 18, "nvlink5": 18, "xgmi": 8}
"""Links of one accelerator: if all pairs have more than this together, a switch lies between."""
NCCL_BANDWIDTHS = {"nvlink2": 20e9, "nvlink3": 20e9, "nvlink4": 20.6e9, "nvlink5": 40.1e9}
"""What NCCL's search takes for one link (NVIDIA/nccl @5067397c, src/graph/topo.h)."""
PCIE_LATENCY = 2.5e-6
"""NVIDIA/nccl @5067397c, src/graph/tuning.cc: PCIe hop of the LL128 ring."""
HOP_LATENCY = 1.9e-6
HOP_SOURCE = "NVIDIA/nccl @5067397c, src/graph/tuning.cc: NVLink hop of the LL128 ring"
SLOT_RATES = {8e9: "pcie3", 16e9: "pcie4", 32e9: "pcie5"}


@dataclass(frozen=True)
class Wires:
    """Entries of a node's table (figures in base units), and what was told or assumed, in words."""

    entries: Mapping[str, Any]
    told: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Figure -> its source, with {dump} for what the dump is called; of others it is the usual node."""


def wires_of(topology: HostTopology, part: Accelerator, base: Node) -> Wires:
    """How the accelerators are wired. `base` is the catalogue's usual node of this accelerator.

    Raises SpecError where the dump leaves the links out and the usual node has fewer accelerators.
    """
    direct = linked_pairs(topology)
    if len(topology.gpus) == 1 or (not topology.links_told and base.wiring != Wiring.MESH):
        return _usual(topology, part, base)
    if not topology.links_told:
        return _usual_mesh(topology, base)
    return _linked(topology, part, base, direct) if direct else _slots(topology, part, base)


def link_name(part: Accelerator, base: Node) -> str:
    """The kind of an accelerator's own links: nvlink4, xgmi, ..."""
    if base.wiring in (Wiring.SWITCH, Wiring.MESH):
        return base.link
    return "xgmi" if part.vendor == "amd" else GENERATIONS.get(part.architecture.partition("-")[0], "nvlink4")


def link_bandwidth(part: Accelerator, base: Node) -> BytesPerSecond:
    """One link of an accelerator, one direction."""
    if part.name in NARROW_CARDS:
        return NARROW_BANDWIDTH
    if link_name(part, base) == "xgmi" and base.link_pairs:
        return min(base.link_pairs.values())
    return BANDWIDTHS.get(link_name(part, base), 25e9)


def most_links(part: Accelerator, base: Node) -> int:
    """How many links one accelerator has."""
    if base.wiring == Wiring.SWITCH:
        return round(base.link_bandwidth / link_bandwidth(part, base))
    return 4 if part.name in NARROW_CARDS else MOST_LINKS.get(link_name(part, base), 18)


def links_of_pair(link: PairLink, part: Accelerator, base: Node) -> int | None:
    """The links of a pair; None where the dump says that there are some, but not how many."""
    each = NCCL_BANDWIDTHS.get(link_name(part, base))
    if link.links is None and link.nccl_bandwidth and each:
        return max(1, round(link.nccl_bandwidth / each))
    return link.links


def _linked(topology: HostTopology, part: Accelerator, base: Node, direct: Mapping[Any, PairLink]) -> Wires:
    counts = {pair: links_of_pair(link, part, base) for pair, link in direct.items()}
    _check_counts(counts, part, most_links(part, base))
    usual = Counter(count for count in counts.values() if count).most_common(1)
    each = usual[0][0] if usual else 0
    totals = Counter[int]()
    for pair, count in counts.items():
        totals.update(dict.fromkeys(pair, count or 0))
    beyond = max(totals.values()) > most_links(part, base)
    if topology.switched or beyond or (len(topology.gpus) == 2 and base.wiring == Wiring.SWITCH):
        return _switch(topology, part, base, each=each, odd=_odd(topology, counts, each))
    return _mesh(topology, part, base, counts)


def _check_counts(counts: Mapping[Any, int | None], part: Accelerator, most: int) -> None:
    """Raise SpecError where a pair has more links than the accelerator: it must be another one."""
    each = max((count for count in counts.values() if count), default=0)
    if each > most:
        raise SpecError(
            f"a pair has {each} links, but {part.name} has {most}: it is another accelerator", where="--gpu"
        )


def _odd(topology: HostTopology, counts: Mapping[Any, int | None], each: int) -> int:
    """Pairs that differ from the usual one."""
    return sum(counts.get(pair) != each for pair in topology.pairs)


def _switch(topology: HostTopology, part: Accelerator, base: Node, *, each: int, odd: int) -> Wires:
    one, name = link_bandwidth(part, base), link_name(part, base)
    told = f"{counted(each, 'link')} ({name}) of {format_bandwidth(one)} from each accelerator to a switch"
    entries = {"wiring": "switch", "link": name, "link_bandwidth": each * one, "link_latency": _hop(base)}
    if base.wiring == Wiring.SWITCH:
        entries |= {"in_network_reduction": base.in_network_reduction}
    assumed = []
    if base.wiring == Wiring.SWITCH and base.domain_nodes > 1 and len(topology.gpus) == base.gpus_per_node:
        entries |= {"domain_nodes": base.domain_nodes}
        assumed.append(f"{base.domain_nodes} hosts share one link domain, as in {base.name}")
    less = "1 pair has" if odd == 1 else f"{odd} pairs have"
    if odd:
        assumed.append(f"all pairs are alike, though {less} other links (planner topo check says which)")
    sources = {"link_bandwidth": f"{{dump}}: {each} links, of {format_bandwidth(one)} each", "link_latency": HOP_SOURCE}
    return Wires(entries, (told,), tuple(assumed), sources)


def _mesh(topology: HostTopology, part: Accelerator, base: Node, counts: Mapping[Any, int | None]) -> Wires:
    one, name = link_bandwidth(part, base), link_name(part, base)
    assumed: tuple[str, ...] = ()
    if any(count is None for count in counts.values()):
        peers = Counter(gpu for pair in counts for gpu in pair)
        one = base.link_bandwidth / max(peers.values())
        assumed = (f"{format_bandwidth(one)} a linked pair: the dump does not say how many links that are",)
    pairs = {f"{i}-{j}": count or 1 for (i, j), count in sorted(counts.items())}
    entries = {
        "wiring": "mesh",
        "link": name,
        "link_pairs": {"value": one, "unit": "B/s", "pairs": pairs},
        "link_latency": _hop(base),
    }
    sources = {"link_pairs": f"{{dump}}: how many links, of {format_bandwidth(one)} each", "link_latency": HOP_SOURCE}
    return Wires(entries, (f"{counted(len(pairs), 'pair')} joined by {name}",), assumed, sources)


def _hop(base: Node) -> float:
    """Latency of a link of one's own: the usual node's, or NCCL's NVLink hop of the LL128 ring."""
    return base.link_latency if base.wiring in (Wiring.SWITCH, Wiring.MESH) else HOP_LATENCY


def _usual(topology: HostTopology, part: Accelerator, base: Node) -> Wires:
    """The links of the usual node: of one accelerator nobody can tell, and providers' files leave them out."""
    if base.wiring != Wiring.SWITCH:
        return _slots(topology, part, base)
    entries = {"wiring": "switch", "link": base.link, "link_bandwidth": base.link_bandwidth, "link_latency": _hop(base)}
    entries["in_network_reduction"] = base.in_network_reduction
    return Wires(entries, (), (f"links between accelerators as in {base.name}",))


def _usual_mesh(topology: HostTopology, base: Node) -> Wires:
    if len(topology.gpus) > base.gpus_per_node:
        raise SpecError(
            f"the dump leaves out the links between its {len(topology.gpus)} accelerators, and {base.name} has only "
            f"{base.gpus_per_node}; take a file that NCCL_TOPO_DUMP_FILE wrote on the machine"
        )
    one = min(base.link_pairs.values())
    kept = {pair: rate for pair, rate in base.link_pairs.items() if max(pair) < len(topology.gpus)}
    pairs = {f"{i}-{j}": max(1, round(rate / one)) for (i, j), rate in sorted(kept.items())}
    link_pairs = {"value": one, "unit": "B/s", "pairs": pairs}
    entries = {"wiring": "mesh", "link": base.link, "link_pairs": link_pairs, "link_latency": _hop(base)}
    return Wires(entries, (), (f"links between accelerators as in {base.name}",))


def _slots(topology: HostTopology, part: Accelerator, base: Node) -> Wires:
    """Accelerators that reach each other over PCIe alone."""
    usual = base.wiring if base.wiring in (Wiring.PCIE, Wiring.HOST) else Wiring.PCIE
    access = set(topology.peer_access.values())
    wiring = (Wiring.PCIE if access == {"OK"} else Wiring.HOST) if access else usual
    peers = "peer access" if wiring == Wiring.PCIE else "no peer access between accelerators"
    rate, bandwidth = _slot(topology, part)
    latency = base.link_latency if base.wiring in (Wiring.PCIE, Wiring.HOST) else PCIE_LATENCY
    entries = {"wiring": wiring.name.lower(), "link": rate, "link_bandwidth": bandwidth, "link_latency": latency}
    told = ("no links of their own between accelerators",) if topology.links_told and len(topology.gpus) > 1 else ()
    return Wires(
        entries,
        told + ((peers,) if access else ()),
        () if access else (f"{peers}, as in {base.name}" if wiring == base.wiring else peers,),
        {"link_bandwidth": "{dump}" if _slot_links(topology) else f"catalogue: {part.name}"},
    )


def _slot_links(topology: HostTopology) -> list[tuple[float, BytesPerSecond]]:
    """Rate and bandwidth of the accelerators' own slots, where a machine's dump states them."""
    if not topology.from_machine:
        return []
    devices = [device for device in topology.pcie if device.kind == "gpu" and device.rate and device.bandwidth]
    return [(device.rate or 0.0, device.bandwidth or 0.0) for device in devices]


def _slot(topology: HostTopology, part: Accelerator) -> tuple[str, BytesPerSecond]:
    """Generation and bandwidth of the slowest slot, or those of the accelerator."""
    links = _slot_links(topology)
    if links:
        rate, bandwidth = min(links, key=lambda each: each[1])
        return SLOT_RATES.get(rate, "pcie3" if rate < 8e9 else "pcie5"), bandwidth
    bandwidth = part.pcie_bandwidth
    generation = "pcie3" if bandwidth < 20e9 else "pcie4" if bandwidth < 40e9 else "pcie5"
    return generation, bandwidth
