"""NCCL's topology as XML: what NCCL_TOPO_DUMP_FILE writes and providers ship for NCCL_TOPO_FILE, NVIDIA's and AMD's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from planner.dumps import pci
from planner.dumps.host import NEARNESS
from planner.dumps.records import Cpu, Gpu, HostTopology, Nic, Pair, PairLink, PciDevice
from planner.dumps.text import whole_number
from planner.dumps.xml_tree import Element, parse_xml
from planner.errors import FileFormatError

SOURCE = "NCCL topology XML"
MOST_GPUS, MOST_NICS, MOST_HOSTS = 256, 512, 1024
UNSEEN_SWITCH = "fffffff:ffff:ff"
"""The target of links whose other end a virtual machine does not see (NVIDIA/nccl @5067397c, src/graph/xml.cc)."""


@dataclass(frozen=True)
class _Place:
    """An element of the tree with what is above it: the NUMA node and the bus ids from the root port down."""

    element: Element
    numa: int | None
    above: tuple[str, ...] = ()

    @property
    def bus_id(self) -> str:
        return self.element.get("busid").lower()

    @property
    def kind(self) -> str:
        if next(self.element.all("gpu"), None) is not None:
            return "gpu"
        if next(self.element.all("nic"), None) is not None and self.element.name == "pci":
            return "nic"
        return pci.kind_of(self.element.get("class"))


def read_nccl_xml(text: str) -> tuple[HostTopology, ...]:
    """The topology of every host of an XML file. Raises FileFormatError, with the line, where it is none."""
    system = _system(text)
    hosts: dict[str, list[Element]] = {}
    for cpu in system.all("cpu"):
        hosts.setdefault(cpu.get("host_hash"), []).append(cpu)
    first, *others = (_host(cpus, system) for cpus in list(hosts.values())[:MOST_HOSTS])
    several = f"{len(hosts)} hosts in the file, of which the first is taken"
    return replace(first, notes=(*first.notes, several)) if others else first, *others


def _host(cpus: list[Element], system: Element) -> HostTopology:
    places = [place for cpu in cpus for place in _walk(cpu, whole_number(cpu.get("numaid")), ())]
    gpus = _ordered([place for place in places if place.kind == "gpu"])
    _check(gpus, places, system)
    nics = _adapters(places)
    links = _Links(gpus)
    from_machine = any(gpu.get("dev") for place in gpus for gpu in place.element.all("gpu"))
    return HostTopology(
        source=SOURCE,
        gpus=tuple(_gpu(i, place, links) for i, place in enumerate(gpus)),
        nics=tuple(nic for nic, _ in nics),
        pairs={(i, j): links.between(i, j) for i, j in combinations(range(len(gpus)), 2)},
        nic_pairs={
            (i, j): min((_way(gpu, place) for place in near), key=NEARNESS.index)
            for i, gpu in enumerate(gpus)
            for j, (_, near) in enumerate(nics)
        },
        pcie=tuple(_device(place) for place in places if place.element.name == "pci"),
        switched=links.switched,
        cpu=_cpu(cpus[0]),
        from_machine=from_machine,
        links_told=links.switched is not None or (from_machine and not links.odd),
        notes=tuple(_notes(places, links)),
    )


def _system(text: str) -> Element:
    """The <system> of a text, which other text may surround."""
    start = text.find("<system")
    if text.lstrip()[:1] == "<" or start < 0:
        root = parse_xml(text)
    else:
        end = text.find("</system>", start)
        last = end + len("</system>") if end > 0 else len(text)
        root = parse_xml(text[start:last], first_line=text.count("\n", 0, start) + 1)
    if root.name != "system" or next(root.all("cpu"), None) is None:
        raise FileFormatError(
            f"line {root.line}: XML of <{root.name[:40]}>, not a topology of NCCL: <system> with <cpu> in it, as "
            "NCCL_TOPO_DUMP_FILE writes it"
        )
    return root


def _walk(element: Element, numa: int | None, above: tuple[str, ...]) -> Iterator[_Place]:
    """Every PCI device and NIC below an element, top down."""
    for child in element.all("pci", "nic"):
        place = _Place(child, numa, above)
        if child.name == "pci" or element.name == "cpu":
            yield place
        if child.name == "pci":
            yield from _walk(child, numa, (*above, place.bus_id))


def _ordered(gpus: list[_Place]) -> list[_Place]:
    """Accelerators in the order of their device numbers, or of their bus ids where these are not stated."""
    numbers = [next((whole_number(gpu.get("dev")) for gpu in place.element.all("gpu")), None) for place in gpus]
    told = [number for number in numbers if number is not None]
    if len(told) == len(gpus) == len(set(told)):
        return [place for _, place in sorted(zip(told, gpus, strict=True), key=lambda each: each[0])]
    return sorted(gpus, key=lambda place: place.bus_id)


def _check(gpus: list[_Place], places: list[_Place], system: Element) -> None:
    if len(gpus) > MOST_GPUS:
        raise FileFormatError(f"{SOURCE}: {len(gpus):,} accelerators; at most {MOST_GPUS} are read")
    if gpus:
        return
    unclear = [place for place in places if not place.element.get("class") and not place.element.children]
    if unclear:
        raise FileFormatError(
            f"line {unclear[0].element.line}: {SOURCE} whose {len(unclear)} devices have no class, so that "
            "accelerators and NICs look alike; take a file that NCCL_TOPO_DUMP_FILE wrote on the machine"
        )
    raise FileFormatError(
        f"line {system.line}: {SOURCE} without an accelerator (no <gpu>, no class 0x03); let a job of all GPUs write "
        "it with NCCL_TOPO_DUMP_FILE"
    )


class _Links:
    """The accelerators' own links: those between two of them, and those to a switch."""

    def __init__(self, gpus: list[_Place]) -> None:
        self.gpus = gpus
        self.to_switch: Counter[int] = Counter()
        self.pairs: Counter[Pair] = Counter()
        self.odd: list[str] = []
        self._word = "NV"
        self._places = {place.bus_id: i for i, place in enumerate(gpus)}
        for i, place in enumerate(gpus):
            for link in _own_links(place):
                self._add(i, link)

    @property
    def switched(self) -> bool | None:
        """Whether links go to a switch; None where no accelerator has any."""
        return bool(self.to_switch) if self.to_switch or self.pairs else None

    def _add(self, gpu: int, link: Element) -> None:
        self._word = "XGMI" if link.name == "xgmi" else "NV"
        target, count = link.get("target").lower(), whole_number(link.get("count"), most=1000) or 0
        other = self._places.get(target)
        if other == gpu:
            self.odd.append(f"line {link.line}: accelerator {gpu} names itself as the other end of its {count} links")
        elif other is not None:
            pair = (min(gpu, other), max(gpu, other))
            self.pairs[pair] = max(self.pairs[pair], count)
        elif link.get("tclass").lower().startswith("0x0680") or target == UNSEEN_SWITCH:
            self.to_switch[gpu] += count
        else:
            self.odd.append(
                f"line {link.line}: {count} links of accelerator {gpu} go to {target[:32]}, which is not here"
            )

    def between(self, i: int, j: int) -> PairLink:
        """What joins two accelerators."""
        path = _way(self.gpus[i], self.gpus[j])
        count = self.pairs[i, j] + min(self.to_switch[i], self.to_switch[j])
        return (
            PairLink(f"{self._word}{count}" if self._word == "NV" else self._word, count, path)
            if count
            else PairLink(path)
        )

    def of(self, i: int) -> int | None:
        """All links of an accelerator; None where no accelerator has any."""
        if self.switched is None:
            return None
        return self.to_switch[i] + sum(count for pair, count in self.pairs.items() if i in pair)


