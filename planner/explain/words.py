"""A plan in words: its short name, its sentence, and the family of plans that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from planner.estimate.records import Moment
from planner.quantities import Column
from planner.spec.plan import ContextKind, GradientSync, Offload, Plan, RankOrder, Recompute, Schedule, Sharding


class PlanFamily(IntEnum):
    """Kinds of plans that people choose between, from the simplest to the most involved."""

    DDP = 0
    ZERO = 1
    FSDP = 2
    HSDP = 3
    TENSOR = 4
    CONTEXT = 5
    EXPERT = 6
    PIPELINE = 7


FAMILY_NAMES: Mapping[PlanFamily, str] = {
    PlanFamily.DDP: "pure DDP",
    PlanFamily.ZERO: "ZeRO-1/2",
    PlanFamily.FSDP: "FSDP",
    PlanFamily.HSDP: "HSDP",
    PlanFamily.TENSOR: "TP + data parallel",
    PlanFamily.CONTEXT: "CP + data parallel",
    PlanFamily.EXPERT: "EP + data parallel",
    PlanFamily.PIPELINE: "PP + others",
}

SHARDING_NAMES = {
    Sharding.NONE: "DDP",
    Sharding.ZERO1: "ZeRO-1",
    Sharding.ZERO2: "ZeRO-2",
    Sharding.ZERO3: "FSDP",
    Sharding.ZERO3_KEEP: "FSDP-keep",
}
"""Short names when one group shards over all replicas."""

MOMENT_NAMES = {
    Moment.FORWARD_END: "end of forward",
    Moment.LOSS: "loss",
    Moment.BACKWARD: "backward",
    Moment.REDUCE: "gradient reduction",
    Moment.OPTIMIZER: "optimizer step",
}

RECOMPUTE_NAMES = {Recompute.NONE: "none", Recompute.SELECTIVE: "selective", Recompute.FULL: "full"}
SCHEDULE_NAMES = {
    Schedule.NONE: "-",
    Schedule.GPIPE: "GPipe",
    Schedule.ONE_F_ONE_B: "1F1B",
    Schedule.INTERLEAVED: "interleaved 1F1B",
    Schedule.ZB_H1: "ZB-H1",
}

CONTEXT_NAMES = {
    ContextKind.NONE: "CP",
    ContextKind.RING: "CP",
    ContextKind.ULYSSES: "Ulysses",
    ContextKind.ALL_GATHER: "CP-gather",
}
CONTEXT_WORDS = {ContextKind.RING: "ring", ContextKind.ULYSSES: "Ulysses", ContextKind.ALL_GATHER: "all-gather"}


def family(plan: Plan) -> Column:
    """The `PlanFamily` code of each plan."""
    keeps_whole = np.asarray(plan.sharding) < Sharding.ZERO3
    choices = [
        (np.asarray(plan.pp) > 1, PlanFamily.PIPELINE),
        (np.asarray(plan.tp) > 1, PlanFamily.TENSOR),
        (np.asarray(plan.cp) > 1, PlanFamily.CONTEXT),
        (np.asarray(plan.ep) > 1, PlanFamily.EXPERT),
        (np.asarray(plan.sharding) == Sharding.NONE, PlanFamily.DDP),
        (keeps_whole, PlanFamily.ZERO),
        (np.asarray(plan.dp_replicate) > 1, PlanFamily.HSDP),
    ]
    return np.select([test for test, _ in choices], [int(code) for _, code in choices], int(PlanFamily.FSDP))


def short_name(plan: Plan) -> str:
    """A plan's name for tables: the degrees above one, then how the data-parallel ranks share the state.

    >>> short_name(Plan(tp=8, dp_replicate=2)), short_name(Plan(dp_shard=8, dp_replicate=2, sharding=Sharding.ZERO3))
    ('TP 8 + DDP 2', 'HSDP 2x8')
    >>> short_name(Plan(tp=2, pp=4, virtual_stages=5))
    'TP 2 + PP 4x5'
    """
    virtual = f"x{plan.virtual_stages}" if plan.virtual_stages > 1 else ""
    expert = f"x{plan.expert_tp}" if plan.expert_tp > 1 else ""
    context = CONTEXT_NAMES[ContextKind(int(plan.context_kind))]
    degrees = [("TP", plan.tp, ""), ("PP", plan.pp, virtual), (context, plan.cp, ""), ("EP", plan.ep, expert)]
    parts = [f"{name} {degree}{extra}" for name, degree, extra in degrees if degree > 1 or extra]
    data = _data_name(plan)
    return " + ".join([*parts, data] if data else parts) or "one GPU"


def extras(plan: Plan) -> str:
    """What a table of degrees, sharding, schedule and recomputation does not show of a plan; empty if nothing.

    >>> extras(Plan(tp=8, sequence_parallel=1, rank_order=RankOrder.TP_CP_PP_DP))
    'SP, order tp_cp_pp_dp'
    """
    named = [
        ("SP", plan.sequence_parallel),
        ("async TP", plan.async_tp),
        ("eager", not plan.compiled),
        ("gradients reduced with every micro-batch", plan.gradient_sync == GradientSync.EVERY),
        ("gradients reduced once per step", plan.gradient_sync == GradientSync.ONCE),
        (f"order {_order(plan)}", plan.rank_order != RankOrder.TP_CP_DP_PP),
        ("optimizer offloaded", plan.offload == Offload.OPTIMIZER),
        ("all offloaded", plan.offload == Offload.ALL),
    ]
    return ", ".join(name for name, present in named if present)


def legend(plans: Sequence[Plan]) -> list[str]:
    """What is not plain in the short names and extras of some plans, each with the first plan that bears it.

    >>> legend([Plan(pp=4, virtual_stages=5, dp_shard=8, dp_replicate=2, sharding=Sharding.ZERO3)])
    ['PP 4x5: 4 pipeline stages of 5 chunks', 'HSDP 2x8: 2 replicas, each sharded over 8 GPUs']
    """
    kinds = [
        (lambda plan: plan.virtual_stages > 1, _virtual_words),
        (lambda plan: plan.sharding == Sharding.ZERO3_KEEP, _keep_words),
        (lambda plan: plan.sharding != Sharding.NONE and plan.dp_replicate > 1, _hybrid_words),
        (lambda plan: plan.context_kind == ContextKind.ALL_GATHER, _gather_words),
        (lambda plan: bool(plan.sequence_parallel), lambda plan: "SP: sequence parallelism beside TP"),
        (lambda plan: plan.rank_order != RankOrder.TP_CP_DP_PP, lambda plan: "order: axes of ranks, innermost first"),
    ]
    first = [(next(filter(borne, plans), None), words) for borne, words in kinds]
    return [words(plan) for plan, words in first if plan is not None]


def _virtual_words(plan: Plan) -> str:
    return f"PP {plan.pp}x{plan.virtual_stages}: {plan.pp} pipeline stages of {plan.virtual_stages} chunks"


def _keep_words(plan: Plan) -> str:
    return "-keep: parameters stay gathered from forward to backward (reshard_after_forward off)"


def _gather_words(plan: Plan) -> str:
    return f"CP-gather {plan.cp}: attention on the keys and values gathered from {plan.cp} GPUs"


def _hybrid_words(plan: Plan) -> str:
    return f"{_data_name(plan)}: {plan.dp_replicate} replicas, each sharded over {plan.shard_group} GPUs"


def _order(plan: Plan) -> str:
    return RankOrder(int(plan.rank_order)).name.lower()


def _data_name(plan: Plan) -> str:
    name = SHARDING_NAMES[Sharding(int(plan.sharding))]
    if plan.sharding == Sharding.NONE:
        return f"{name} {plan.dp}" if plan.dp > 1 else ""
    if plan.dp_replicate == 1:
        return f"{name} {plan.shard_group}" if plan.shard_group > 1 else ""
    hybrid = name.replace("FSDP", "HSDP")
    return f"{hybrid} {plan.dp_replicate}x{plan.shard_group}"


def plan_words(plan: Plan) -> str:
    """A plan as a phrase: what is divided over how many ranks, the batch, and what is recomputed or offloaded.

    >>> plan_words(Plan(dp_shard=16, sharding=Sharding.ZERO3, micro_batch_size=2, num_microbatches=4))
    'FSDP over 16 GPUs, micro-batch 2 x 4 accumulated, no recomputation'
    """
    parts = [*_parallel_words(plan), _batch_words(plan), _recompute_words(plan)]
    if plan.offload != Offload.NONE:
        parts.append(
            "optimizer offloaded" if plan.offload == Offload.OPTIMIZER else "parameters and optimizer offloaded"
        )
    if plan.rank_order != RankOrder.TP_CP_DP_PP:
        parts.append(f"rank order {_order(plan)} (innermost first)")
    return ", ".join(parts)


def _parallel_words(plan: Plan) -> list[str]:
    words = []
    if plan.tp > 1:
        extra = " with sequence parallelism" if plan.sequence_parallel else ""
        words.append(f"tensor parallelism {plan.tp}{extra}")
    if plan.pp > 1:
        chunks = f", {plan.virtual_stages} chunks a stage" if plan.virtual_stages > 1 else ""
        words.append(f"{plan.pp} pipeline stages ({SCHEDULE_NAMES[Schedule(int(plan.schedule))]}{chunks})")
    if plan.cp > 1:
        words.append(f"context parallelism {plan.cp} ({CONTEXT_WORDS[ContextKind(int(plan.context_kind))]})")
    if plan.ep > 1 or plan.expert_tp > 1:
        words.append(f"experts over {plan.ep} ranks" + (f" x TP {plan.expert_tp}" if plan.expert_tp > 1 else ""))
    return [*words, *_data_words(plan)] or ["one GPU"]


def _data_words(plan: Plan) -> list[str]:
    if plan.sharding == Sharding.NONE:
        return [f"DDP over {plan.dp} GPUs" if _only_data(plan) else f"{plan.dp} DDP replicas"] if plan.dp > 1 else []
    if plan.dp * plan.cp == 1:
        return []
    name = SHARDING_NAMES[Sharding(int(plan.sharding))]
    kept = " (parameters kept gathered until backward)" if plan.sharding == Sharding.ZERO3_KEEP else ""
    base = name.removesuffix("-keep")
    if plan.dp_replicate == 1:
        return [f"{base} over {plan.shard_group} GPUs{kept}"]
    hybrid = base.replace("FSDP", "HSDP")
    return [f"{hybrid}: {plan.dp_replicate} replicas, each sharded over {plan.shard_group} GPUs{kept}"]


def _only_data(plan: Plan) -> bool:
    return bool(plan.tp * plan.pp * plan.cp == 1)


def _batch_words(plan: Plan) -> str:
    how = "in flight" if plan.pp > 1 else "accumulated"
    return f"micro-batch {plan.micro_batch_size}" + (
        f" x {plan.num_microbatches} {how}" if plan.num_microbatches > 1 else ""
    )


def _recompute_words(plan: Plan) -> str:
    name = RECOMPUTE_NAMES[Recompute(int(plan.recompute))]
    return "no recomputation" if name == "none" else f"{name} recomputation"
