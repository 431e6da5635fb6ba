from dataclasses import fields, replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.spec.plan import Plan
from planner.topology.domains import fitting, halves_of, shares
from planner.topology.group_links import group_links, network_of, placed_links
from planner.topology.patterns import Pattern
from planner.topology.placement import Layout
from planner.topology.seats import folded
from tests.topology.samples import DEGREES, KINDS, plans


def bandwidths(links):
    for field in fields(links):
        group = getattr(links, field.name)
        yield f"{field.name}, inside", group.local_bandwidth
        yield f"{field.name}, across", group.remote_bandwidth


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=8)
def test_a_column_holds_what_its_rows_get_alone(clusters, kind, data):
    cluster = clusters[kind]
    rows = [data.draw(plans(cluster.world_size)) for _ in range(4)]
    names = (*DEGREES, "ep", "rank_order", "context_kind")
    several = Plan(**{name: np.array([getattr(row, name) for row in rows]) for name in names})
    column, placed = group_links(several, cluster), placed_links(several, cluster)
    assert len(column) == len(rows)
    for i, row in enumerate(rows):
        alone = group_links(row, cluster)
        assert alone.is_scalar
        assert column[i].as_dict() == placed[i].as_dict() == alone.as_dict()


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=6)
def test_twice_the_bandwidth_everywhere_is_twice_what_groups_get(clusters, machines, kind, data):
    cluster = clusters[kind]
    plan = data.draw(plans(cluster.world_size))
    slow, fast = group_links(plan, cluster), group_links(plan, machines.scaled(cluster, 2.0))
    for (name, before), (_, after) in zip(bandwidths(slow), bandwidths(fast), strict=True):
        assert after == pytest.approx(2 * before), name


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=10)
def test_more_bandwidth_anywhere_never_lowers_what_a_group_gets(clusters, kind, data):
    cluster = clusters[kind]
    plan = data.draw(plans(cluster.world_size))
    pool = data.draw(st.integers(0, len(cluster.pools) - 1))
    old = cluster.pools[pool].node
    factor = data.draw(st.floats(1.0, 10.0))
    pair = data.draw(st.sampled_from(sorted(old.link_pairs))) if old.link_pairs else None
    wider = [
        replace(old, link_bandwidth=old.link_bandwidth * factor),
        replace(old, socket_bandwidth=old.socket_bandwidth * factor),
        replace(old, host_memory_bandwidth=old.host_memory_bandwidth * factor),
        replace(old, accelerator=replace(old.accelerator, pcie_bandwidth=old.accelerator.pcie_bandwidth * factor)),
        replace(old, fabric=replace(old.fabric, nic_bandwidth=old.fabric.nic_bandwidth * factor)),
        replace(
            old, fabric=replace(old.fabric, pod_oversubscription=max(1.0, old.fabric.pod_oversubscription / factor))
        ),
        replace(old, fabric=replace(old.fabric, oversubscription=max(1.0, old.fabric.oversubscription / factor))),
        replace(
            old, link_pairs={each: rate * (factor if each == pair else 1) for each, rate in old.link_pairs.items()}
        ),
    ]
    node = data.draw(st.sampled_from(wider))
    pools = tuple(replace(each, node=node) if i == pool else each for i, each in enumerate(cluster.pools))
    before, after = group_links(plan, cluster), group_links(plan, replace(cluster, pools=pools))
    for (name, less), (_, more) in zip(bandwidths(before), bandwidths(after), strict=True):
        assert more >= less * (1 - 1e-9), name


MOST_RANKS = 3000
PATTERNS = st.sampled_from(list(Pattern))


