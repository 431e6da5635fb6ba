"""Which of a term's formulas one plan uses: of four schedules a plan has one, of several collectives it calls some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.cost import activations, bandwidths, collectives, kernels, pipeline, states
from planner.explain.formula import Formula, formula
from planner.explain.terms import Term
from planner.spec.model import Model
from planner.spec.plan import ContextKind, Plan, Recompute, Schedule, Sharding
from planner.spec.workload import Workload

Condition = Callable[[Plan, Workload, Model], bool]


def _schedule(kind: Schedule) -> Condition:
    return lambda plan, job, model: bool(plan.schedule == kind)


def _context(kind: ContextKind) -> Condition:
    return lambda plan, job, model: bool(plan.context_kind == kind)


def _recompute(kind: Recompute) -> Condition:
    return lambda plan, job, model: bool(plan.recompute == kind)


def _sequence_parallel(plan: Plan, job: Workload, model: Model) -> bool:
    return bool(plan.sequence_parallel)


def _not_sequence_parallel(plan: Plan, job: Workload, model: Model) -> bool:
    return not plan.sequence_parallel


def _sharded(plan: Plan, job: Workload, model: Model) -> bool:
    return bool(plan.sharding != Sharding.NONE)


def _replicated(plan: Plan, job: Workload, model: Model) -> bool:
    return bool(plan.sharding == Sharding.NONE or plan.dp_replicate > 1)


def _has_experts(plan: Plan, job: Workload, model: Model) -> bool:
    return model.has_experts


def _fused_attention(plan: Plan, job: Workload, model: Model) -> bool:
    return job.attention != "math"


def _unfused_attention(plan: Plan, job: Workload, model: Model) -> bool:
    return job.attention == "math"


def _adapters(plan: Plan, job: Workload, model: Model) -> bool:
    return job.method != "full"


def _quantized(plan: Plan, job: Workload, model: Model) -> bool:
    return job.method == "qlora"


CONDITIONS: Mapping[tuple[str, Callable[..., Any]], Condition] = {
    ("tp_exposed", collectives.all_reduce_time): _not_sequence_parallel,
    ("tp_exposed", collectives.all_gather_time): _sequence_parallel,
    ("tp_exposed", collectives.reduce_scatter_time): _sequence_parallel,
    ("tp_exposed", bandwidths.copying_bandwidth): _sequence_parallel,
    ("cp_exposed", collectives.send_time): _context(ContextKind.RING),
    ("cp_exposed", collectives.all_to_all_time): _context(ContextKind.ULYSSES),
    ("cp_exposed", collectives.all_gather_time): _context(ContextKind.ALL_GATHER),
    ("cp_exposed", collectives.reduce_scatter_time): _context(ContextKind.ALL_GATHER),
    ("pp_exposed", pipeline.gpipe_send_exposed): _schedule(Schedule.GPIPE),
    ("pp_exposed", pipeline.one_f_one_b_send_exposed): _schedule(Schedule.ONE_F_ONE_B),
    ("pp_exposed", pipeline.interleaved_send_exposed): _schedule(Schedule.INTERLEAVED),
    ("pp_exposed", pipeline.zb_h1_send_exposed): _schedule(Schedule.ZB_H1),
    ("dp_exposed", collectives.all_gather_time): _sharded,
    ("dp_exposed", collectives.reduce_scatter_time): _sharded,
    ("dp_exposed", collectives.all_reduce_time): _replicated,
    ("dp_exposed", bandwidths.copying_bandwidth): _sharded,
    ("dp_exposed", bandwidths.two_domain_bandwidth): _replicated,
    ("bubble", pipeline.gpipe_time): _schedule(Schedule.GPIPE),
    ("bubble", pipeline.one_f_one_b_time): _schedule(Schedule.ONE_F_ONE_B),
    ("bubble", pipeline.interleaved_time): _schedule(Schedule.INTERLEAVED),
    ("bubble", pipeline.zb_h1_time): _schedule(Schedule.ZB_H1),
    ("matmul", kernels.grouped_matmul_time): _has_experts,
    ("attention", kernels.attention_time): _fused_attention,
    ("attention", kernels.attention_traffic): _fused_attention,
    ("attention", kernels.unfused_attention_time): _unfused_attention,
    ("attention", kernels.aligned_share): _unfused_attention,
    ("elementwise", kernels.routing_traffic): _has_experts,
    ("elementwise", kernels.dropout_traffic): lambda plan, job, model: job.dropout,
    ("elementwise", kernels.adapter_traffic): _adapters,
    ("elementwise", states.quantized_bytes): _quantized,
    ("weights", states.quantized_bytes): _quantized,
    ("weights", states.adapter_parameters): _adapters,
    ("activations", activations.gathered_key_bytes): _context(ContextKind.ALL_GATHER),
    ("activations", activations.row_sum_bytes): _fused_attention,
    ("activations", activations.score_bytes): _unfused_attention,
    ("activations", activations.routed_bytes): _has_experts,
    ("activations", activations.eager_bytes): lambda plan, job, model: not plan.compiled,
    ("activations", activations.dropout_bytes): lambda plan, job, model: job.dropout,
    ("activations", activations.layer_input_bytes): _recompute(Recompute.FULL),
    ("activations", activations.selective_bytes): _recompute(Recompute.SELECTIVE),
    ("activations", pipeline.gpipe_in_flight): _schedule(Schedule.GPIPE),
    ("activations", pipeline.one_f_one_b_in_flight): _schedule(Schedule.ONE_F_ONE_B),
    ("activations", pipeline.interleaved_in_flight): _schedule(Schedule.INTERLEAVED),
    ("activations", pipeline.zb_h1_in_flight): _schedule(Schedule.ZB_H1),
}
"""(Term, function) -> where the function is used; what is not listed always is."""


def relevant_formulas(name: str, term: Term, plan: Plan, workload: Workload, model: Model) -> tuple[Formula, ...]:
    """The formulas that a term of one plan is computed with."""
    if term.given:
        return (term.given,)
    conditions = [(function, CONDITIONS.get((name, function))) for function in term.functions]
    return tuple(formula(function) for function, used in conditions if used is None or used(plan, workload, model))
