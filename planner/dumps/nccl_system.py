"""The graph that NCCL prints with NCCL_DEBUG_SUBSYS=GRAPH: `=== System : maxBw 240.0 ===` and the lines below it.

A node stands in the column where its own links are printed, so a line's indent says whose link it is. Every rank prints
the whole graph; the first rank's is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from planner.dumps.nccl_graph import MARKERS, split_line
from planner.dumps.records import Gpu, HostTopology, Nic, Pair, PairLink
from planner.dumps.text import lines
from planner.errors import FileFormatError

SOURCE = "NCCL graph lines"
MOST_VERTICES = 2048
_ID = r"([A-Z]{3})/(?:[0-9a-f]{1,8}-)?([0-9a-f]{1,16})"
_VERTEX = re.compile(_ID + r"(?: \((.{0,60}?)\))?", re.ASCII)
_LINK = re.compile(r"\+ ([A-Z0-9]{3})\[(\d{1,6}(?:\.\d)?)\] - ", re.ASCII)
Name = tuple[str, str]
"""Kind of a vertex (GPU, NVS, CPU, PCI, NIC, NET) and its hexadecimal id."""


@dataclass
class _Graph:
    """Vertices with what they hang on, and the accelerators' own links."""

    parents: dict[Name, Name | None] = field(default_factory=dict)
    details: dict[Name, str] = field(default_factory=dict)
    links: dict[tuple[Name, Name], float] = field(default_factory=dict)
    columns: dict[int, Name] = field(default_factory=dict)
    """Column -> the last vertex that began there."""

    def add(self, body: str, number: int) -> None:
        """Take a line: a CPU, or a link and the vertex at its end."""
        indent = len(body) - len(body.lstrip())
        link = _LINK.match(body, indent)
        start = link.end() if link else indent
        vertex = _VERTEX.match(body, start)
        if not vertex:
            return
        if len(self.parents) >= MOST_VERTICES:
            raise FileFormatError(f"line {number}: {SOURCE} with more than {MOST_VERTICES:,} devices")
        name, above = (vertex[1], vertex[2]), self.columns.get(indent)
        if link and link[1] != "PCI" and name[0] in ("GPU", "NVS"):
            if above:
                self.links[above, name] = float(link[2]) * 1e9
            return
        if not link or link[1] in ("PCI", "NET"):
            self.columns[start] = name
            self.parents.setdefault(name, above if link else None)
            self.details.setdefault(name, vertex[3] or "")

    def above(self, name: Name) -> tuple[Name, ...]:
        """What a vertex hangs on, from the CPU down."""
        chain: list[Name] = []
        parent = self.parents.get(name)
        while parent and parent not in chain:
            chain.append(parent)
            parent = self.parents.get(parent)
        return tuple(reversed(chain))

    def all(self, kind: str) -> list[Name]:
        """Vertices of a kind, in the order in which they were printed."""
        return [name for name in self.parents if name[0] == kind]


def read_nccl_system(text: str) -> HostTopology | None:
    """The topology that NCCL prints, or None where it prints none."""
    graph = _Graph()
    for number, body in _block(text):
        graph.add(body, number)
    gpus = sorted(graph.all("GPU"), key=lambda name: (_rank(graph, name), name[1]))
    if not gpus:
        return None
    nics = graph.all("NET") or graph.all("NIC")
    return HostTopology(
        source=SOURCE,
        gpus=tuple(_gpu(graph, i, name) for i, name in enumerate(gpus)),
        nics=tuple(_nic(graph, name) for name in nics),
        pairs={(i, j): _between(graph, gpus[i], gpus[j]) for i, j in combinations(range(len(gpus)), 2)},
        nic_pairs=_nic_pairs(graph, gpus, nics),
        switched=any(name[0] == "NVS" for pair in graph.links for name in pair) if graph.links else None,
        notes=("NCCL shows the accelerators of the job only, and bandwidths as its search counts them",),
    )


def _block(text: str) -> Iterator[tuple[int, str]]:
    """Lines of the first graph, of the rank that prints it."""
    printer = None
    for number, line in lines(text):
        if not any(marker in line for marker in MARKERS):
            continue
        who, body = split_line(line)
        if printer is None and "=== System : maxBw" in body:
            printer = who
        elif who == printer and body.startswith("====="):
            return
        elif who == printer:
            yield number, body


def _rank(graph: _Graph, name: Name) -> int:
    found = re.match(r"\d{1,6}", graph.details[name], re.ASCII)
    return int(found[0]) if found else 10**7


def _bus_id(identity: str) -> str:
    """NCCL's number of a bus id, written as PCI does.

    >>> _bus_id("17000"), _bus_id("901000")
    ('0000:17:00.0', '0009:01:00.0')
    """
    number = int(identity, 16)
    return f"{number >> 20:04x}:{number >> 12 & 255:02x}:{number >> 4 & 255:02x}.{number & 15:x}"


def _numa(graph: _Graph, name: Name) -> int | None:
    top = next((each for each in graph.above(name) if each[0] == "CPU"), None)
    return int(top[1], 16) if top and len(top[1]) < 5 else None


def _gpu(graph: _Graph, index: int, name: Name) -> Gpu:
    return Gpu(index, bus_id=_bus_id(name[1]), numa=_numa(graph, name))


def _nic(graph: _Graph, name: Name) -> Nic:
    if name[0] == "NIC":
        return Nic(_bus_id(name[1]), bus_id=_bus_id(name[1]), numa=_numa(graph, name))
    speed = re.search(r"(\d{1,6}\.\d{1,6})$", graph.details[name], re.ASCII)
    return Nic(f"NET/{name[1]}", numa=_numa(graph, name), speed=float(speed[1]) * 1e9 or None if speed else None)


def _between(graph: _Graph, one: Name, other: Name) -> PairLink:
    path = _way(graph, one, other)
    direct = graph.links.get((one, other), 0.0) or graph.links.get((other, one), 0.0)
    switched = [
        sum(rate for (gpu, end), rate in graph.links.items() if gpu == name and end[0] == "NVS")
        for name in (one, other)
    ]
    bandwidth = direct + min(switched)
    return PairLink("NVL", None, path, nccl_bandwidth=bandwidth) if bandwidth else PairLink(path)


def _way(graph: _Graph, one: Name, other: Name) -> str:
    """How near two devices are over PCIe."""
    ours, theirs = graph.above(one), graph.above(other)
    shared = [a for a, b in zip(ours, theirs, strict=False) if a == b]
    if not shared or (not ours and not theirs):
        return "SYS"
    if len(shared) == 1:
        return "PHB"
    return "PIX" if len(ours) == len(theirs) == len(shared) else "PXB"


def _nic_pairs(graph: _Graph, gpus: list[Name], nics: list[Name]) -> dict[Pair, str]:
    """A port hangs on its adapter, which counts for how near it is."""
    adapters = [graph.parents.get(name) or name if name[0] == "NET" else name for name in nics]
    return {(i, j): _way(graph, gpu, nic) for i, gpu in enumerate(gpus) for j, nic in enumerate(adapters)}
