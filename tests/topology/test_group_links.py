"""What groups get on well-known machines, by hand figures. Bandwidths in GB/s."""

import re
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from planner.errors import SpecError
from planner.spec.cluster import Cluster, Pool, Wan
from planner.spec.plan import ContextKind, Plan, RankOrder
from planner.topology.group_links import group_links

GB = 1e9


def links(cluster, axis, **degrees):
    return getattr(group_links(Plan(**degrees), cluster), axis)


def figures(cluster, axis, **degrees):
    """(local, local GB/s, remote GB/s) of one axis of one plan."""
    group = links(cluster, axis, **degrees)
    return group.local, group.local_bandwidth / GB, group.remote_bandwidth / GB


def test_a_tensor_group_that_fills_the_node_gets_the_switch(dgx):
    assert figures(dgx(4), "tp", tp=8, dp_shard=4) == (8, 450, np.inf)


def test_each_replica_of_a_node_wide_model_owns_one_nic_per_rank(dgx):
    assert figures(dgx(4), "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 50)


def test_a_group_of_all_gpus_leaves_its_nodes_by_all_nics(dgx):
    local, inside, across = figures(dgx(4), "dp_shard", dp_shard=32)
    assert (local, inside, across) == (8, 450, 50)
    assert min(inside, local * across) == 400


def test_a_tensor_group_over_two_nodes_crosses_by_eight_nics(dgx):
    assert figures(dgx(4), "tp", tp=16, dp_shard=2) == (8, 450, 50)


def test_half_a_node_owns_half_of_the_nics(dgx):
    assert figures(dgx(4), "dp_shard", tp=2, dp_shard=16) == (4, 450, 50)


def test_two_gpus_share_each_nic_of_a_p4d(machines):
    p4d = machines.switched(8, 300.0, fabric=machines.fabric(4, 12.5))
    cluster = machines.cluster(p4d, 4)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 6.25)
    assert figures(cluster, "dp_shard", dp_shard=32) == (8, 300, 6.25)


def test_four_nics_per_gpu_add_up(machines):
    p5 = machines.switched(fabric=machines.fabric(32, 12.5))
    assert figures(machines.cluster(p5, 2), "dp_shard", tp=8, dp_shard=2) == (1, np.inf, 50)


def test_eight_gpus_share_one_nic(machines):
    node = machines.switched(fabric=machines.fabric(1, 12.5))
    assert figures(machines.cluster(node, 4), "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 12.5 / 8)


def test_six_nics_for_eight_gpus_are_as_slow_as_the_shared_ones(machines):
    node = machines.switched(fabric=machines.fabric(6, 50.0))
    assert figures(machines.cluster(node, 2), "dp_shard", tp=8, dp_shard=2) == (1, np.inf, 25)


def test_nics_on_the_accelerators_are_not_held_by_the_slots_of_the_host(machines):
    own = replace(machines.switched(fabric=machines.fabric(8, 100.0)), nics_on_accelerators=True)
    assert figures(machines.cluster(own, 2), "dp_shard", tp=8, dp_shard=2) == (1, np.inf, 100)
    several = replace(own, fabric=machines.fabric(24, 12.5))
    assert figures(machines.cluster(several, 2), "dp_shard", tp=8, dp_shard=2)[2] == pytest.approx(37.5)


def test_a_network_faster_than_the_slots_is_held_by_pcie(machines):
    node = replace(machines.switched(fabric=machines.fabric(8, 50.0)), accelerator=machines.accelerator(pcie=31.5))
    assert figures(machines.cluster(node, 2), "dp_shard", tp=8, dp_shard=2) == (1, np.inf, 31.5)


def test_an_oversubscribed_leaf_halves_pairs_that_cross_it_and_spares_rings_under_it(machines):
    cluster = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=4, per_leaf=2)), 4)
    assert figures(cluster, "dp_replicate", tp=8, dp_shard=2, dp_replicate=2) == (1, np.inf, 12.5)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=2, dp_replicate=2) == (1, np.inf, 50)


def test_a_ring_crosses_each_leaf_once_so_half_of_its_nodes_load_the_uplink(machines):
    cluster = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=4, per_leaf=2)), 4)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 25)


def test_an_all_to_all_loads_the_uplink_with_most_of_its_traffic(machines):
    cluster = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=4, per_leaf=2)), 4)
    group = links(cluster, "ep", dp_shard=32, ep=32)
    # Of 24 peers outside the node 16 are under the other leaf; 16 ranks share 2 x 8 x 50 / 4 GB/s of uplinks.
    assert group.remote_bandwidth / GB == pytest.approx(200 / 16 * 24 / 16)
    assert group.local == 8


