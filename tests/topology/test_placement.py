from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.spec.plan import AXES_OF_ORDER, Plan, RankOrder
from planner.topology.placement import AXES, group_of, groups, layouts

DENSE = ("tp", "pp", "cp", "dp_shard", "dp_replicate")


def reshaped_arange(plan, spanned):
    """Groups over the `spanned` axes by the classical reshape of arange: rows of ascending ranks."""
    inner_first = [x for axis in AXES_OF_ORDER[plan.rank_order] for x in expanded(axis)]
    outer_first = inner_first[::-1]
    world = np.arange(plan.world_size).reshape([getattr(plan, axis) for axis in outer_first])
    kept = [axis for axis in outer_first if axis not in spanned]
    order = [outer_first.index(axis) for axis in kept + [axis for axis in outer_first if axis in spanned]]
    size = prod(getattr(plan, axis) for axis in spanned)
    return np.sort(world.transpose(order).reshape(-1, size), axis=1)


def expanded(axis):
    return ("dp_shard", "dp_replicate") if axis == "dp" else (axis,)


def as_set(rows):
    return {tuple(row) for row in rows.tolist()}


WORLDS = (1, 2, 6, 8, 12, 16, 24, 30, 32, 36, 48, 64)


@st.composite
def small_plans(draw):
    left = draw(st.sampled_from(WORLDS))
    degrees = {}
    for axis in draw(st.permutations(DENSE))[:-1]:
        degrees[axis] = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        left //= degrees[axis]
    missing = (set(DENSE) - degrees.keys()).pop()
    degrees[missing] = left
    block = degrees["tp"] * degrees["cp"] * degrees["dp_shard"]
    expert_tp = draw(st.sampled_from([d for d in range(1, block + 1) if block % d == 0]))
    rest = block // expert_tp
    ep = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    return Plan(**degrees, ep=ep, expert_tp=expert_tp, rank_order=draw(st.sampled_from(list(RankOrder))))


@pytest.mark.parametrize("order", list(RankOrder))
def test_tensor_groups_are_neighbours_unless_replicas_come_first(order):
    plan = Plan(tp=4, pp=2, cp=2, dp_shard=2, dp_replicate=2, rank_order=order)
    first = group_of(layouts(plan)["tp"], 0).tolist()
    assert first == ([0, 4, 8, 12] if order == RankOrder.DP_TP_CP_PP else [0, 1, 2, 3])


def test_pipeline_stages_are_far_apart_in_the_default_order():
    plan = Plan(tp=8, pp=4, dp_shard=2)
    assert group_of(layouts(plan)["pp"], 5).tolist() == [5, 21, 37, 53]


def test_shards_span_data_and_context_even_where_stages_lie_between():
    plan = Plan(tp=2, cp=2, pp=2, dp_shard=2, rank_order=RankOrder.TP_CP_PP_DP)
    assert group_of(layouts(plan)["dp_shard"], 0).tolist() == [0, 2, 8, 10]


@given(small_plans())
@settings(max_examples=150)
def test_dense_groups_are_those_of_the_reshaped_arange(plan):
    placed = layouts(plan)
    for axis in ("tp", "pp", "cp", "dp_replicate"):
        assert as_set(groups(placed[axis])) == as_set(reshaped_arange(plan, {axis}))
    assert as_set(groups(placed["dp_shard"])) == as_set(reshaped_arange(plan, {"cp", "dp_shard"}))


@given(small_plans())
@settings(max_examples=150)
def test_groups_of_every_axis_partition_the_world(plan):
    for axis, layout in layouts(plan).items():
        ranks = groups(layout)
        assert sorted(ranks.ravel().tolist()) == list(range(plan.world_size)), axis
        assert np.all(np.diff(ranks, axis=1) > 0), axis


@given(small_plans())
@settings(max_examples=100)
def test_expert_axes_divide_the_block_of_data_context_and_tensor_ranks(plan):
    """A rank of the block is told by its places in the three expert groups, and these never leave the block."""
    placed = layouts(plan)
    blocks = as_set(reshaped_arange(plan, {"tp", "cp", "dp_shard"}))
    for block in blocks:
        corner = block[0]
        spread = {corner}
        for axis in ("expert_tp", "ep", "expert_shard"):
            spread = {int(member) for rank in spread for member in group_of(placed[axis], rank)}
        assert spread == set(block)


@pytest.mark.parametrize("order", list(RankOrder))
def test_experts_lie_innermost_in_the_order_of_ranks(order):
    plan = Plan(tp=2, pp=2, cp=2, dp_shard=4, dp_replicate=2, expert_tp=2, ep=4, rank_order=order)
    placed = layouts(plan)
    block = reshaped_arange(plan, {"tp", "cp", "dp_shard"})[0]
    assert group_of(placed["expert_tp"], 0).tolist() == block[:2].tolist()
    assert group_of(placed["ep"], 0).tolist() == block[[0, 2, 4, 6]].tolist()
    assert group_of(placed["expert_shard"], 0).tolist() == block[[0, 8]].tolist()


@given(small_plans())
@settings(max_examples=60)
def test_merging_radices_of_one_keeps_the_groups(plan):
    for layout in layouts(plan).values():
        merged = layout.canonical()
        assert groups(merged).tolist() == groups(layout).tolist()
        assert merged.world_size == plan.world_size


def test_a_column_of_plans_is_laid_out_row_by_row():
    plans = [
        Plan(tp=4, pp=2, cp=2, dp_shard=2, ep=8, rank_order=order, expert_tp=expert_tp)
        for order in RankOrder
        for expert_tp in (1, 2)
    ]
    names = ("tp", "pp", "cp", "dp_shard", "ep", "expert_tp", "rank_order")
    columns = Plan(**{name: np.array([getattr(plan, name) for plan in plans]) for name in names})
    placed = layouts(columns)
    for axis in AXES:
        for row, plan in enumerate(plans):
            assert placed[axis][row].radices == layouts(plan)[axis].radices, (axis, row)


def test_experts_that_do_not_fill_their_ranks_are_refused():
    with pytest.raises(SpecError, match="ep x expert_tp must divide tp x cp x dp_shard"):
        layouts(Plan(tp=4, dp_shard=2, ep=3))
