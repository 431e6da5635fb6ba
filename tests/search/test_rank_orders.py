from dataclasses import fields, replace

import numpy as np
import pytest

from planner.search.enumerate import enumerate_plans
from planner.search.grow import cross
from planner.search.rank_orders import first_alike
from planner.spec.cluster import Wiring
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
