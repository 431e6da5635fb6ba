"""Loads of links: nothing is lost, what goes out comes in, and an axis' limit is the most loaded link of all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.spec.plan import Plan
from planner.topology.describe import link_class
from planner.topology.group_links import group_links, load_of_axis, load_of_stages, share_of
from planner.topology.patterns import Pattern
from planner.topology.placement import AXES, groups, layouts
from tests.topology.samples import KINDS, plans


def edges_between(tiers, one, other):
    """The load on links from one kind of vertex to another, summed over all nodes or leaves."""
    return sum(
        tier.load[:, column].sum()
        for tier in tiers
        for column, (a, b) in enumerate(tier.edges)
        if (a[0], b[0]) == (one, other)
    )


def leaving_per_domain(plan, cluster, axis):
    """What the groups of an axis send out of each domain, in units of what a rank sends, by the plain rule."""
    size, pattern, _ = share_of(plan, cluster, axis)
    domain = np.concatenate(
        [
            number * 10**6
            + np.arange(pool.num_nodes * pool.node.gpus_per_node) // (pool.node.gpus_per_node * pool.node.domain_nodes)
            for number, pool in enumerate(cluster.pools)
        ]
    )
    total = 0.0
    for members in groups(layouts(plan)[axis]):
        _, here = np.unique(domain[members], return_counts=True)
        if len(here) > 1:
            total += sum(n * (size - n) / (size - 1) if pattern == Pattern.ALL_TO_ALL else 1.0 for n in here)
    return total


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15)
def test_what_leaves_the_domains_passes_the_nics_and_comes_in_elsewhere(clusters, kind, data):
    cluster = clusters[kind]
    plan = data.draw(plans(cluster.world_size))
    for axis in AXES:
        if axis == "pp":
            continue
        loads = load_of_axis(plan, cluster, axis)
        out, into = (edges_between(loads.together, *ends) for ends in (("nic", "leaf"), ("leaf", "nic")))
        assert out == pytest.approx(leaving_per_domain(plan, cluster, axis)), axis
        assert into == pytest.approx(out), axis


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15)
def test_every_byte_that_a_rank_sends_leaves_its_accelerator_once(clusters, kind, data):
    cluster = clusters[kind]
    plan = data.draw(plans(cluster.world_size))
    for axis in AXES:
        size, _, _ = share_of(plan, cluster, axis)
        tiers = load_of_axis(plan, cluster, axis, np.full(plan.world_size, 7.0)).together
        out = sum(edges_between(tiers, "gpu", other) for other in ("gpu", "nvswitch", "pcie", "socket"))
        senders = plan.world_size * (size > 1) * ((size - 1) / size if axis == "pp" else 1)
        assert out == pytest.approx(7.0 * senders), axis


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15)
def test_the_limit_is_the_most_loaded_link_of_all_though_it_was_found_on_a_smaller_layout(clusters, kind, data):
    cluster = clusters[kind]
    plan = data.draw(plans(cluster.world_size))
    got = group_links(plan, cluster)
    for axis in AXES:
        size, _, share = share_of(plan, cluster, axis)
        if size == 1:
            continue
        loads, group = load_of_axis(plan, cluster, axis), getattr(got, axis)
        for tiers, part, bandwidth in (
            (loads.inside, share.parts.inside, group.local_bandwidth),
            (loads.across, share.parts.across, group.remote_bandwidth),
        ):
            longest = max((tier.load / tier.capacity).max(initial=0.0) for tier in tiers)
            if np.isfinite(bandwidth):
                assert part / bandwidth == pytest.approx(longest), axis


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15)
def test_rings_and_exchanges_load_both_directions_of_a_nic_alike(clusters, kind, data):
    cluster = clusters[kind]
    plan = data.draw(plans(cluster.world_size))
    for axis in AXES:
        _, pattern, _ = share_of(plan, cluster, axis)
        if pattern in (Pattern.RING, Pattern.ALL_TO_ALL):
            for tier in load_of_axis(plan, cluster, axis).across:
                number = {edge: column for column, edge in enumerate(tier.edges)}
                for edge, column in number.items():
                    if link_class((edge[0][0], edge[1][0])) in ("nic", "leaf_uplink", "wan"):
                        assert tier.load[:, column] == pytest.approx(tier.load[:, number[edge[::-1]]]), axis


def test_tensor_groups_inside_nodes_leave_the_network_alone(dgx):
    loads = load_of_axis(Plan(tp=8, dp_shard=4), dgx(4), "tp")
    assert edges_between(loads.together, "gpu", "nvswitch") == 32
    assert sum(tier.load.sum() for tier in loads.across) == 0


def test_stages_send_to_both_sides_and_chunks_pass_from_the_last_stage_to_the_first(dgx):
    plan = Plan(tp=8, pp=4)
    tiers = load_of_stages(plan, dgx(4), each=10.0, ends=3.0).together
    nic = next(tier for tier in tiers if tier.place == "node")
    out = [column for column, (a, b) in enumerate(nic.edges) if (a[0], b[0]) == ("nic", "leaf")]
    assert nic.load[:, out].sum(axis=1).tolist() == [8 * 13, 8 * 20, 8 * 20, 8 * 13]


def test_rings_fill_the_direct_links_of_a_cube_mesh(machines):
    tier = load_of_axis(Plan(tp=8), machines.cluster(machines.dgx1()), "tp").inside[0]
    loads = {edge: load for edge, load in zip(tier.edges, tier.load[0], strict=True) if load}
    assert {(a[0], b[0]) for a, b in loads} == {("gpu", "gpu")}
    assert len(loads) == 32
    capacity = dict(zip(tier.edges, tier.capacity, strict=True))
    # All six links of every V100 carry rings, so all are busy for the same time: 150 GB/s in and out of each.
    assert {round(capacity[edge] / load / 1e9) for edge, load in loads.items()} == {150}
