"""Routes through a node, read off the drawn graph: between accelerators, and from each to the network and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf
from typing import NamedTuple

import networkx as nx
import numpy as np

from planner.quantities import BytesPerSecond, Column, Seconds
from planner.spec.cluster import Cluster, Pool, Wiring
from planner.topology.graph import Vertex, graph, nics_of, numbered_pools
from planner.topology.rings import MOST_MEMBERS, best_rings

Edge = tuple[Vertex, Vertex]
Route = tuple[Edge, ...]


class Limit(NamedTuple):
    """The link that holds a group back: what a rank gets, how many ranks' traffic shares the link, and what it is."""

    bandwidth: BytesPerSecond = inf
    load: float = 0.0
    capacity: BytesPerSecond = inf
    kind: str = ""
    ends: tuple[str, str] = ("", "")


@dataclass(frozen=True, eq=False)
class Ways:
    """How the ranks of one node reach a switch, that of their link domain or those of the network.

    `leaving` and `entering` say which share of what a rank sends and gets there each link of the node bears: arrays of
    (accelerators, links). The latencies are from the accelerator to the switch.
    """

    leaving: Column
    entering: Column
    latency_out: Seconds
    latency_in: Seconds


class Wires:
    """The links of one pool's nodes as the first of them shows them, and the routes over them, found once each."""

    def __init__(self, links: nx.DiGraph, pool: Pool, index: int) -> None:
        self.node = pool.node
        self.edges: tuple[Edge, ...] = tuple(edge for edge in links.edges if _is_of(links, edge, index))
        self.kinds = tuple(str(links.edges[edge]["kind"]) for edge in self.edges)
        self.capacity = np.array([links.edges[edge]["capacity"] for edge in self.edges], dtype=float)
        self._links, self._index, self._inside = links, index, _inside(links, index)
        self._place = {edge: place for place, edge in enumerate(self.edges)}
        self.doors = self._ways({i: self._doors(i) for i in range(self.node.gpus_per_node)})
        self.between = lru_cache(maxsize=None)(self._between)
        self.rings = lru_cache(maxsize=None)(self._rings)

    @cached_property
    def ports(self) -> Ways:
        """The ways to a switch that serves every accelerator of the domain."""
        gpus: list[Vertex] = [("gpu", self._index, i) for i in range(self.node.gpus_per_node)]
        switch = next(v for v in self._links[gpus[0]] if v[0] == "nvswitch")
        return self._ways({i: [(((gpu, switch),), ((switch, gpu),))] for i, gpu in enumerate(gpus)})

    def _between(self, one: int, other: int) -> tuple[Column, Seconds]:
        """The links from one accelerator of a node to another (a row of 0 and 1), and the latency of the way.

        By their own links if these join the two, else over PCIe.
        """
        source: Vertex = ("gpu", self._index, one)
        target: Vertex = ("gpu", self._index, other)
        direct = self._links.has_edge(source, target)
        route = ((source, target),) if direct else self._over_pcie(source, target)
        return self._row((edge, 1.0) for edge in route), _latency(self._links, route)

    def _rings(self, part: tuple[int, ...]) -> Column | None:
        """What each link bears of one rank's traffic in the best set of rings over direct links; None without any."""
        if self.node.wiring != Wiring.MESH or len(part) > MOST_MEMBERS:
            return None
        pairs = self.node.link_pairs
        rates = tuple(tuple(pairs.get((min(i, j), max(i, j)), 0.0) for j in part) for i in part)
        best = best_rings(rates)
        if not best.bandwidth:
            return None
        flows = {
            (("gpu", self._index, i), ("gpu", self._index, j)): best.flows[a, b] / best.bandwidth
            for a, i in enumerate(part)
            for b, j in enumerate(part)
        }
        return self._row((edge, share) for edge, share in flows.items() if share > 0)

    def _doors(self, gpu: int) -> list[tuple[Route, Route]]:
        """The ways of an accelerator to the leaves and back, over the NICs nearest to it."""
        return [self._to_leaf(("gpu", self._index, gpu), ("nic", self._index, j)) for j in nics_of(self.node, gpu)]

    def _to_leaf(self, gpu: Vertex, nic: Vertex) -> tuple[Route, Route]:
        leaf = next(v for v in self._links[nic] if v[0] == "leaf")
        return (*self._over_pcie(gpu, nic), (nic, leaf)), ((leaf, nic), *self._over_pcie(nic, gpu))

    def _ways(self, routes: dict[int, list[tuple[Route, Route]]]) -> Ways:
        """Every accelerator's ways out and back, all of them used alike."""
        out, back = (
            np.array([self._row((e, 1 / len(both)) for way in both for e in way[side]) for both in routes.values()])
            for side in (0, 1)
        )
        there, here = (
            max((_latency(self._links, way[side]) for both in routes.values() for way in both), default=0.0)
            for side in (0, 1)
        )
        return Ways(out, back, there, here)

    def _row(self, shares: Iterable[tuple[Edge, float]]) -> Column:
        row = np.zeros(len(self.edges))
        for edge, share in shares:
            row[self._place[edge]] += share
        return row

    def _over_pcie(self, source: Vertex, target: Vertex) -> Route:
        """The way over PCIe switches and sockets, and through the receiver's host memory without peer access."""
        stops = [source, target]
        if self.node.wiring == Wiring.HOST:
            to_socket = nx.shortest_path(self._inside, target, ("socket", target[1], 0))
            stops.insert(1, ("memory", *next(v for v in to_socket if v[0] == "socket")[1:]))
        return tuple(edge for leg in pairwise(stops) for edge in pairwise(nx.shortest_path(self._inside, *leg)))


def wires(cluster: Cluster) -> list[Wires]:
    """The links of every pool's nodes."""
    links = graph(cluster)
    return [Wires(links, pool, first) for first, pool in numbered_pools(cluster)]


def _is_of(links: nx.DiGraph, edge: Edge, index: int) -> bool:
    """Whether a link begins or ends at a part of a node."""
    return index in (links.nodes[edge[0]]["node"], links.nodes[edge[1]]["node"])


def _inside(links: nx.DiGraph, index: int) -> nx.DiGraph:
    """One node's PCIe, sockets and memory, without the accelerators' own links."""
    parts = {v for v in links if v[0] in ("gpu", "pcie", "socket", "memory", "nic") and v[1] == index}
    edges = [(a, b) for a in parts for b in links[a] if b in parts and (a[0], b[0]) != ("gpu", "gpu")]
    return nx.DiGraph(edges)


def _latency(links: nx.DiGraph, route: Iterable[Edge]) -> Seconds:
    return sum((links.edges[edge]["latency"] for edge in route), start=0.0)
