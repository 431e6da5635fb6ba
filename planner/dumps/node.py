"""A node of the planner's from a dump: what the dump tells, and the catalogue's usual node for what it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.catalogue.hardware import LOOKUP, accelerator, network, network_names, node, standard_node
from planner.catalogue.names import slug_of
from planner.dumps.host import data_nics, numa_groups, switch_groups
from planner.dumps.own_links import Wires, wires_of
from planner.dumps.pci import ACCELERATORS
from planner.dumps.records import Cpu, HostTopology
from planner.errors import SpecError
from planner.quantities import UNITS, BytesPerSecond, counted, format_bandwidth, to_base
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Fabric, Node
from planner.spec.node_part import first_accelerators
from planner.spec.read_node import read_node

FIGURES = {
    "link_bandwidth": ("GB/s", "B/s"),
    "link_latency": ("us", "s"),
    "socket_bandwidth": ("GB/s", "B/s"),
    "host_memory": ("GiB", "B"),
    "host_memory_bandwidth": ("GB/s", "B/s"),
    "nic_bandwidth": ("Gb/s", "B/s"),
}
"""Figure of a node -> the unit that people read, and the base unit where that would lose digits."""
SOCKETS = {
    ("GenuineIntel", 79): 6e9,
    ("GenuineIntel", 85): 10e9,
    ("GenuineIntel", 106): 10e9,
    ("GenuineIntel", 143): 22e9,
    ("GenuineIntel", 207): 22e9,
}
"""(vendor, model) -> what accelerators get of the link between sockets: Broadwell, Skylake and its successors up to Ice
Lake, Sapphire and Emerald Rapids (NVIDIA/nccl @5067397c, src/graph/topo.h)."""
AMD_SOCKETS = 16e9
INTERFACE = re.compile(r"eth\d|en[opsx]|em\d|bond|team|ib\d|wl|net\d")
"""How the kernel calls network interfaces, which carry TCP; RDMA devices have the names of their drivers."""
LAYERS = {"infiniband": "infiniband", "efa": "efa"}
SOCKETS_SOURCE = "NVIDIA/nccl @5067397c, src/graph/topo.h"


@dataclass(frozen=True)
class HostNode:
    """A node made from a dump, and how.

    `entries` is its table of a cluster TOML, `told` what the dump said, `assumed` what it did not.
    """

    node: Node
    entries: Mapping[str, Any]
    told: tuple[str, ...]
    assumed: tuple[str, ...]


def accelerator_of(topology: HostTopology, name: str | None = None) -> Accelerator:
    """The accelerator that is named, or that the dump names. Raises SpecError where neither says which it is."""
    if name:
        return accelerator(name, where="--gpu")
    names = {
        slug_of("accelerators", gpu.name) if gpu.name else ACCELERATORS.get(gpu.device_id) for gpu in topology.gpus
    }
    found = names.pop() if len(names) == 1 else None
    if found:
        return accelerator(found)
    shown = sorted({gpu.name or gpu.device_id for gpu in topology.gpus} - {""})
    said = f"{' and '.join(shown[:3])}, which is no single accelerator of the catalogue" if shown else "nothing of it"
    raise SpecError(f"which accelerator it is has to be said, such as h100-sxm; the dump says {said}", where="--gpu")


def node_of(
    topology: HostTopology, part: Accelerator, *, name: str = "host", origin: str = "", usual: Node | None = None
) -> HostNode:
    """The node that a dump describes.

    `origin` is the source of its figures; `usual` the node that fills what the dump leaves out, by default the
    accelerator's in the catalogue. Raises SpecError where the two cannot be brought together.
    """
    origin = origin or topology.source
    base = usual or _usual(part)
    wires = wires_of(topology, part, base)
    fabric = _network(topology, base)
    parts = [_sockets(topology, base), _switches(topology, base), fabric]
    told = (*wires.told, *(said for each in parts for said in each.told))
    assumed = (*wires.assumed, *(said for each in parts for said in each.assumed), _memory_words(base))
    entries: dict[str, Any] = {"accelerator": part.name, "gpus_per_node": len(topology.gpus)}
    for each in (wires, *parts):
        entries |= _sourced(each, origin, base)
    entries |= _sourced(_memory(topology, base), origin, base)
    entries["notes"] = f"From {origin}; what it does not tell is that of {base.name}."
    made = read_node(entries, LOOKUP, where=name, name=name)
    return HostNode(made, {"name": name, **entries}, told, assumed)


def host_name(text: str) -> str:
    """A name for a node from a file's: letters, digits and what the catalogue's names have.

    >>> host_name("my topo (1)"), host_name("")
    ('my-topo-1', 'host')
    """
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.")[:60] or "host"


def _usual(part: Accelerator) -> Node:
    name = standard_node(part.name)
    if name is None:
        raise SpecError(
            f"{part.name} has no usual node in the catalogue to fill what the dump leaves out", where="--gpu"
        )
    return node(name)


def _sourced(part: Wires, origin: str, base: Node) -> dict[str, Any]:
    """Entries as a TOML states them: figures with unit and source."""
    sources = {key: source.replace("{dump}", origin) for key, source in part.sources.items()}
    return {key: _stated(key, value, sources, f"catalogue: {base.name}") for key, value in part.entries.items()}


def _stated(key: str, value: Any, sources: Mapping[str, str], usual: str) -> Any:
    source = {"source": sources.get(key, usual)}
    if key in FIGURES:
        return _figure(key, value) | source
    if key == "link_pairs":
        return value | _figure("link_bandwidth", value["value"]) | {"scope": "one link, one direction"} | source
    if key == "network":
        return {name: _stated(name, each, sources, usual) for name, each in value.items()} | source
    return value


def _figure(key: str, value: float) -> dict[str, Any]:
    """Value and unit: the usual one, or the base unit where only that gives the very same number back."""
    usual, base = FIGURES[key]
    shown = round(value / UNITS[usual], 6)
    return {"value": shown, "unit": usual} if to_base(shown, usual) == value else {"value": value, "unit": base}


def _sockets(topology: HostTopology, base: Node) -> Wires:
    """A dump tells NUMA nodes; of more than two it is not told which are one socket, and hosts rarely have more."""
    groups = numa_groups(topology)
    if groups is None:
        sockets = first_accelerators(base, len(topology.gpus)).sockets
        entries = {"sockets": sockets, "socket_bandwidth": base.socket_bandwidth}
        return Wires(entries, (), (f"{counted(sockets, 'socket')} as in {base.name}",))
    sockets = min(len(groups), max(2, base.sockets))
    told = [f"accelerators on {counted(len(groups), 'NUMA node')}"]
    assumed = [f"{len(groups)} NUMA nodes are {sockets} sockets"] if sockets < len(groups) else []
    if any(group != tuple(range(group[0], group[-1] + 1)) for group in groups):
        assumed.append("accelerators of one socket are numbered in a row, which they are not here")
    bandwidth = _socket_bandwidth(topology.cpu)
    if bandwidth is None and sockets > 1:
        assumed.append(f"{format_bandwidth(base.socket_bandwidth)} between sockets")
    entries = {"sockets": sockets, "socket_bandwidth": bandwidth or base.socket_bandwidth}
    sources = {"socket_bandwidth": f"{SOCKETS_SOURCE}, for the CPU of {{dump}}"} if bandwidth else {}
    return Wires(entries, tuple(told), tuple(assumed), sources)


def _socket_bandwidth(cpu: Cpu) -> BytesPerSecond | None:
    if cpu.vendor == "AuthenticAMD":
        return AMD_SOCKETS
    return SOCKETS.get((cpu.vendor, cpu.model or 0))


def _switches(topology: HostTopology, base: Node) -> Wires:
    groups = switch_groups(topology)
    if groups is None:
        return Wires({"gpus_per_pcie_switch": base.gpus_per_pcie_switch}, (), ("PCIe switches as in " + base.name,))
    sizes = {len(group) for group in groups}
    size = sizes.pop() if len(sizes) == 1 else 0
    in_a_row = all(group == tuple(range(group[0], group[0] + len(group))) for group in groups)
    if size == 1 or len(topology.gpus) == 1:
        return Wires({"gpus_per_pcie_switch": 0})
    if size and in_a_row:
        return Wires({"gpus_per_pcie_switch": size}, (f"{size} accelerators behind each PCIe switch",))
    return Wires({"gpus_per_pcie_switch": 0}, (), ("a PCIe uplink for each accelerator: switches are unequal",))


def _network(topology: HostTopology, base: Node) -> Wires:
    nics = data_nics(topology)
    if not nics:
        fabric = first_accelerators(base, len(topology.gpus)).fabric
        entries = {"name": fabric.name, "nics_per_node": max(fabric.nics_per_node, 1)}
        why = "no NIC of the dump is up" if topology.nics else "the dump lists no NIC"
        word = f"network {fabric.name} x {entries['nics_per_node']} as in {base.name}: {why}"
        return Wires({"network": entries}, (), (word,))
    speeds = {topology.nics[nic].speed for nic in nics}
    further = len(topology.nics) - len(nics)
    told = [f"{counted(len(nics), 'NIC')}" + (f" ({further} further off or down)" if further else "")]
    if None in speeds:
        return _nics_of_unknown_speed(topology, base, nics, told)
    speed = min(float(speed) for speed in speeds if speed)
    told.append(f"{format_bandwidth(speed)} a NIC" + (", the slowest of them" if len(speeds) > 1 else ""))
    fabric = network(_network_like(_kind(topology, nics), speed, len(nics)) or base.fabric.name)
    entries = {"name": fabric.name, "nics_per_node": len(nics), "nic_bandwidth": speed}
    sources = {"network": "{dump}", "nic_bandwidth": "{dump}"}
    return Wires({"network": entries}, tuple(told), (f"latency of {fabric.name}",), sources)


def _nics_of_unknown_speed(topology: HostTopology, base: Node, nics: tuple[int, ...], told: list[str]) -> Wires:
    """As fast as the usual node's; more NICs than it has are taken as ports that share them."""
    kind = _kind(topology, nics)
    fabric = base.fabric
    if kind and kind != fabric.kind:
        fabric = network(_network_like(kind, fabric.nic_bandwidth, len(nics)) or fabric.name)
    usual = fabric.nics_per_node or base.fabric.nics_per_node
    speed, said = fabric.nic_bandwidth, f"{fabric.name}, {format_bandwidth(fabric.nic_bandwidth)} a NIC"
    if len(nics) > usual > 0:
        speed = fabric.nic_bandwidth * usual / len(nics)
        said = f"the {len(nics)} NICs share the {usual} x {format_bandwidth(fabric.nic_bandwidth)} of {fabric.name}"
    entries = {"name": fabric.name, "nics_per_node": len(nics), "nic_bandwidth": speed}
    word = f"{said}: the dump does not say their rate (ibstat does)"
    return Wires({"network": entries}, tuple(told), (word,), {"network": "{dump}"})