def test_ulysses_is_an_all_to_all_and_ring_attention_one_ring_of_neighbours(machines):
    cluster = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=4, per_leaf=2)), 4)
    gathered = figures(cluster, "cp", cp=32, context_kind=ContextKind.ALL_GATHER)
    ring = figures(cluster, "cp", cp=32, context_kind=ContextKind.RING)
    ulysses = figures(cluster, "cp", cp=32, context_kind=ContextKind.ULYSSES)
    assert gathered[2] == pytest.approx(25)
    # One rank of a node passes its keys to the next node, whose own pass on inside.
    assert ring[2] == pytest.approx(50)
    assert ulysses[2] == pytest.approx(18.75)


def test_a_rail_optimised_fabric_keeps_rings_off_the_spine_even_when_it_is_thin(machines):
    cluster = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=8)), 4)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 50)
    assert figures(cluster, "ep", dp_shard=32, ep=32) == (8, 450, 50)


def test_a_ring_over_pods_crosses_the_core_once_per_pod_and_pairs_across_it_all_the_time(machines):
    pods = machines.fabric(8, 50.0, per_leaf=2, nodes_per_pod=4, pod_oversubscription=8)
    cluster = machines.cluster(machines.switched(fabric=pods), 8)
    # A pod's 4 x 8 NICs share 4 x 8 x 50 / 8 = 200 GB/s of uplinks.
    assert figures(cluster, "dp_shard", tp=8, dp_shard=4, dp_replicate=2) == (1, np.inf, 50)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=8) == (1, np.inf, 25)
    assert figures(cluster, "dp_replicate", tp=8, dp_shard=4, dp_replicate=2) == (1, np.inf, 6.25)
    assert figures(cluster, "pp", tp=8, pp=2, dp_shard=4) == (1, np.inf, 6.25)


def test_tiers_that_are_both_thin_multiply(machines):
    both = machines.fabric(8, 50.0, over=2, per_leaf=2, nodes_per_pod=4, pod_oversubscription=4)
    cluster = machines.cluster(machines.switched(fabric=both), 8)
    # Rings over all four leaves: every rank leaves its leaf, one in two its pod.
    assert figures(cluster, "dp_replicate", tp=8, dp_shard=2, dp_replicate=4)[2] == pytest.approx(50 / 4)
    assert figures(cluster, "dp_replicate", tp=8, dp_shard=4, dp_replicate=2)[2] == pytest.approx(50 / 8)


def test_rails_end_at_the_border_of_a_pod(machines):
    rails = machines.fabric(8, 50.0, over=2, nodes_per_pod=2)
    cluster = machines.cluster(machines.switched(fabric=rails), 4)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=2, dp_replicate=2) == (1, np.inf, 50)
    assert figures(cluster, "dp_replicate", tp=8, dp_shard=2, dp_replicate=2) == (1, np.inf, 25)


def test_pcie_cards_share_the_link_between_sockets(machines):
    cluster = machines.cluster(machines.pcie())
    assert figures(cluster, "tp", tp=8) == (8, 20, np.inf)
    assert figures(cluster, "tp", tp=4, dp_shard=2) == (4, 31.5, np.inf)
    assert figures(cluster, "dp_shard", tp=4, dp_shard=2) == (2, 5, np.inf)


def test_cards_behind_one_switch_talk_without_its_uplink_and_share_it_beyond(machines):
    cluster = machines.cluster(machines.pcie(gpus_per_pcie_switch=4, sockets=1))
    assert figures(cluster, "tp", tp=4, dp_shard=2) == (4, 31.5, np.inf)
    assert figures(cluster, "dp_shard", tp=4, dp_shard=2) == (2, 31.5 / 4, np.inf)


def test_without_peer_access_cards_behind_one_switch_share_its_uplink(machines):
    cluster = machines.cluster(machines.pcie(peers=False, gpus_per_pcie_switch=4, sockets=1))
    assert figures(cluster, "tp", tp=4, dp_shard=2) == (4, 31.5 / 4, np.inf)


def test_without_peer_access_host_memory_is_written_and_read(machines):
    cluster = machines.cluster(machines.pcie(peers=False, sockets=1, host_memory_bandwidth=160e9))
    assert figures(cluster, "tp", tp=8) == (8, 10, np.inf)


def test_one_ethernet_nic_serves_a_box_of_cards(machines):
    cluster = machines.cluster(machines.pcie(peers=False), 2)
    assert figures(cluster, "dp_shard", dp_shard=16) == (8, 20, 3.125 / 8)


