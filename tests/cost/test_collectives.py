"""Collectives: hand figures, published tuning dumps and tables, limits, monotony."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.bandwidths import copying_bandwidth, two_domain_bandwidth
from planner.cost.collectives import (
    all_gather_time,
    all_reduce_bytes,
    all_reduce_time,
    all_to_all_bytes,
    all_to_all_time,
    broadcast_time,
    bus_bandwidth,
    gather_bytes,
    hierarchical_all_reduce_bytes,
    hierarchical_all_reduce_time,
    reduce_scatter_time,
    ring_all_reduce_time,
    send_time,
    tree_all_reduce_time,
)

TABLES = Path(__file__).parents[2] / "../shared/data/collectives.csv"
RING_COLLECTIVES = [all_reduce_time, all_gather_time, reduce_scatter_time]
INFINITY = float("inf")

sizes = st.floats(1.0, 1e12)
groups = st.integers(1, 4096)


def call(collective, size=1e9, group=16, domains=2, bandwidth=100e9, **fit):
    """A ring collective on a fabric like InfiniBand HDR unless told otherwise; an all-reduce alone asks for domains."""
    trees = {"domains": domains} if collective is all_reduce_time else {}
    return collective(size, group, bandwidth=bandwidth, **trees, **({"start": 1e-5, "step_latency": 3e-6} | fit))


def exchange(size=1e9, group=16, local=8, local_bandwidth=350e9, remote_bandwidth=50e9, **fit):
    return all_to_all_time(
        size,
        group,
        local=local,
        local_bandwidth=local_bandwidth,
        remote_bandwidth=remote_bandwidth,
        **({"start": 1e-5, "step_latency": 1e-6} | fit),
    )


@cache
def measured():
    if not TABLES.exists():
        pytest.skip("needs the published nccl-tests tables")
    with TABLES.open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["size_bytes"]) > 0]
    columns = {"size": "size_bytes", "ranks": "n_ranks", "nodes": "n_nodes", "time": "time_us", "bus": "busbw_gbs"}
    table = {name: np.array([float(row[source] or "nan") for row in rows]) for name, source in columns.items()}
    table["time"] *= 1e-6
    table["collective"] = np.array([row["collective"] for row in rows])
    table["id"] = np.array([row["source_id"] for row in rows])
    return table


def median_error(predicted, table, chosen):
    return np.median(np.abs(predicted / table["time"] - 1)[chosen])


def test_all_reduce_moves_twice_the_bytes_of_all_gather():
    assert all_reduce_bytes(3e9, 6) == 2 * gather_bytes(3e9, 6) == 5e9


@pytest.mark.parametrize(
    ("collective", "wire"),
    [
        ("all_reduce", all_reduce_bytes),
        ("all_gather", gather_bytes),
        ("reduce_scatter", gather_bytes),
        ("alltoall", all_to_all_bytes),
    ],
)
def test_wire_bytes_over_time_is_the_bus_bandwidth_that_nccl_tests_prints(collective, wire):
    table = measured()
    # Below 10 GB/s the two printed decimals round too coarsely.
    chosen = (table["collective"] == collective) & (table["bus"] > 10)
    assert chosen.sum() > 30
    bus = wire(table["size"], table["ranks"]) / table["time"] / 1e9
    assert bus[chosen] == pytest.approx(table["bus"][chosen], rel=0.01)


def test_hierarchy_over_two_nodes_sends_half_of_what_a_ring_sends_between_them():
    between = 8 * hierarchical_all_reduce_bytes(1e9, 8, 2).across
    assert between == 1e9
    assert between / all_reduce_bytes(1e9, 16) == pytest.approx(0.53, abs=0.01)


def test_hierarchy_of_one_domain_or_of_one_rank_each_is_a_plain_all_reduce():
    assert hierarchical_all_reduce_bytes(1e9, 8, 1).inside == all_reduce_bytes(1e9, 8)
    assert hierarchical_all_reduce_bytes(1e9, 8, 1).across == 0
    assert hierarchical_all_reduce_bytes(1e9, 1, 8).across == all_reduce_bytes(1e9, 8)
    assert hierarchical_all_reduce_bytes(1e9, 1, 8).inside == 0


@pytest.mark.parametrize(("local", "measured_bandwidth"), [(1, 49e9), (2, 98e9), (4, 196e9), (8, 345e9)])
def test_ring_over_ten_h100_nodes_is_bound_by_nics_then_by_nvlink(local, measured_bandwidth):
    """8 NICs of 400 Gb/s could carry 400 GB/s, but NCCL's ring inside the node carries 360."""
    nominal = bus_bandwidth(group=10 * local, local=local, local_bandwidth=360e9, remote_bandwidth=50e9)
    assert nominal == min(360e9, local * 50e9)
    assert 0.95 < measured_bandwidth / nominal < 1