def _own_links(place: _Place) -> Iterator[Element]:
    """The links of a device. One that several ranks share stands there once for each, every time with all links."""
    first = next(place.element.all("gpu"), None)
    return first.all("nvlink", "xgmi") if first is not None else iter(())


def _way(one: _Place, other: _Place) -> str:
    """How near two devices are over PCIe."""
    if one.numa != other.numa:
        return "SYS"
    shared = 0
    for mine, theirs in zip(one.above, other.above, strict=False):
        if mine != theirs:
            break
        shared += 1
    if not shared:
        return "PHB"
    return "PIX" if len(one.above) == len(other.above) == shared else "PXB"


def _gpu(index: int, place: _Place, links: _Links) -> Gpu:
    return Gpu(index, "", place.bus_id, place.numa, device_id=_device_id(place.element), links=links.of(index))


def _device_id(element: Element) -> str:
    """Vendor and device, or nothing where a provider's file makes them up."""
    vendor, device = (element.get(key).lower().removeprefix("0x") for key in ("vendor", "device"))
    return f"{vendor}:{device}" if len(vendor) == len(device) == 4 and vendor not in ("ffff", "0000") else ""


def _adapters(places: list[_Place]) -> list[tuple[Nic, list[_Place]]]:
    """Ports with their places: a socket interface without a PCI device is listed below every CPU."""
    found: dict[tuple[str, str], tuple[Nic, list[_Place]]] = {}
    for place in places:
        for nic, near in _nics(place):
            found.setdefault((nic.name, nic.bus_id), (nic, []))[1].append(near)
    return list(found.values())[:MOST_NICS]