@pytest.mark.parametrize(
    ("degrees", "axis", "bandwidth"),
    [
        ({"tp": 8}, "tp", 150),
        ({"tp": 4, "dp_shard": 2}, "tp", 100),
        ({"tp": 2, "dp_shard": 4}, "tp", 25),
        ({"tp": 4, "dp_shard": 2}, "dp_shard", 25),
        ({"tp": 2, "dp_shard": 4}, "dp_shard", 50),
    ],
)
def test_rings_in_the_hybrid_cube_mesh_depend_on_size_and_stride(machines, degrees, axis, bandwidth):
    group = links(machines.cluster(machines.dgx1()), axis, **degrees)
    assert group.local_bandwidth / GB == pytest.approx(bandwidth)


def test_stages_of_a_dgx1_that_no_nvlink_joins_send_over_pcie(machines):
    """Stages two apart: no NVLink joins 2-4 and 3-5, whose messages leave by the uplink of one PCIe switch."""
    group = links(machines.cluster(machines.dgx1()), "pp", tp=2, pp=4)
    assert group.local_bandwidth / GB == pytest.approx(15.75 / 2)


def test_a_pair_of_mi300x_has_one_link_and_eight_have_seven_each(machines):
    cluster = machines.cluster(machines.mi300x())
    assert figures(cluster, "tp", tp=2, dp_shard=4) == (2, 64, np.inf)
    assert figures(cluster, "tp", tp=8)[1] == pytest.approx(448)
    assert figures(cluster, "ep", dp_shard=8, ep=8)[1] == pytest.approx(448)


def test_four_a100s_meshed_by_threes_of_links_fill_all_of_them(machines):
    mesh = {(i, j): 100.0 for i in range(4) for j in range(i + 1, 4)}
    assert figures(machines.cluster(machines.meshed(mesh)), "tp", tp=4)[1] == pytest.approx(300)


def test_an_nvl72_rack_is_one_domain_of_72(machines):
    rack = machines.cluster(machines.nvl72(), 36)
    assert figures(rack, "tp", tp=72, dp_shard=2) == (72, 900, np.inf)
    assert figures(rack, "dp_shard", tp=72, dp_shard=2) == (1, np.inf, 50)
    assert figures(rack, "ep", dp_shard=144, ep=72) == (72, 900, np.inf)
    assert figures(rack, "dp_shard", dp_shard=144) == (72, 900, 50)
    assert figures(rack, "tp", tp=8, dp_shard=18) == (8, 900, np.inf)


def test_groups_of_sixteen_do_not_fit_racks_of_72_evenly(machines):
    rack = machines.cluster(machines.nvl72(), 36)
    assert figures(rack, "tp", tp=16, dp_shard=9) == (8, 900, 50)