def test_bus_bandwidth_counts_only_the_links_that_a_group_uses():
    links = {"local_bandwidth": 360e9, "remote_bandwidth": 50e9}
    assert bus_bandwidth(group=8, local=8, **links) == 360e9
    assert bus_bandwidth(group=8, local=1, **links) == 50e9
    assert bus_bandwidth(group=1, local=1, **links) == INFINITY


def test_ring_and_tree_give_the_latency_and_bandwidth_that_nccl_prints_for_four_h100():
    """NCCL 2.18 TUNING dump: all-reduce Simple, ring 28.8 us and 240 GB/s, tree 32.4 us and 165.6; all-gather 480."""
    ring = {"bandwidth": 360e9, "start": 8.4e-6, "step_latency": 3.4e-6}
    assert all_reduce_time(1e-3, 4, domains=1, **ring) == pytest.approx(28.8e-6)
    assert 1e15 / all_reduce_time(1e15, 4, domains=1, **ring) == pytest.approx(240e9)
    assert 1e15 / all_gather_time(1e15, 4, **ring) == pytest.approx(480e9)
    # One node is a chain to NCCL: its latency is not that of a tree over ranks.
    assert 1e15 / tree_all_reduce_time(1e15, 4, bandwidth=0.92 * 360e9, latency=0.0) == pytest.approx(165.6e9)


@pytest.mark.parametrize(
    ("collective", "function", "fit"),
    [
        ("all_reduce", all_reduce_time, {"start": 8e-6, "step_latency": 6.2e-6, "bandwidth": 0.75 * 300e9}),
        ("all_gather", all_gather_time, {"start": 5e-6, "step_latency": 11.8e-6, "bandwidth": 0.71 * 300e9}),
    ],
)
def test_large_collectives_inside_an_a100_node_are_within_ten_percent(collective, function, fit):
    table = measured()
    chosen = (table["collective"] == collective) & (table["size"] >= 2**26) & (table["nodes"] == 1)
    chosen &= np.char.startswith(table["id"], "a100x")
    assert chosen.sum() >= 15
    found = call(function, table["size"], table["ranks"], 1, **fit)
    assert median_error(found, table, chosen) < 0.10


def test_large_all_to_all_inside_an_a100_node_is_within_ten_percent():
    table = measured()
    chosen = (
        (table["collective"] == "alltoall") & (table["size"] >= 2**26) & (table["id"] == "a100x8_nvswitch_alltoall")
    )
    fit = {"start": 11e-6, "step_latency": 22.5e-6, "local_bandwidth": 0.72 * 300e9, "remote_bandwidth": INFINITY}
    assert median_error(all_to_all_time(table["size"], 8, local=8, **fit), table, chosen) < 0.10


def test_all_to_all_over_nodes_is_bound_by_each_ranks_own_nic():
    assert exchange(1.6e9, 16, start=0.0, step_latency=0.0) == pytest.approx(0.8e9 / 50e9)
    assert exchange(1.6e9, 8, start=0.0, step_latency=0.0) == pytest.approx(1.4e9 / 350e9)


def test_hierarchical_all_reduce_beats_a_ring_where_nics_are_slow():
    links = {"local_bandwidth": 350e9, "remote_bandwidth": 2e9, "local_latency": 0.0, "remote_latency": 0.0}
    hierarchical = hierarchical_all_reduce_time(1e9, local=8, domains=4, **links)
    assert hierarchical == pytest.approx(1.75e9 / 350e9 + 0.1875e9 / 2e9)
    assert hierarchical < ring_all_reduce_time(1e9, 32, bandwidth=8 * 2e9, latency=0.0)


def test_tree_latency_grows_with_the_logarithm_and_ring_latency_with_the_group():
    tree = [tree_all_reduce_time(1.0, n, bandwidth=INFINITY, latency=1.0) for n in (2, 4, 64)]
    ring = [ring_all_reduce_time(1.0, n, bandwidth=INFINITY, latency=1.0) for n in (2, 4, 64)]
    assert tree == [2, 4, 12]
    assert ring == [2, 6, 126]


