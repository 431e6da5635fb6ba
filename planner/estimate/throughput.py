"""Speed, utilisation and price of each plan, from its step time."""

from __future__ import annotations

import numpy as np

from planner.cost.flops import attention_flops, flops_utilization, matmul_flops
from planner.estimate.records import StepTime, Throughput
from planner.quantities import Flop
from planner.spec.cluster import Cluster
from planner.spec.model import Layer, Model
from planner.spec.plan import Plan, Recompute
from planner.spec.workload import Workload

GRADIENT_PASSES = {"full": 3.0, "lora": 2.0, "qlora": 2.0}
"""Forward and backward over the forward: frozen weights need no gradient of their own."""


def throughput(model: Model, plans: Plan, workload: Workload, cluster: Cluster, time: StepTime) -> Throughput:
    """Tokens, samples, MFU and HFU of each plan."""
    world, step = cluster.world_size, time.total
    tokens_per_s = workload.tokens_per_step / step
    peak = cluster.accelerator.peak_flops(workload.precision)
    forward = forward_flops(model, workload)
    passes = GRADIENT_PASSES[workload.method]
    again = np.where(np.asarray(plans.recompute) == Recompute.FULL, 1.0, 0.0) * _layers_flops(model, workload)
    return Throughput(
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / world,
        samples_per_s=workload.global_batch_size / step,
        mfu=flops_utilization(passes * forward, step, peak, world),
        hfu=flops_utilization(passes * forward + again, step, peak, world),
    )


def forward_flops(model: Model, workload: Workload) -> Flop:
    """Forward FLOPs of one optimizer step over all ranks: every matrix product and the unmasked half of attention."""
    tokens = workload.tokens_per_step
    return _layers_flops(model, workload) + matmul_flops(tokens, model.vocab_size, model.hidden_size)


def _layers_flops(model: Model, workload: Workload) -> Flop:
    return sum((count * _layer_flops(model, layer, workload) for layer, count in model.layer_kinds), start=0.0)


def _layer_flops(model: Model, layer: Layer, workload: Workload) -> Flop:
    matrices = layer.active_parameters(model.hidden_size) - layer.other_parameters
    attention = layer.attention
    core = attention_flops(
        workload.global_batch_size,
        workload.seq_len,
        attention.num_attention_heads,
        attention.head_dim,
        attention.value_head_dim,
        causal=float(model.causal),
        window=np.inf if attention.sliding_window is None else attention.sliding_window,
    )
    return matmul_flops(workload.tokens_per_step, matrices, 1) + core