def _kind(topology: HostTopology, nics: tuple[int, ...]) -> str:
    """The kind of network, where the NICs tell: adapters on Ethernet that GPUs can send from directly are RoCE."""
    layers = {topology.nics[nic].layer for nic in nics}
    layer = layers.pop() if len(layers) == 1 else ""
    if layer != "ethernet":
        return LAYERS.get(layer, "")
    plain = [nic for nic in nics if INTERFACE.match(topology.nics[nic].name) and not topology.nics[nic].gpu_direct]
    return "ethernet" if len(plain) == len(nics) else "roce"


def _network_like(kind: str, speed: BytesPerSecond, nics: int) -> str | None:
    """The network of the catalogue of a kind whose NICs are nearest in number and speed."""
    known: list[Fabric] = [network(name) for name in network_names()]
    alike = [fabric for fabric in known if fabric.kind == kind]
    if not alike:
        return None
    best = min(alike, key=lambda each: (each.nics_per_node not in (0, nics), abs(each.nic_bandwidth - speed)))
    return best.name


def _memory(topology: HostTopology, base: Node) -> Wires:
    part = first_accelerators(base, len(topology.gpus))
    entries = {"host_memory": part.host_memory, "host_memory_bandwidth": part.host_memory_bandwidth}
    return Wires({key: value for key, value in entries.items() if value})


def _memory_words(base: Node) -> str:
    return f"host memory as in {base.name}"