def test_tree_of_two_ranks_moves_what_a_ring_of_two_moves():
    links = {"bandwidth": 25e9, "latency": 5e-6}
    assert tree_all_reduce_time(1e9, 2, **links) == ring_all_reduce_time(1e9, 2, **links)


@pytest.mark.parametrize("collective", RING_COLLECTIVES)
@pytest.mark.parametrize("bandwidth", [1e9, INFINITY])
def test_collective_of_one_rank_costs_nothing(collective, bandwidth):
    low_latency = {"hop_latency": 1e-6, "low_latency_bandwidth": bandwidth}
    assert call(collective, group=1, domains=1, bandwidth=bandwidth) == 0
    assert call(collective, group=1, domains=1, bandwidth=bandwidth, **low_latency) == 0


@pytest.mark.parametrize("bandwidth", [1e9, INFINITY])
def test_other_collectives_of_one_rank_cost_nothing(bandwidth):
    assert exchange(group=1, local=1, local_bandwidth=bandwidth, remote_bandwidth=bandwidth) == 0
    assert ring_all_reduce_time(1e9, 1, bandwidth=bandwidth, latency=1e-6) == 0
    assert tree_all_reduce_time(1e9, 1, bandwidth=bandwidth, latency=1e-6) == 0
    latencies = {"local_latency": 1e-6, "remote_latency": 1e-5}
    links = {"local_bandwidth": bandwidth, "remote_bandwidth": bandwidth}
    assert hierarchical_all_reduce_time(1e9, local=1, domains=1, **links, **latencies) == 0


def test_no_bytes_need_no_call():
    assert [call(collective, size=0.0) for collective in RING_COLLECTIVES] == [0, 0, 0]
    assert exchange(size=0.0) == 0
    assert send_time(0.0, bandwidth=1e9, latency=1e-5) == 0


def test_infinite_bandwidth_leaves_the_latency():
    fit = {"start": 1e-5, "step_latency": 2e-6, "bandwidth": INFINITY}
    assert call(all_reduce_time, group=16, **fit) == pytest.approx(1e-5 + 30 * 2e-6)
    assert call(all_gather_time, group=16, **fit) == pytest.approx(1e-5 + 15 * 2e-6)
    assert exchange(local_bandwidth=INFINITY, remote_bandwidth=INFINITY) == pytest.approx(1e-5 + 15e-6)
    assert send_time(1e6, bandwidth=INFINITY, latency=1e-5) == 1e-5


def test_small_all_reduce_takes_the_low_latency_regime_and_a_large_one_the_ring():
    regimes = {"hop_latency": 5e-6, "low_latency_bandwidth": 4e9, "bandwidth": 390e9, "domains": 8, "group": 64}
    hops = 2 * 3 + 0.3 * 7
    small = call(all_reduce_time, size=1024.0, **regimes)
    assert small == pytest.approx(1e-5 + hops * 5e-6 + all_reduce_bytes(1024.0, 64) / 4e9)
    ring_alone = {"bandwidth": 390e9, "domains": 8, "group": 64}
    assert small < call(all_reduce_time, size=1024.0, **ring_alone)
    assert call(all_reduce_time, size=8e9, **regimes) == call(all_reduce_time, size=8e9, **ring_alone)


