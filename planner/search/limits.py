"""What a stack can express: each a mask over plan columns, for what its limits (planner/spec/stack.py) say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.quantities import Column
from planner.search.conditions import Mask, all_hold
from planner.search.problem import Problem
from planner.spec.plan import Int, Offload, Plan, RankOrder, Schedule, Sharding
from planner.spec.stack import GRADIENT_SYNCS


def _among(codes: Int, problem: Problem, limit: str) -> Column:
    return np.isin(codes, problem.codes(limit))


def _one(degree: Int) -> Column:
    return np.asarray(degree) == 1


def tensor_parallel(plans: Plan, problem: Problem) -> Mask:
    """Whether layers can be divided."""
    return ("tp" in problem.stack.axes) | _one(plans.tp)


def kv_heads_on_one_rank_each(plans: Plan, problem: Problem) -> Mask:
    """Whether key-value heads can be copied to several ranks."""
    return problem.stack.copied_kv_heads | all_hold(kv % plans.tp == 0 for kv in problem.kv_heads)


def tied_pipeline(plans: Plan, problem: Problem) -> Mask:
    """Whether first and last stage can share a matrix."""
    return (problem.stack.tied_pipelines or not problem.tied) | _one(plans.pp)


def experts_by_ep_or_tp(plans: Plan, problem: Problem) -> Mask:
    """Whether experts are divided under TP however one likes, or exactly where they are not dealt out.

    Source: torchtitan 0.3, whose experts are cut by TP without expert parallelism and whole with it.
    """
    divided_alone = (np.asarray(plans.ep) == 1) == (np.asarray(plans.expert_tp) == plans.tp)
    return problem.stack.free_experts | (not problem.has_experts) | _one(plans.tp) | divided_alone


def pipeline(plans: Plan, problem: Problem) -> Mask:
    """Whether there is any schedule."""
    return (len(problem.codes("schedules")) > 1) | _one(plans.pp)


def context_parallel(plans: Plan, problem: Problem) -> Mask:
    """Whether there is any form of it."""
    return (len(problem.codes("context_kinds")) > 1) | _one(plans.cp)


def expert_parallel(plans: Plan, problem: Problem) -> Mask:
    """Whether experts can be dealt out."""
    return ("ep" in problem.stack.axes) | _one(plans.ep)


def divided_experts(plans: Plan, problem: Problem) -> Mask:
    """Whether one expert can be divided."""
    return ("expert_tp" in problem.stack.axes) | _one(plans.expert_tp)


def adapters_along(axis: str) -> Callable[[Plan, Problem], Mask]:
    """The condition that a model with adapters can be divided along an axis, if it has adapters."""

    def holds(plans: Plan, problem: Problem) -> Mask:
        allowed = problem.method == "full" or axis in problem.stack.adapter_axes
        return allowed | _one(getattr(plans, axis))

    return holds


def context_kind(plans: Plan, problem: Problem) -> Mask:
    """Forms of context parallelism."""
    return _among(plans.context_kind, problem, "context_kinds")


def sharding(plans: Plan, problem: Problem) -> Mask:
    """What can be divided among data-parallel ranks."""
    return _among(plans.sharding, problem, "shardings")


def sharding_with_replicas(plans: Plan, problem: Problem) -> Mask:
    """Which shardings leave replicas. Unsharded ranks are replicas of any number."""
    return _one(plans.dp_replicate) | _among(plans.sharding, problem, "replicated_shardings")


def sharding_in_pipeline(plans: Plan, problem: Problem) -> Mask:
    """Which shardings go with stages."""
    return _one(plans.pp) | _among(plans.sharding, problem, "pipeline_shardings")


def sharding_with_tensor_parallel(plans: Plan, problem: Problem) -> Mask:
    """Which shardings go with divided layers; a single data-parallel rank shards nothing."""
    alone = np.asarray(plans.dp * plans.cp) == 1
    return _one(plans.tp) | alone | _among(plans.sharding, problem, "tensor_shardings")


def unsharded_group(plans: Plan, problem: Problem) -> Mask:
    """Whether ranks that could shard may leave it."""
    sharded = np.asarray(plans.sharding) != Sharding.NONE
    return problem.stack.unsharded_groups | sharded | _one(plans.shard_group)


def sequence_parallel(plans: Plan, problem: Problem) -> Mask:
    """Whether norms and residuals can be divided."""
    return problem.stack.sequence_parallel | (np.asarray(plans.sequence_parallel) == 0)


def unscattered_experts(plans: Plan, problem: Problem) -> Mask:
    """Whether experts that TP divides like all the rest do without sequence parallelism."""
    scattered = (np.asarray(plans.sequence_parallel) == 1) | _one(plans.tp)
    return problem.stack.unscattered_experts | (not problem.has_experts) | scattered


def async_tp(plans: Plan, problem: Problem) -> Mask:
    """Whether transfers of tensor parallelism can run beside its products."""
    return problem.stack.async_tp | (np.asarray(plans.async_tp) == 0)


def offload(plans: Plan, problem: Problem) -> Mask:
    """What can rest in host memory."""
    return _among(plans.offload, problem, "offloads")


def offload_of_sharding(plans: Plan, problem: Problem) -> Mask:
    """Which shardings' states can rest there."""
    return (np.asarray(plans.offload) == Offload.NONE) | _among(plans.sharding, problem, "offload_shardings")