def test_all_groups_that_cross_the_wan_share_it(machines):
    cluster = machines.sites(machines.switched(), (2, 2), wan=1.25)
    assert figures(cluster, "dp_replicate", tp=8, dp_shard=2, dp_replicate=2) == (1, np.inf, 1.25 / 16)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=2, dp_replicate=2) == (1, np.inf, 50)
    assert figures(cluster, "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 1.25 / 8)
    assert figures(cluster, "pp", tp=8, pp=2, dp_shard=2) == (1, np.inf, 1.25 / 16)


def test_an_all_to_all_over_two_sites_sends_most_of_its_traffic_across(machines):
    cluster = machines.sites(machines.switched(), (2, 2), wan=1.25)
    group = links(cluster, "ep", dp_shard=32, ep=32)
    # Of 24 peers outside the node 16 are at the other site; 16 ranks share the line.
    assert group.remote_bandwidth / GB == pytest.approx(1.25 / 16 * 24 / 16)


def test_latencies_add_up_along_a_hop(dgx, machines):
    within, across = links(dgx(4), "tp", tp=8, dp_shard=4), links(dgx(4), "dp_shard", dp_shard=32)
    assert (within.local_latency, within.remote_latency) == (pytest.approx(2e-6), 0)
    assert (across.local_latency, across.remote_latency) == (pytest.approx(2e-6), pytest.approx(5e-6))
    sites = machines.sites(machines.switched(), (1, 1), wan=1.25, latency=0.03)
    assert links(sites, "dp_shard", tp=8, dp_shard=2).remote_latency == pytest.approx(0.03 + 5e-6)
    box = links(machines.cluster(machines.pcie()), "tp", tp=8)
    assert box.local_latency == pytest.approx(3e-6)


def test_groups_that_do_not_fit_the_nodes_are_judged_by_the_worst(dgx):
    """Groups of 5, 3 apart: 0 3 6 | 9 12 and, further on, 14 17 20 23 | 26 leave single members behind."""
    three = Plan(tp=3, dp_shard=5, dp_replicate=8)
    group = group_links(three, dgx(15)).dp_shard
    assert (group.size, group.local) == (5, 1)
    assert group.remote_bandwidth / GB == 50
    assert links(dgx(3), "tp", tp=3, dp_shard=8).local == 1
    assert links(dgx(3), "tp", tp=12, dp_shard=2).local == 4


def test_stages_inside_a_node_are_local_pairs(dgx):
    assert figures(dgx(1), "pp", tp=2, pp=4) == (2, 450, np.inf)
    assert links(dgx(1), "pp", tp=2, pp=4).size == 2


def test_stages_across_nodes_are_remote_pairs(dgx):
    assert figures(dgx(4), "pp", tp=8, pp=4) == (1, np.inf, 50)
    assert figures(dgx(4), "pp", tp=2, pp=16) == (1, np.inf, 50)


def test_one_stage_that_leaves_its_node_has_a_shared_nic_to_itself(machines):
    p4d = machines.cluster(machines.switched(8, 300.0, fabric=machines.fabric(4, 12.5)), 2)
    assert figures(p4d, "pp", tp=8, pp=2) == (1, np.inf, 6.25)
    assert figures(p4d, "pp", pp=16) == (1, np.inf, 12.5)


def test_replicas_kept_close_leave_tensor_groups_to_the_network(dgx):
    near = figures(dgx(4), "tp", tp=4, dp_shard=8, rank_order=RankOrder.DP_TP_CP_PP)
    assert near == (1, np.inf, 50)
    assert figures(dgx(4), "dp_shard", tp=4, dp_shard=8, rank_order=RankOrder.DP_TP_CP_PP) == (8, 450, np.inf)


def test_expert_groups_lie_inside_data_and_tensor_ranks(dgx):
    plan = Plan(tp=2, dp_shard=8, dp_replicate=2, ep=4, expert_tp=2)
    got = group_links(plan, dgx(4))
    assert (got.expert_tp.size, got.expert_tp.local) == (2, 2)
    assert (got.ep.size, got.ep.local) == (4, 4)
    assert (got.expert_shard.size, got.expert_shard.local) == (2, 1)
    assert (got.expert_replicate.size, got.expert_replicate.local) == (2, 1)
    assert got.expert_shard.remote_bandwidth / GB == 50


def test_a_mixed_cluster_is_as_fast_as_the_slowest_pool_a_group_touches(machines):
    slow = machines.switched(8, 300.0, fabric=machines.fabric(4, 12.5))
    mixed = Cluster("mixed", (Pool(machines.switched(), 2), Pool(slow, 2)))
    assert figures(mixed, "tp", tp=8, dp_shard=4) == (8, 300, np.inf)
    assert figures(mixed, "dp_shard", tp=8, dp_shard=4) == (1, np.inf, 6.25)


def test_a_plan_smaller_than_the_cluster_touches_its_first_nodes_only(machines):
    slow = machines.switched(8, 300.0)
    mixed = Cluster("mixed", (Pool(machines.switched(), 2), Pool(slow, 2)))
    assert figures(mixed, "tp", tp=8, dp_shard=2) == (8, 450, np.inf)


def test_groups_of_one_have_no_links_and_cause_no_warnings(dgx):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = group_links(Plan(), dgx(1))
    for field in fields(got):
        group = getattr(got, field.name)
        assert (group.size, group.local) == (1, 1)
        assert np.isinf(group.local_bandwidth)
        assert np.isinf(group.remote_bandwidth)
        assert group.local_latency == group.remote_latency == 0


def test_a_plan_larger_than_the_cluster_is_refused(dgx):
    with pytest.raises(SpecError, match="needs 64 ranks, the cluster has 32"):
        group_links(Plan(tp=8, dp_shard=8), dgx(4))


def test_nodes_without_a_network_are_refused(machines):
    with pytest.raises(SpecError, match="2 nodes, but dgx has no NICs"):
        group_links(Plan(), machines.cluster(machines.switched(fabric=machines.fabric(0, 0.0)), 2))


def test_sites_without_a_wan_are_refused(machines):
    with pytest.raises(SpecError, match="sites a, b are not joined: declare a wan"):
        group_links(Plan(), replace(machines.sites(machines.switched(), (1, 1), wan=1.0), wan=None))


def test_a_changed_wan_is_not_mistaken_for_the_old_one(machines):
    cluster = machines.sites(machines.switched(), (1, 1), wan=1.25)
    faster = replace(cluster, wan=Wan(2.5e9, 0.03))
    slow, fast = (links(each, "dp_shard", tp=8, dp_shard=2).remote_bandwidth for each in (cluster, faster))
    assert fast == 2 * slow


def test_the_example_of_the_documentation_holds():
    text = (Path(__file__).parents[2] / "docs" / "topology.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n(.+?)```", text, re.DOTALL).group(1), {})