def _nics(place: _Place) -> Iterator[tuple[Nic, _Place]]:
    """The ports of a network adapter, each with the place of its adapter."""
    if place.kind != "nic" and place.element.name != "nic":
        return
    holders = [place.element] if place.element.name == "nic" else list(place.element.all("nic"))
    nets = [net for holder in holders for net in holder.all("net") if "+" not in net.get("name")]
    if not nets and place.element.name == "pci":
        yield Nic(place.bus_id, layer=_layer(place.element), bus_id=place.bus_id, numa=place.numa), place
    for net in nets:
        yield _net(net, place), place


def _net(net: Element, place: _Place) -> Nic:
    megabits = whole_number(net.get("speed"), most=10**8)
    return Nic(
        name=net.get("name")[:64] or place.bus_id,
        speed=megabits * 1e6 / 8 if megabits else None,
        layer=_layer(place.element),
        bus_id=place.bus_id,
        numa=place.numa,
        gpu_direct={"1": True, "0": False}.get(net.get("gdr")),
    )


def _layer(element: Element) -> str:
    if element.get("vendor").lower() == "0x1d0f":  # Amazon
        return "efa"
    return "infiniband" if element.get("class").startswith("0x0207") else "ethernet"


def _device(place: _Place) -> PciDevice:
    rate, width = pci.transfer_rate(place.element.get("link_speed")), pci.lanes(place.element.get("link_width"))
    return PciDevice(
        bus_id=place.bus_id,
        kind=place.kind,
        parent=place.above[-1] if place.above else "",
        numa=place.numa,
        rate=rate,
        width=width,
        bandwidth=pci.lanes_bandwidth(rate, width),
        device_id=_device_id(place.element),
        virtual=place.bus_id.startswith("ffff:"),
    )


def _cpu(cpu: Element) -> Cpu:
    family, model = (whole_number(cpu.get(key)) for key in ("familyid", "modelid"))
    return Cpu(cpu.get("arch")[:32], cpu.get("vendor")[:32], family, model)


def _notes(places: list[_Place], links: _Links) -> Iterator[str]:
    if any(place.bus_id.startswith("ffff:") for place in places):
        yield "a provider's file with made-up PCIe switches: it says what NCCL should believe, not what was measured"
    if links.odd:
        yield f"{links.odd[0]}{f' ({len(links.odd)} such links)' if len(links.odd) > 1 else ''}: left out"
    if any(True for place in links.gpus for gpu in place.element.all("gpu") for _ in gpu.all("c2c")):
        yield "accelerators are joined to their CPU by NVLink-C2C, which the planner does not model"