def gradient_sync(plans: Plan, problem: Problem) -> Mask:
    """How often gradients can be reduced."""
    return _among(plans.gradient_sync, problem, "gradient_syncs")


def gradient_sync_in_pipeline(plans: Plan, problem: Problem) -> Mask:
    """The same, where there are stages."""
    return _one(plans.pp) | _among(plans.gradient_sync, problem, "pipeline_syncs")


def gradient_sync_of_replicas(plans: Plan, problem: Problem) -> Mask:
    """The same of plain replicas, where it makes a difference."""
    if set(problem.stack.replica_syncs) == set(GRADIENT_SYNCS):
        return True
    one_reduction = (plans.dp * plans.cp == 1) | _one(plans.num_microbatches)
    other = (np.asarray(plans.sharding) != Sharding.NONE) | (np.asarray(plans.pp) > 1)
    return one_reduction | other | _among(plans.gradient_sync, problem, "replica_syncs")


def recompute(plans: Plan, problem: Problem) -> Mask:
    """What can be computed again."""
    return _among(plans.recompute, problem, "recomputations")


def schedule(plans: Plan, problem: Problem) -> Mask:
    """Orders of a pipeline."""
    return _among(plans.schedule, problem, "schedules")


def short_pipeline(plans: Plan, problem: Problem) -> Mask:
    """Whether 1F1B can run out of micro-batches before all stages have one.

    Source: torch 2.13 torch/distributed/pipelining/schedules.py, Schedule1F1B, which refuses it.
    """
    other = np.asarray(plans.schedule) != Schedule.ONE_F_ONE_B
    return problem.stack.short_pipelines | other | (plans.num_microbatches >= plans.pp)


def gathered_chunks(plans: Plan, problem: Problem) -> Mask:
    """How many chunks of a rank stay gathered through a step.

    Source: torch 2.13 torch/distributed/pipelining/schedules.py, _add_unshard_reshard: three stages of a rank at a
    time; with a fourth they are gathered again with every round of micro-batches.
    """
    most = problem.stack.gathered_chunks
    kept = np.asarray(plans.sharding) == Sharding.ZERO3_KEEP
    interleaved = np.asarray(plans.schedule) == Schedule.INTERLEAVED
    return True if most == 0 else ~(kept & interleaved) | (plans.virtual_stages <= most)


def rank_order(plans: Plan, problem: Problem) -> Mask:
    """In which order ranks are dealt to the axes."""
    return _among(plans.rank_order, problem, "rank_orders")


def order_of_experts(plans: Plan, problem: Problem) -> Mask:
    """Whether stages may stand inside replicas where experts' groups are not as large as the others'.

    Source: Megatron-Core 0.20 megatron/core/parallel_state.py, which asserts equal pipeline groups of both.
    """
    if problem.stack.free_orders:
        return True
    outermost = np.asarray(plans.rank_order) == RankOrder.TP_CP_DP_PP
    experts = plans.ep * plans.expert_tp if problem.has_experts else plans.tp
    return outermost | _one(plans.pp) | (plans.tp * plans.cp == experts)


def stage_split(plans: Plan, problem: Problem) -> Mask:
    """Stages of equal length, or equal but for the ends, or of any length."""
    splits, layers, pp = problem.stack.stage_splits, problem.num_layers, np.asarray(plans.pp)
    if "uneven" in splits:
        return True
    first, last = (np.where(end == 0, layers // pp, end) for end in (plans.first_stage_layers, plans.last_stage_layers))
    between = np.maximum(pp - 2, 1)
    each, left_over = np.divmod(layers - first - last, between)
    inner = np.where(pp > 2, each, last)
    ends = (pp == 1) | (left_over == 0)
    return (
        ends if "ends" in splits else ends & ((pp == 1) | ((inner == first) & (first == last) & (pp * last == layers)))
    )
