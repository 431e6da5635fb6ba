"""Speed, utilisation and price of each plan, from its step time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.cost.flops import attention_flops, flops_utilization, matmul_flops
from planner.estimate.records import StepTime, Throughput
from planner.quantities import Flop
from planner.spec.cluster import Cluster
from planner.spec.model import Layer, Model
from planner.spec.plan import Plan, Recompute
from planner.spec.stack import Stack
from planner.spec.workload import Workload

GRADIENT_PASSES = {"full": 3.0, "lora": 2.0, "qlora": 2.0}
"""Forward and backward over the forward: frozen weights need no gradient of their own."""


def throughput(
    model: Model, plans: Plan, workload: Workload, cluster: Cluster, *, stack: Stack, time: StepTime
) -> Throughput:
    """Tokens, samples, MFU and HFU of each plan."""
    world, step = cluster.world_size, time.total
    tokens_per_s = workload.tokens_per_step / step
    peak = cluster.accelerator.peak_flops(workload.precision)
    model_flops = GRADIENT_PASSES[workload.method] * forward_flops(model, workload)
    again = recomputed_flops(model, plans, workload, stack)
    return Throughput(
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / world,
        samples_per_s=workload.global_batch_size / step,
        mfu=flops_utilization(model_flops, step, peak, world),
        hfu=flops_utilization(model_flops + again, step, peak, world),
    )


def forward_flops(model: Model, workload: Workload) -> Flop:
    """Forward FLOPs of one optimizer step over all ranks: every matrix product and the unmasked half of attention."""
    head = matmul_flops(workload.tokens_per_step, model.vocab_size, model.hidden_size)
    return head + _over_layers(model, lambda layer: _products(model, layer, workload) + _core(model, layer, workload))


def recomputed_flops(model: Model, plans: Plan, workload: Workload, stack: Stack) -> Flop:
    """FLOPs of one step that the plan's recomputation repeats.

    Operator-wise, the output projections and half of the gated up projections; otherwise the attention core.
    """
    whole = _over_layers(model, lambda layer: _products(model, layer, workload) + _core(model, layer, workload))
    operators = _over_layers(model, lambda layer: _every_second(model, layer, workload))
    core = _over_layers(model, lambda layer: _core(model, layer, workload))
    selective = operators if stack.selective_operators > 0 else core
    mode = np.asarray(plans.recompute)
    return np.select([mode == Recompute.FULL, mode == Recompute.SELECTIVE], [whole, selective], 0.0)


def _over_layers(model: Model, flops: Callable[[Layer], Flop]) -> Flop:
    return sum((count * flops(layer) for layer, count in model.layer_kinds), start=0.0)


def _products(model: Model, layer: Layer, workload: Workload) -> Flop:
    """Matrix products of a layer: 2 FLOPs per token and weight that it visits."""
    weights = layer.active_parameters(model.hidden_size) - layer.other_parameters
    return matmul_flops(workload.tokens_per_step, weights, 1)


def _every_second(model: Model, layer: Layer, workload: Workload) -> Flop:
    output = layer.attention.projections(model.hidden_size)[-1]
    gated = model.hidden_size * layer.mlp.intermediate_size if layer.mlp and layer.mlp.gated else 0
    return matmul_flops(workload.tokens_per_step, output[0] * output[1] + gated, 1)


def _core(model: Model, layer: Layer, workload: Workload) -> Flop:
    attention = layer.attention
    return attention_flops(
        workload.global_batch_size,
        workload.seq_len,
        attention.num_attention_heads,
        attention.head_dim,
        attention.value_head_dim,
        causal=float(model.causal),
        window=np.inf if attention.sliding_window is None else attention.sliding_window,
    )
