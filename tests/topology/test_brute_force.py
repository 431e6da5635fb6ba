"""Group links against the plainest possible computation: every stream of every group routed over the whole graph."""

from collections import defaultdict
from itertools import groupby, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.spec.cluster import Wiring
from planner.spec.plan import Plan, RankOrder
from planner.topology.graph import graph
from planner.topology.group_links import group_links
from planner.topology.placement import AXES, groups, layouts


class Router:
    """All nodes of a small cluster drawn, and routes found by shortest path."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.links = graph(cluster, range(cluster.num_nodes))
        self.ranks = [("gpu", *seat) for seat in self._seats()]
        own_links = [(a, b) for a, b in self.links.edges if "nvswitch" in (a[0], b[0])]
        self.own_links, self.others = self.links.edge_subgraph(own_links).copy(), self.links.copy()
        self.others.remove_edges_from(own_links)
        self.cache = {}

    def _seats(self):
        first = 0
        for pool in self.cluster.pools:
            for node in range(pool.num_nodes):
                for slot in range(pool.node.gpus_per_node):
                    yield first + node, slot
            first += pool.num_nodes

    def domain(self, rank):
        gpu = self.ranks[rank]
        return next((v for v in self.links[gpu] if v[0] == "nvswitch"), gpu[1])

    def path(self, one, other, *, own_links=False):
        key = (one, other, own_links)
        if key not in self.cache:
            self.cache[key] = nx.shortest_path(self.own_links if own_links else self.others, one, other)
        return self.cache[key]

    def inside(self, one, other):
        a, b = self.ranks[one], self.ranks[other]
        wiring = self.cluster.node.wiring
        if wiring == Wiring.HOST:
            memory = min((v for v in self.links if v[:2] == ("memory", b[1])), key=lambda v: len(self.path(v, b)))
            return [*pairwise(self.path(a, memory)), *pairwise(self.path(memory, b))]
        return list(pairwise(self.path(a, b, own_links=wiring == Wiring.SWITCH)))

    def nics(self, gpu):
        """All NICs at the least distance."""
        distance = {v: len(self.path(gpu, v)) for v in self.links if v[:2] == ("nic", gpu[1])}
        return sorted(v for v in distance if distance[v] == min(distance.values()))

    def outside(self, one, other):
        """(edge, share) over the nearest NICs of both ends, pair by pair."""
        a, b = self.ranks[one], self.ranks[other]
        pairs = list(zip(self.nics(a), self.nics(b), strict=True))
        for out, into in pairs:
            yield from ((edge, 1 / len(pairs)) for edge in self._staged(a, out))
            yield from ((edge, 1 / len(pairs)) for edge in pairwise(self.path(out, into)))
            yield from ((edge, 1 / len(pairs)) for edge in self._staged(into, b))

    def _staged(self, a, b):
        if self.cluster.node.wiring != Wiring.HOST:
            return pairwise(self.path(a, b))
        memory = min((v for v in self.links if v[:2] == ("memory", b[1])), key=lambda v: len(self.path(v, b)))
        return [*pairwise(self.path(a, memory)), *pairwise(self.path(memory, b))]

    def bandwidth(self, loads):
        return min((self.links.edges[e]["capacity"] / load for e, load in loads.items()), default=np.inf)


def expected(router, axis, layout):
    """(local, local bandwidth, remote bandwidth) of an axis."""
    members = groups(layout).tolist()
    split = [[list(part) for _, part in groupby(group, key=router.domain)] for group in members]
    worst = min(len(part) for parts in split for part in parts)
    inside, outside = defaultdict(float), defaultdict(float)
    for parts in split:
        streams = {"ep": all_to_all, "pp": chain}.get(axis, ring)(parts, sum(map(len, parts)) - worst)
        for one, other, load in streams:
            if router.domain(one) == router.domain(other):
                for edge in router.inside(one, other):
                    inside[edge] += load
            else:
                for edge, share in router.outside(one, other):
                    outside[edge] += load * share
    local = worst if axis != "pp" else 1 if outside else min(2, layout.size)
    return local, router.bandwidth(inside) if local > 1 else np.inf, router.bandwidth(outside)


def ring(parts, _):
    for part in parts:
        if len(part) > 1:
            yield from ((one, other, 1.0) for one, other in pairwise([*part, part[0]]))
    if len(parts) > 1:
        rings = min(map(len, parts))
        for here, there in pairwise([*parts, parts[0]]):
            yield from ((here[k], there[k], 1.0) for k in range(rings))


def chain(parts, _):
    yield from ((one, other, 1.0) for one, other in pairwise([rank for part in parts for rank in part]))


def all_to_all(parts, most_peers):
    for part in parts:
        yield from ((one, other, 1 / (len(part) - 1)) for one, other in permutations(part, 2))
    for here, there in permutations(parts, 2):
        yield from ((one, other, 1 / most_peers) for one in here for other in there)


@st.composite
def plans(draw, world):
    left, degrees = world, {}
    for axis in draw(st.permutations(("tp", "pp", "cp", "dp_shard"))):
        degrees[axis] = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        left //= degrees[axis]
    block = degrees["tp"] * degrees["cp"] * degrees["dp_shard"]
    expert_tp = draw(st.sampled_from([d for d in (1, 2, 3, 4) if block % d == 0]))
    ep = draw(st.sampled_from([d for d in range(1, block // expert_tp + 1) if block // expert_tp % d == 0]))
    order = draw(st.sampled_from(list(RankOrder)))
    return Plan(**degrees, dp_replicate=left, ep=ep, expert_tp=expert_tp, rank_order=order)


@pytest.fixture(scope="session")
def routers(machines):
    """Small clusters of every kind, drawn in full."""
    fabric = machines.fabric
    clusters = {
        "dgx": machines.cluster(machines.switched(gpus_per_pcie_switch=1), 3),
        "six GPUs": machines.cluster(
            machines.switched(6, fabric=fabric(3, 25.0, per_leaf=2, over=2), gpus_per_pcie_switch=2), 4
        ),
        "p4d": machines.cluster(machines.switched(fabric=fabric(4, 12.5), gpus_per_pcie_switch=2), 3),
        "many NICs": machines.cluster(
            machines.switched(4, fabric=fabric(8, 12.5, per_leaf=2, over=3), gpus_per_pcie_switch=1), 4
        ),
        "leaf of three": machines.cluster(
            machines.switched(4, fabric=fabric(4, 50.0, per_leaf=3, over=8), gpus_per_pcie_switch=1), 4
        ),
        "racks": machines.cluster(
            machines.switched(2, fabric=fabric(2, 50.0, per_leaf=1, over=2), gpus_per_pcie_switch=1, domain_nodes=3), 6
        ),
        "pods": machines.cluster(
            machines.switched(
                2,
                fabric=fabric(2, 50.0, per_leaf=2, over=2, nodes_per_pod=4, pod_oversubscription=3),
                gpus_per_pcie_switch=1,
            ),
            8,
        ),
        "pods of rails": machines.cluster(
            machines.switched(
                4, fabric=fabric(4, 50.0, over=1.5, nodes_per_pod=2, pod_oversubscription=3), gpus_per_pcie_switch=1
            ),
            5,
        ),
        "pcie": machines.cluster(machines.pcie(gpus_per_pcie_switch=2, fabric=fabric(2, 12.5)), 2),
        "pcie, one NIC": machines.cluster(machines.pcie(gpus=4), 4),
        "host": machines.cluster(machines.pcie(peers=False, host_memory_bandwidth=60e9), 2),
        "sites": machines.sites(
            machines.switched(4, fabric=fabric(4, 50.0, per_leaf=1), gpus_per_pcie_switch=1), (2, 1, 1), wan=5.0
        ),
    }
    return {name: Router(cluster) for name, cluster in clusters.items()}


KINDS = (
    "dgx", "six GPUs", "p4d", "many NICs", "leaf of three", "racks", "pods", "pods of rails", "pcie", "pcie, one NIC",
    "host", "sites",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15)
def test_links_are_those_of_routing_every_stream_over_the_whole_graph(routers, kind, data):
    router = routers[kind]
    plan = data.draw(plans(router.cluster.world_size))
    got, placed = group_links(plan, router.cluster), layouts(plan)
    for axis in AXES:
        group = getattr(got, axis)
        local, inside, outside = expected(router, axis, placed[axis])
        assert group.local == local, axis
        assert group.local_bandwidth == pytest.approx(inside), axis
        assert group.remote_bandwidth == pytest.approx(outside), axis
