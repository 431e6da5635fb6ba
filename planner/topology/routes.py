"""Routes through a node, read off the drawn graph: between accelerators, and from each to the network and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations
from math import inf
from typing import NamedTuple

import networkx as nx
import numpy as np

from planner.quantities import BytesPerSecond, Column, Seconds
from planner.spec.cluster import Cluster, Pool, Wiring
from planner.topology.graph import Vertex, graph, nics_of, numbered_pools
from planner.topology.patterns import Pattern
from planner.topology.rings import MOST_MEMBERS, ring_bandwidth

Edge = tuple[Vertex, Vertex]


class Limit(NamedTuple):
    """The link that holds a group back: what a rank gets, how many ranks' traffic shares the link, and what it is."""

    bandwidth: BytesPerSecond = inf
    load: float = 0.0
    capacity: BytesPerSecond = inf
    kind: str = ""
    ends: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, links: nx.DiGraph, edge: Edge, load: float) -> Limit:
        """A link of the graph under so many ranks' traffic."""
        data = links.edges[edge]
        ends = (str(edge[0][0]), str(edge[1][0]))
        return cls(data["capacity"] / load, load, data["capacity"], data["kind"], ends)


@dataclass(frozen=True, eq=False)
class Doors:
    """How the ranks of one node reach the network.

    `leaving` and `entering` say which share of a rank's outgoing and incoming remote traffic each edge bears: arrays
    of (accelerators, edges). The latencies are from the accelerator to its leaf switch.
    """

    edges: tuple[Edge, ...]
    capacity: Column
    leaving: Column
    entering: Column
    latency_out: Seconds
    latency_in: Seconds