def test_one_way_collectives_have_no_tree_so_that_their_latency_grows_with_the_ranks():
    low = {"start": 0.0, "step_latency": 1.0, "hop_latency": 1e-6, "low_latency_bandwidth": INFINITY}
    gathers = [call(all_gather_time, group=n, **low) for n in (8, 64, 512)]
    assert gathers == pytest.approx([7e-6, 63e-6, 511e-6])
    reduces = [call(all_reduce_time, group=n, domains=n // 8, **low) for n in (8, 64, 512)]
    assert reduces[2] < 3 * reduces[1] < 30 * reduces[0]


def test_trees_take_over_where_a_ring_over_many_nodes_waits_for_its_steps():
    ring = {"group": 1024, "domains": 256, "step_latency": 12e-6}
    trees = {"tree_hop_latency": 50e-6, "tree_bandwidth": 40e9}
    assert call(all_reduce_time, size=64e6, **ring, **trees) < 0.3 * call(all_reduce_time, size=64e6, **ring)
    assert call(all_reduce_time, size=64e9, **ring, **trees) == call(all_reduce_time, size=64e9, **ring)


@pytest.mark.parametrize(
    ("nodes_of", "nics", "measured_bandwidth"), [(4, 100e9, 158e9), (8, 400e9, 696e9), (8, 50e9, 78e9)]
)
def test_trees_between_two_nodes_reach_more_than_the_nics_and_at_most_twice(nodes_of, nics, measured_bandwidth):
    """GH200 on Slingshot, B200 on InfiniBand, A100 on EFA: published nccl-tests tables."""
    most = two_domain_bandwidth(group=2 * nodes_of, local=nodes_of, remote_bandwidth=nics / nodes_of)
    assert nics < measured_bandwidth < most < 2 * nics


def test_two_ranks_on_two_nodes_gain_nothing_from_trees():
    assert two_domain_bandwidth(group=2, local=1, remote_bandwidth=25e9) == 25e9


@pytest.mark.parametrize(("ranks", "measured_bandwidth"), [(2, 156e9), (3, 184e9), (5, 203e9), (8, 213e9)])
def test_copying_its_own_part_slows_a_small_group_most(ranks, measured_bandwidth):
    assert copying_bandwidth(220e9, ranks) == pytest.approx(measured_bandwidth, rel=0.15)
    assert copying_bandwidth(20e9, ranks) == pytest.approx(20e9, rel=0.03)


def test_broadcast_sends_the_whole_message_over_every_link_of_its_chain():
    assert broadcast_time(1e9, 8, bandwidth=100e9, start=1e-5, step_latency=1e-6) == pytest.approx(10e-3 + 17e-6)
    assert broadcast_time(1e9, 1, bandwidth=100e9, start=1e-5, step_latency=1e-6) == 0


def test_small_sends_and_exchanges_take_the_protocol_of_little_latency():
    quick = {"hop_latency": 3e-6, "low_latency_bandwidth": 10e9}
    assert send_time(1e3, bandwidth=200e9, latency=50e-6, **quick) == pytest.approx(3.1e-6)
    assert send_time(1e9, bandwidth=200e9, latency=50e-6, **quick) == send_time(1e9, bandwidth=200e9, latency=50e-6)
    shared = {"hop_latency": 1e-6, "low_latency_share": 0.1, "step_latency": 20e-6}
    assert exchange(size=1e3, **shared) < exchange(size=1e3, step_latency=20e-6)
    assert exchange(size=1e9, **shared) == exchange(size=1e9, step_latency=20e-6)


@pytest.mark.parametrize("collective", RING_COLLECTIVES)
@given(size=sizes, group=groups, share=st.sampled_from([0.0, 0.04, 0.4]), factor=st.floats(1.0, 100.0))
def test_collective_never_gets_faster_with_size_or_latency_nor_slower_with_bandwidth(
    collective, size, group, share, factor
):
    fit = {"group": group, "domains": 1, "hop_latency": 1e-6, "low_latency_bandwidth": share * 100e9}
    time = call(collective, size=size, **fit)
    assert call(collective, size=size * factor, **fit) >= time
    assert call(collective, size=size, step_latency=3e-6 * factor, **fit) >= time
    assert call(collective, size=size, bandwidth=100e9 * factor, **fit) <= time


@given(size=sizes, local=st.integers(1, 72), domains=st.integers(1, 64), factor=st.floats(1.0, 100.0))
def test_all_to_all_never_gets_slower_with_bandwidth_nor_faster_with_size(size, local, domains, factor):
    shape = {"group": local * domains, "local": local}
    time = exchange(size=size, **shape)
    assert exchange(size=size * factor, **shape) >= time
    assert exchange(size=size, remote_bandwidth=50e9 * factor, **shape) <= time
    assert exchange(size=size, local_bandwidth=350e9 * factor, **shape) <= time


@given(size=sizes, group=st.integers(1, 4095), factor=st.floats(1.0, 100.0))
def test_larger_groups_take_no_less_at_the_same_bandwidth(size, group, factor):
    links = {"bandwidth": 25e9, "latency": 5e-6}
    for time in (ring_all_reduce_time, tree_all_reduce_time):
        assert time(size, group + 1, **links) >= time(size, group, **links)
        assert time(size * factor, group, **links) >= time(size, group, **links)
    assert call(all_reduce_time, size=size, group=group + 1) >= call(all_reduce_time, size=size, group=group)
