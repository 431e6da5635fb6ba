"""Group links against the plainest possible computation: every stream of every group routed over the whole graph."""

from collections import defaultdict
from itertools import groupby, pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.spec.cluster import Wiring
from planner.spec.plan import ContextKind, Plan, RankOrder
from planner.topology.graph import graph, numbered_pools
from planner.topology.group_links import group_links, load_of_axis
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


def streams(router, axis, layout, kind):
    """(from, to, load) of every group of an axis, a load of 1 being what a rank sends; and the parts in domains."""
    members = groups(layout).tolist()
    split = [[list(part) for _, part in groupby(group, key=router.domain)] for group in members]
    talk = {"ep": all_to_all, "pp": chain}.get(axis, neighbours if axis == "cp" and kind == ContextKind.RING else ring)
    return [stream for parts in split for stream in talk(parts)], split


def expected(router, axis, layout, kind):
    """(local, local bandwidth, remote bandwidth) of an axis."""
    found, split = streams(router, axis, layout, kind)
    size, worst = int(layout.size), min(len(part) for parts in split for part in parts)
    inside, outside = loads(router, found)
    local = worst if axis != "pp" else 1 if outside else min(2, size)
    one_by_one = axis == "pp" or (axis == "cp" and kind == ContextKind.RING)
    here, there = max((load for one, other, load in found if router.domain(one) == router.domain(other)), default=1), 1
    if axis == "ep":
        here, there = (worst - 1) / max(size - 1, 1), (size - worst) / max(size - 1, 1)
    elif not one_by_one:
        there = 1 / worst
    across = there * router.bandwidth(outside) if outside else np.inf
    return local, here * router.bandwidth(inside) if local > 1 else np.inf, across


def loads(router, found):
    """What streams put on every link, inside domains and between them."""
    inside, outside = defaultdict(float), defaultdict(float)
    for one, other, load in found:
        if router.domain(one) == router.domain(other):
            for edge in router.inside(one, other):
                inside[edge] += load
        else:
            for edge, share in router.outside(one, other):
                outside[edge] += load * share
    return inside, outside


def ring(parts):
    open_part = 1.0 if len(parts) > 1 else 0.0
    yield from ((one, other, 1 - open_part / len(part)) for part in parts for one, other, _ in closed([part]))
    if len(parts) > 1:
        rings = min(map(len, parts))
        for here, there in pairwise([*parts, parts[0]]):
            yield from ((here[k], there[k], 1 / rings) for k in range(rings))


def neighbours(parts):
    if len(parts) == 1:
        yield from closed(parts)
    else:
        yield from chain([[rank for part in parts for rank in part]])
        yield parts[-1][-1], parts[0][0], 1.0


def closed(parts):
    for part in parts:
        if len(part) > 1:
            yield from ((one, other, 1.0) for one, other in pairwise([*part, part[0]]))


def chain(parts):
    yield from ((one, other, 1.0) for one, other in pairwise([rank for part in parts for rank in part]))


def all_to_all(parts):
    ranks = [rank for part in parts for rank in part]
    yield from ((one, other, 1 / (len(ranks) - 1)) for one, other in permutations(ranks, 2))


@st.composite
def plans(draw, world):
    left, degrees = world, {}
    for axis in draw(st.permutations(("tp", "pp", "cp", "dp_shard"))):
        degrees[axis] = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        left //= degrees[axis]
    block = degrees["tp"] * degrees["cp"] * degrees["dp_shard"]
    expert_tp = draw(st.sampled_from([d for d in (1, 2, 3, 4) if block % d == 0]))
    ep = draw(st.sampled_from([d for d in range(1, block // expert_tp + 1) if block // expert_tp % d == 0]))
    order, kind = draw(st.sampled_from(list(RankOrder))), draw(st.sampled_from([ContextKind.NONE, ContextKind.RING]))
    return Plan(**degrees, dp_replicate=left, ep=ep, expert_tp=expert_tp, rank_order=order, context_kind=kind)


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
        local, inside, outside = expected(router, axis, placed[axis], plan.context_kind)
        assert group.local == local, axis
        assert group.local_bandwidth == pytest.approx(inside), axis
        assert group.remote_bandwidth == pytest.approx(outside), axis


def of_node(router, edge, node):
    """The link of a node that is like one of the first node's."""
    moved = [v if v[0] in ("leaf", "nvswitch") else (v[0], node, *v[2:]) for v in edge]
    here = next(v for v in moved if v[0] not in ("leaf", "nvswitch"))
    switches = {v[0]: v for v in router.links[here] if v[0] in ("leaf", "nvswitch")}
    return tuple(switches.get(v[0], v) for v in moved)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=8)
def test_every_link_of_every_node_bears_what_the_streams_over_it_bring(routers, kind, data):
    router = routers[kind]
    plan = data.draw(plans(router.cluster.world_size))
    placed, first = layouts(plan), [index for index, _ in numbered_pools(router.cluster)]
    for axis in AXES:
        found, _ = streams(router, axis, placed[axis], plan.context_kind)
        got = load_of_axis(plan, router.cluster, axis)
        for part, want in zip((got.inside, got.across), loads(router, found), strict=True):
            told = {
                of_node(router, edge, first[tier.pool] + place): load
                for tier in part
                if tier.place == "node"
                for place, row in enumerate(tier.load)
                for edge, load in zip(tier.edges, row, strict=True)
                if load
            }
            below = {
                edge: load for edge, load in want.items() if {"pod", "spine", "wan"}.isdisjoint(v[0] for v in edge)
            }
            assert told == pytest.approx(below), axis
        up = sum(load for (a, b), load in loads(router, found)[1].items() if a[0] == "spine" and b[0] == "wan")
        assert sum(tier.load[:, 0].sum() for tier in got.across if tier.place == "site") == pytest.approx(up)
