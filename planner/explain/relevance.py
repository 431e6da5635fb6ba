"""Which of a term's formulas one plan uses: of four schedules a plan has one, of several collectives it calls some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.cost import activations, collectives, optimizers, pipeline, states
from planner.explain.formula import Formula, formula
from planner.explain.terms import Term
from planner.spec.plan import ContextKind, Plan, Recompute, Schedule, Sharding
from planner.spec.workload import Workload

Condition = Callable[[Plan, Workload], bool]


def _schedule(kind: Schedule) -> Condition:
    return lambda plan, job: bool(plan.schedule == kind)


def _recompute(kind: Recompute) -> Condition:
    return lambda plan, job: bool(plan.recompute == kind)


def _sequence_parallel(plan: Plan, job: Workload) -> bool:
    return bool(plan.sequence_parallel)


def _not_sequence_parallel(plan: Plan, job: Workload) -> bool:
    return not plan.sequence_parallel


def _sharded(plan: Plan, job: Workload) -> bool:
    return bool(plan.sharding != Sharding.NONE)


def _replicated(plan: Plan, job: Workload) -> bool:
    return bool(plan.sharding == Sharding.NONE or plan.dp_replicate > 1)


def _eight_bit(plan: Plan, job: Workload) -> bool:
    return job.optimizer.startswith("adamw-8bit")


CONDITIONS: Mapping[tuple[str, Callable[..., Any]], Condition] = {
    ("tp_exposed", collectives.all_reduce_time): _not_sequence_parallel,
    ("tp_exposed", collectives.all_gather_time): _sequence_parallel,
    ("tp_exposed", collectives.reduce_scatter_time): _sequence_parallel,
    ("cp_exposed", collectives.send_time): lambda plan, job: bool(plan.context_kind == ContextKind.RING),
    ("cp_exposed", collectives.all_to_all_time): lambda plan, job: bool(plan.context_kind == ContextKind.ULYSSES),
    ("pp_exposed", pipeline.gpipe_send_exposed): _schedule(Schedule.GPIPE),
    ("pp_exposed", pipeline.one_f_one_b_send_exposed): _schedule(Schedule.ONE_F_ONE_B),
    ("pp_exposed", pipeline.interleaved_send_exposed): _schedule(Schedule.INTERLEAVED),
    ("pp_exposed", pipeline.zb_h1_send_exposed): _schedule(Schedule.ZB_H1),
    ("dp_exposed", collectives.all_gather_time): _sharded,
    ("dp_exposed", collectives.reduce_scatter_time): _sharded,
    ("dp_exposed", collectives.all_reduce_time): _replicated,
    ("bubble", pipeline.gpipe_time): _schedule(Schedule.GPIPE),
    ("bubble", pipeline.one_f_one_b_time): _schedule(Schedule.ONE_F_ONE_B),
    ("bubble", pipeline.interleaved_time): _schedule(Schedule.INTERLEAVED),
    ("bubble", pipeline.zb_h1_time): _schedule(Schedule.ZB_H1),
    ("weights", states.quantized_bytes): lambda plan, job: job.method == "qlora",
    ("optimizer", optimizers.moment_bytes): lambda plan, job: not _eight_bit(plan, job),
    ("optimizer", optimizers.quantized_moment_bytes): _eight_bit,
    ("activations", activations.layer_input_bytes): _recompute(Recompute.FULL),
    ("activations", activations.selective_bytes): _recompute(Recompute.SELECTIVE),
    ("activations", pipeline.gpipe_in_flight): _schedule(Schedule.GPIPE),
    ("activations", pipeline.one_f_one_b_in_flight): _schedule(Schedule.ONE_F_ONE_B),
    ("activations", pipeline.interleaved_in_flight): _schedule(Schedule.INTERLEAVED),
    ("activations", pipeline.zb_h1_in_flight): _schedule(Schedule.ZB_H1),
}
"""(Term, function) -> where the function is used; what is not listed always is."""


def relevant_formulas(name: str, term: Term, plan: Plan, workload: Workload) -> tuple[Formula, ...]:
    """The formulas that a term of one plan is computed with."""
    if term.given:
        return (term.given,)
    conditions = [(function, CONDITIONS.get((name, function))) for function in term.functions]
    return tuple(formula(function) for function, used in conditions if used is None or used(plan, workload))