class Routes:
    """Routes of a cluster, found once each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.links = graph(cluster)
        self.pools: list[Pool] = list(cluster.pools)
        self.first_node = [first for first, _ in numbered_pools(cluster)]
        self._insides = [_inside(self.links, index) for index in self.first_node]
        self.doors = [self._doors(pool) for pool in range(len(self.pools))]
        self.local = lru_cache(maxsize=None)(self._local)
        self._between = lru_cache(maxsize=None)(self._find)

    def switched(self, pool: int) -> tuple[Limit, Seconds]:
        """What a rank gets from a switch that serves every accelerator at full rate, and the latency of a hop.

        Whatever the pattern, a rank's port bears its own traffic only.
        """
        gpu: Vertex = ("gpu", self.first_node[pool], 0)
        switch = next(v for v in self.links[gpu] if v[0] == "nvswitch")
        return Limit.of(self.links, (gpu, switch), 1.0), _latency(self.links, ((gpu, switch), (switch, gpu)))

    def _local(self, pool: int, pattern: Pattern, parts: tuple[tuple[int, ...], ...]) -> tuple[Limit, Seconds]:
        """What a rank gets inside a node whose accelerators are divided into groups, and the latency of a hop.

        `parts` are the accelerators of each group (two or more each), all of them talking at once. On a mesh a ring
        of ranks is spread over the best rings that its direct links allow; if there is none, and in every other case,
        each message takes its route and shares the links on it.
        """
        rings = {part: self._ring(pool, part) for part in parts} if pattern == Pattern.RING else {}
        limits = [limit for limit in rings.values() if limit]
        routed = [part for part in parts if not rings.get(part)]
        loads: dict[Edge, float] = defaultdict(float)
        latency = self.pools[pool].node.link_latency if limits else 0.0
        for one, other, share in (message for part in routed for message in _messages(part, pattern)):
            route = self._between(pool, one, other)
            latency = max(latency, _latency(self.links, route))
            for edge in route:
                loads[edge] += share
        limits += [Limit.of(self.links, edge, load) for edge, load in loads.items()]
        return min(limits, default=Limit()), latency

    def _ring(self, pool: int, part: tuple[int, ...]) -> Limit | None:
        """The best set of rings over direct links, None where there is none."""
        node = self.pools[pool].node
        if node.wiring != Wiring.MESH or len(part) > MOST_MEMBERS:
            return None
        pairs = node.link_pairs
        rates = tuple(tuple(pairs.get((min(i, j), max(i, j)), 0.0) for j in part) for i in part)
        bandwidth = ring_bandwidth(rates)
        return Limit(bandwidth, 1.0, bandwidth, node.link, ("gpu", "gpu")) if bandwidth else None

    def _find(self, pool: int, one: int, other: int) -> tuple[Edge, ...]:
        """From one accelerator of a node to another: by their own links if these join them, else over PCIe."""
        index = self.first_node[pool]
        source: Vertex = ("gpu", index, one)
        target: Vertex = ("gpu", index, other)
        if self.links.has_edge(source, target):
            return ((source, target),)
        return self._over_pcie(pool, source, target)

    def _over_pcie(self, pool: int, source: Vertex, target: Vertex) -> tuple[Edge, ...]:
        """The way over PCIe switches and sockets, and through the receiver's host memory without peer access."""
        inside, stops = self._insides[pool], [source, target]
        if self.pools[pool].node.wiring == Wiring.HOST:
            socket = next(v for v in nx.shortest_path(inside, target, ("socket", target[1], 0)) if v[0] == "socket")
            stops.insert(1, ("memory", *socket[1:]))
        hops = [edge for leg in pairwise(stops) for edge in pairwise(nx.shortest_path(inside, *leg))]
        return tuple(hops)

    def _doors(self, pool: int) -> Doors:
        """Ways of every accelerator of the pool's first node to the leaves and back, over the NICs nearest to it."""
        node, index = self.pools[pool].node, self.first_node[pool]
        out: list[dict[Edge, float]] = []
        into: list[dict[Edge, float]] = []
        latencies = [(0.0, 0.0)]
        for i in range(node.gpus_per_node):
            ways = [self._to_leaf(pool, ("gpu", index, i), ("nic", index, j)) for j in nics_of(node, i)]
            out.append(defaultdict(float))
            into.append(defaultdict(float))
            for there, back in ways:
                for edges, shares in ((there, out[-1]), (back, into[-1])):
                    for edge in edges:
                        shares[edge] += 1 / len(ways)
                latencies.append((_latency(self.links, there), _latency(self.links, back)))
        edges = tuple(dict.fromkeys(edge for shares in out + into for edge in shares))
        return Doors(
            edges=edges,
            capacity=np.array([self.links.edges[edge]["capacity"] for edge in edges]),
            leaving=np.array([[shares[edge] for edge in edges] for shares in out]),
            entering=np.array([[shares[edge] for edge in edges] for shares in into]),
            latency_out=max(there for there, _ in latencies),
            latency_in=max(back for _, back in latencies),
        )

    def _to_leaf(self, pool: int, gpu: Vertex, nic: Vertex) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
        leaf = next(v for v in self.links[nic] if v[0] == "leaf")
        return (*self._over_pcie(pool, gpu, nic), (nic, leaf)), ((leaf, nic), *self._over_pcie(pool, nic, gpu))


def _inside(links: nx.DiGraph, index: int) -> nx.DiGraph:
    """One node's PCIe, sockets and memory, without the accelerators' own links."""
    parts = {v for v in links if v[0] in ("gpu", "pcie", "socket", "memory", "nic") and v[1] == index}
    edges = [(a, b) for a in parts for b in links[a] if b in parts and (a[0], b[0]) != ("gpu", "gpu")]
    return nx.DiGraph(edges)


def _messages(part: tuple[int, ...], pattern: Pattern) -> Iterator[tuple[int, int, float]]:
    """Who sends which share of a rank's traffic to whom inside a node."""
    if pattern == Pattern.ALL_TO_ALL:
        return ((one, other, 1 / (len(part) - 1)) for one, other in permutations(part, 2))
    stops: Iterable[int] = part if pattern == Pattern.CHAIN else (*part, part[0])
    return ((one, other, 1.0) for one, other in pairwise(stops))


def _latency(links: nx.DiGraph, route: Iterable[Edge]) -> Seconds:
    return sum((links.edges[edge]["latency"] for edge in route), start=0.0)
