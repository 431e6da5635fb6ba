"""Plans that execute alike, and which of them stands for all.

Most plans that would execute alike cannot be written twice, because the rules of legality give a field without
effect one value only (one stage has no schedule, one rank no sequence parallelism). What remains is here.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from planner.quantities import Column
from planner.search.layers import balanced_ends, end_layers
from planner.search.problem import Problem
from planner.search.rank_orders import first_alike
from planner.spec.cluster import Cluster
from planner.spec.plan import Plan, Schedule, Sharding


def is_canonical(plans: Plan, cluster: Cluster, problem: Problem) -> Column:
    """The mask of plans that stand for all that execute alike (and deal layers out as the search does)."""
    usual = _dealt_as(plans, *end_layers(problem.num_layers, plans.pp))
    dealt = usual | (
        _dealt_as(plans, *balanced_ends(problem.num_layers, plans.pp, problem.head_layers)) & balances(plans)
    )
    ordered = first_alike(plans, cluster) == plans.rank_order
    return dealt & ordered & replicas_stand_together(plans) & not_gpipe_by_another_name(plans, problem)


def _dealt_as(plans: Plan, first: Column, last: Column) -> Column:
    return np.asarray((plans.first_stage_layers == first) & (plans.last_stage_layers == last))


def balances(plans: Plan) -> Column:
    """Stages of one chunk: only of these the layers are dealt in a second way, with the head counted."""
    return np.asarray((np.asarray(plans.pp) > 1) & (np.asarray(plans.virtual_stages) == 1))


def replicas_stand_together(plans: Plan) -> Column:
    """Unsharded, data-parallel ranks are all replicas: `dp_shard` is no larger than the experts' groups need."""
    inside = plans.ep * plans.expert_tp
    needed = inside // np.gcd(inside, plans.cp * plans.tp)
    return (np.asarray(plans.sharding) != Sharding.NONE) | (plans.dp_shard == needed)


def not_gpipe_by_another_name(plans: Plan, problem: Problem, kinds: Collection[int] = tuple(Schedule)) -> Column:
    """With one micro-batch GPipe is 1F1B, and goes by that name where the stack (and `kinds`) have that for it."""
    one_f_one_b = Schedule.ONE_F_ONE_B in problem.codes("schedules") and Schedule.ONE_F_ONE_B in kinds
    by_name = one_f_one_b and problem.stack.short_pipelines
    return (np.asarray(plans.schedule) != Schedule.GPIPE) | (not by_name) | (plans.num_microbatches > 1)
