"""Every term of step time and memory: its name for people, and the cost functions that it is computed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.cost import activations, bandwidths, collectives, flops, kernels, optimizers, overlap, pipeline, states
from planner.explain.formula import Formula, formula


@dataclass(frozen=True)
class Term:
    """A field of StepTime or MemoryUse. `kind` groups terms by the resource that they keep busy.

    `functions` are the formulas in the order of their use, the one that gives the term's value first; a term that is a
    figure of the stack or profile, not a formula, has `given` instead.
    """

    title: str
    kind: str
    functions: tuple[Callable[..., Any], ...] = ()
    given: Formula | None = None

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """Equation and source of each function."""
        return (self.given,) if self.given else tuple(formula(function) for function in self.functions)


_SHARDED = (
    collectives.all_gather_time,
    collectives.reduce_scatter_time,
    collectives.all_reduce_time,
    collectives.bus_bandwidth,
    bandwidths.copying_bandwidth,
    bandwidths.two_domain_bandwidth,
)

TIME_TERMS: Mapping[str, Term] = {
    "matmul": Term(
        "matrix products",
        "compute",
        (kernels.matmul_time, kernels.grouped_matmul_time, kernels.tile_efficiency, flops.matmul_flops),
    ),
    "attention": Term(
        "attention",
        "compute",
        (
            kernels.attention_time,
            kernels.unfused_attention_time,
            kernels.aligned_share,
            flops.attention_flops,
            flops.visible_context,
            kernels.attention_traffic,
        ),
    ),
    "elementwise": Term(
        "norms, activations, residuals",
        "memory bandwidth",
        (
            kernels.memory_bound_time,
            kernels.norm_traffic,
            kernels.residual_traffic,
            kernels.rotary_traffic,
            kernels.activation_traffic,
            kernels.routing_traffic,
            kernels.dropout_traffic,
            kernels.adapter_traffic,
            states.quantized_bytes,
        ),
    ),
    "head": Term("output projection and loss", "compute", (kernels.matmul_time, kernels.loss_traffic)),
    "recompute": Term("recomputation in backward", "compute", (kernels.matmul_time, kernels.memory_bound_time)),
    "tp_exposed": Term(
        "tensor-parallel communication",
        "communication",
        (
            overlap.exposed_time,
            collectives.all_reduce_time,
            collectives.all_gather_time,
            collectives.reduce_scatter_time,
            collectives.bus_bandwidth,
            bandwidths.copying_bandwidth,
        ),
    ),
    "cp_exposed": Term(
        "context-parallel communication",
        "communication",
        (
            overlap.exposed_time,
            collectives.send_time,
            collectives.all_to_all_time,
            collectives.all_gather_time,
            collectives.reduce_scatter_time,
        ),
    ),
    "ep_exposed": Term(
        "expert-parallel communication", "communication", (overlap.exposed_time, collectives.all_to_all_time)
    ),
    "pp_exposed": Term(
        "sends between pipeline stages",
        "communication",
        (
            pipeline.gpipe_send_exposed,
            pipeline.one_f_one_b_send_exposed,
            pipeline.interleaved_send_exposed,
            pipeline.send_bound_exposed,
            pipeline.zb_h1_send_exposed,
            collectives.send_time,
        ),
    ),
    "dp_exposed": Term("data-parallel communication", "communication", (overlap.exposed_time, *_SHARDED)),
    "bubble": Term(
        "pipeline bubble",
        "waiting",
        (
            pipeline.gpipe_time,
            pipeline.one_f_one_b_time,
            pipeline.interleaved_time,
            pipeline.zb_h1_time,
        ),
    ),
    "host": Term("kernel launches", "host", (kernels.device_or_host_time, kernels.host_time)),
    "optimizer": Term(
        "optimizer step", "memory bandwidth", (optimizers.optimizer_step_time, optimizers.relative_traffic)
    ),
    "offload": Term("offloaded state", "host link", (optimizers.offload_time, optimizers.host_step_time)),
    "fixed": Term(
        "clipping, logging, synchronisation",
        "host",
        given=Formula(
            name="planner.spec.profile.Profile.fixed_time",
            summary="What every step takes whatever the plan.",
            equation="t = fixed_time",
            source="the efficiency profile",
        ),
    ),
}
"""Field of StepTime -> its term."""

MEMORY_TERMS: Mapping[str, Term] = {
    "weights": Term("weights", "state", (states.held_bytes, states.quantized_bytes, states.adapter_parameters)),
    "gradients": Term("gradients", "state", (states.held_bytes,)),
    "optimizer": Term("optimizer states", "state", (states.held_bytes, optimizers.state_bytes)),
    "activations": Term(
        "activations in flight",
        "activations",
        (
            activations.norm_bytes,
            activations.attention_bytes,
            activations.gathered_key_bytes,
            activations.row_sum_bytes,
            activations.score_bytes,
            activations.gathered_input_bytes,
            activations.mlp_bytes,
            activations.mlp_gradient_bytes,
            activations.routed_bytes,
            activations.eager_bytes,
            activations.dropout_bytes,
            activations.layer_input_bytes,
            activations.selective_bytes,
            pipeline.gpipe_in_flight,
            pipeline.one_f_one_b_in_flight,
            pipeline.interleaved_in_flight,
            pipeline.zb_h1_in_flight,
        ),
    ),
    "logits": Term("logits and their gradient", "activations", (activations.logit_bytes,)),
    "gather_buffers": Term("gathered parameters", "buffers", (states.gathered_bytes, states.reduction_bytes)),
    "communication_buffers": Term(
        "communication buffers",
        "buffers",
        given=Formula(
            name="planner.spec.stack.Stack.communication_buffers",
            summary="Buffers of the collectives library, and two tensors per pipeline neighbour.",
            equation="M = communication_buffers + 4 T h e",
            source="the software stack's figure",
        ),
    ),
    "context": Term(
        "device context",
        "overhead",
        given=Formula(
            name="planner.spec.stack.Stack.context",
            summary="Device context, libraries and workspaces outside the allocator.",
            equation="M = context",
            source="the software stack's figure",
        ),
    ),
    "reserve": Term(
        "allocator slack",
        "overhead",
        given=Formula(
            name="planner.spec.stack.Stack.allocator_slack",
            summary="Reserved by the framework's allocator but not handed out.",
            equation="M = (allocator_slack - 1) allocated",
            source="the software stack's figure",
        ),
    ),
}
"""Item of MemoryUse -> its term."""
