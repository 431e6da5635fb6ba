from dataclasses import fields, replace

import numpy as np
import pytest

from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate
from planner.answer.link_traffic import link_traffic
from planner.answer.recommend import recommend
from planner.errors import SpecError
from planner.search.enumerate import enumerate_plans
from planner.search.grow import cross
from planner.search.rank_orders import first_alike
from planner.spec.cluster import Fabric, Wiring
from planner.spec.plan import Plan, RankOrder
from planner.spec.workload import Workload
from planner.topology.group_links import group_links


def order_of(cluster, order, **degrees):
    plan = Plan(**degrees, rank_order=order).columns()
    return RankOrder(int(first_alike(plan, cluster)[0]))


def test_orders_are_alike_where_the_axes_that_differ_have_one_rank(nodes):
    pcie = nodes(4, wiring=Wiring.PCIE)
    assert order_of(pcie, RankOrder.TP_PP_CP_DP, tp=8, pp=4) == RankOrder.TP_CP_DP_PP
    assert order_of(pcie, RankOrder.DP_TP_CP_PP, dp_shard=32) == RankOrder.TP_CP_DP_PP
    assert order_of(pcie, RankOrder.DP_TP_CP_PP, tp=8, dp_shard=4) == RankOrder.DP_TP_CP_PP


def test_the_order_inside_a_switch_does_not_matter_and_what_is_inside_does(nodes):
    cluster = nodes(4)
    assert order_of(cluster, RankOrder.DP_TP_CP_PP, tp=2, dp_shard=4, pp=4) == RankOrder.TP_CP_DP_PP
    assert order_of(cluster, RankOrder.TP_CP_PP_DP, tp=2, dp_shard=4, pp=4) == RankOrder.TP_CP_PP_DP
    assert order_of(cluster, RankOrder.DP_TP_CP_PP, tp=2, dp_shard=16) == RankOrder.DP_TP_CP_PP


def test_blocks_that_do_not_fit_the_nodes_are_told_apart_by_their_sequence(nodes):
    assert order_of(nodes(3), RankOrder.DP_TP_CP_PP, tp=3, dp_shard=8) == RankOrder.DP_TP_CP_PP


CLUSTERS = {
    "switches": {"count": 4},
    "three nodes": {"count": 3},
    "PCIe": {"count": 2, "wiring": Wiring.PCIE},
    "racks on one switch": {"count": 8, "gpus": 4, "domain_nodes": 4},
    "two GPUs to a NIC": {"count": 4, "fabric": Fabric("net", "infiniband", 4, 25e9, 4e-6)},
    "thin leaves": {"count": 4, "fabric": Fabric("net", "infiniband", 8, 50e9, 4e-6, 4.0, nodes_per_leaf=2)},
    "thin rails": {"count": 4, "fabric": Fabric("net", "infiniband", 8, 50e9, 4e-6, 4.0)},
}


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("kind", ["llama_8b", "mixtral"])
def test_orders_that_count_as_alike_have_the_same_links_on_every_axis(name, kind, models, nodes, stack):
    cluster, job = nodes(**CLUSTERS[name]), Workload(96, 4096)
    one_of_each = {"recompute": 0, "micro_batch_size": 1, "sequence_parallel": (0, 1), "rank_order": 0}
    meshes = enumerate_plans(getattr(models, kind), cluster, job, stack=stack, fix=one_of_each).rows(slice(None))
    plans = cross(meshes, rank_order=list(RankOrder))
    standing_for = first_alike(plans, cluster)
    moved = standing_for != plans.rank_order
    own = group_links(plans[moved], cluster)
    other = group_links(replace(plans[moved], rank_order=standing_for[moved]), cluster)
    assert moved.sum() > 100
    for axis in fields(own):
        for figure in fields(getattr(own, axis.name)):
            pair = (getattr(getattr(links, axis.name), figure.name) for links in (own, other))
            np.testing.assert_allclose(*pair, rtol=1e-9, err_msg=f"{axis.name} {figure.name}")


def classes_of_links(ranked):
    return {each.name: each for each in link_traffic(ranked).classes if each.by_axis}


def test_replicas_of_adapters_stand_on_both_sides_of_a_slow_network_and_stages_on_one():
    """Gradients of adapters are small, so that what stages send each other is what has to stay off 10 GbE."""
    asked = Choices(method="lora", network="tcp-10", fix="pp=2,micro_batch_size=1")
    best = recommend("llama-3.1-8b", "2xpcie-8x-rtx-4090", asked).best
    assert best.plan.rank_order in (RankOrder.TP_CP_PP_DP, RankOrder.TP_PP_CP_DP)
    assert "rank order tp_" in best.words
    usual = evaluate(best.question, replace(best.plan, rank_order=int(RankOrder.TP_CP_DP_PP)))
    assert usual.step_time > 1.1 * best.step_time
    here, there = classes_of_links(best), classes_of_links(usual)
    assert "pp" not in here["nic"].by_axis
    assert list(there["nic"].by_axis) == ["pp"]
    assert there["nic"].busiest > 10 * here["nic"].busiest
    assert here["host_memory"].by_axis["pp"].busiest > 0


def test_replicas_fill_the_quads_of_a_cube_mesh_where_tensor_pairs_need_not():
    """Four V100s of a quad are all joined and give 100 GB/s; every second of all eight give 50."""
    best = recommend("llama-3.1-8b", "1xdgx-1-v100", Choices(fix="tp=2,pp=1,cp=1")).best
    assert best.plan.rank_order == RankOrder.DP_TP_CP_PP
    usual = evaluate(best.question, replace(best.plan, rank_order=int(RankOrder.TP_CP_DP_PP)))
    assert usual.step_time > 1.03 * best.step_time
    quads, apart = (group_links(each.plan, best.question.cluster).dp_shard for each in (best, usual))
    assert quads.local_bandwidth == pytest.approx(100e9)
    assert apart.local_bandwidth == pytest.approx(50e9)
    here, there = (next(a for a in link_traffic(each).axes if a.axis == "dp_shard") for each in (best, usual))
    assert (here.link, there.link) == ("gpu_gpu", "gpu_gpu")
    assert there.busy == pytest.approx(2 * here.busy)


def test_an_order_that_is_fixed_is_kept_though_another_is_faster():
    asked = Choices(method="lora", network="tcp-10", fix="pp=2,micro_batch_size=1,rank_order=tp_cp_dp_pp")
    assert recommend("llama-3.1-8b", "2xpcie-8x-rtx-4090", asked).best.plan.rank_order == RankOrder.TP_CP_DP_PP


def test_a_trainer_with_one_order_refuses_the_others():
    with pytest.raises(SpecError, match="torchtitan has no rank order tp_cp_pp_dp; possible: tp_cp_dp_pp"):
        recommend("llama-3.1-8b", "2xdgx-h100", Choices(target="torchtitan", fix="rank_order=tp_cp_pp_dp,pp=2"))