@st.composite
def radices(draw):
    """Stride, near, gap, far and repeats of up to 3,000 ranks."""
    found = [1] * 5
    for place in draw(st.permutations(range(5))):
        found[place] = draw(st.integers(1, min(60, MOST_RANKS // prod(found))))
    return found


@pytest.mark.parametrize("kind", ["dgx", "thin spine", "pods", "cube mesh", "racks", "host"])
@given(radices(), st.sampled_from(list(Pattern)))
@settings(max_examples=60)
def test_a_folded_layout_gets_what_the_whole_one_does(machines, kind, whole, pattern):
    fabric = machines.fabric
    node = {
        "dgx": machines.switched(),
        "thin spine": machines.switched(6, fabric=fabric(3, 12.5, over=3, per_leaf=2)),
        "pods": machines.switched(
            4, fabric=fabric(4, 50.0, over=2, per_leaf=2, nodes_per_pod=6, pod_oversubscription=3)
        ),
        "cube mesh": machines.dgx1(),
        "racks": machines.switched(2, fabric=fabric(2, 50.0, over=4, per_leaf=2), domain_nodes=3),
        "host": machines.pcie(peers=False, gpus=4, sockets=1, host_memory_bandwidth=10e9),
    }[kind]
    network = network_of(machines.cluster(node, MOST_RANKS // node.gpus_per_node + 1))
    small = folded(Layout(*whole), network.period, pattern)
    expected, got = network.share(tuple(whole), pattern), network.share(tuple(map(int, small.radices)), pattern)
    assert got.local == expected.local
    assert got.local_limit.bandwidth == pytest.approx(expected.local_limit.bandwidth)
    assert got.remote_limit.bandwidth == pytest.approx(expected.remote_limit.bandwidth)
    assert got.remote_latency == pytest.approx(expected.remote_latency)


@pytest.mark.parametrize("kind", ["leaves", "pods", "pods of rails", "shared rails", "rails", "racks", "cube mesh"])
@given(st.data())
@settings(max_examples=80)
def test_two_halves_of_a_thin_network_give_what_the_whole_gives(machines, kind, data):
    fabric = machines.fabric
    node = {
        "leaves": machines.switched(4, fabric=fabric(3, 50.0, over=3, per_leaf=2)),
        "pods": machines.switched(4, fabric=fabric(4, 50.0, per_leaf=2, nodes_per_pod=6, pod_oversubscription=7)),
        "pods of rails": machines.switched(
            4, fabric=fabric(8, 50.0, over=2, nodes_per_pod=3, pod_oversubscription=1.5)
        ),
        "shared rails": machines.switched(4, fabric=fabric(2, 50.0, over=4, nodes_per_pod=2)),
        "rails": machines.switched(4, fabric=fabric(4, 50.0, over=4)),
        "racks": machines.switched(
            2, fabric=fabric(2, 50.0, per_leaf=3, over=2, nodes_per_pod=6, pod_oversubscription=2), domain_nodes=3
        ),
        "cube mesh": replace(machines.dgx1(), fabric=fabric(4, 12.5, per_leaf=3, over=4)),
    }[kind]
    ranks = node.gpus_per_node * node.domain_nodes
    cluster = machines.cluster(node, 3**4 * node.domain_nodes)
    # Radices whose product is a multiple of a domain, which most of them fill.
    factors = [ranks // 2, 2, *data.draw(st.lists(st.sampled_from([2, 3]), max_size=4))]
    whole = [1] * 5
    for factor in factors:
        whole[data.draw(st.integers(0, 4))] *= factor
    layout, kinds = Layout(*(np.array([radix]) for radix in whole)).canonical(), np.array([data.draw(PATTERNS)])
    halves = halves_of(cluster)
    if fitting(layout, halves.ranks, kinds).all():
        (got,), (expected,) = halves.shares(layout, kinds), shares(network_of(cluster), layout, kinds)
        assert (got.local, got.parts) == (expected.local, expected.parts)
        for one, other in ((got.local_limit, expected.local_limit), (got.remote_limit, expected.remote_limit)):
            assert one.bandwidth == pytest.approx(other.bandwidth)
            assert one.load == pytest.approx(other.load)
            assert one.ends == other.ends
        assert got.remote_latency == pytest.approx(expected.remote_latency)
