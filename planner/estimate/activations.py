"""Activations of one micro-batch on one rank, for each kind of layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import activations as cost
from planner.estimate.factor import LAYER, distinct_plans
from planner.estimate.shapes import Shapes, attention_widths, head_split, shapes
from planner.quantities import Bytes, Column
from planner.spec.model import Layer, Model
from planner.spec.plan import ContextKind, Plan, Recompute, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload

FULL_PRECISION = ("fp32", "tf32")


@dataclass(frozen=True)
class LayerActivations:
    """Bytes of shape (kinds, rows): what a layer keeps for backward, and all that it has while that runs.

    `whole` counts the gradients of its own tensors too; `input` is the part that full recomputation keeps.
    """

    kept: Bytes
    whole: Bytes
    input: Bytes


def element_bytes(workload: Workload) -> Bytes:
    """Size of one activation."""
    return 4.0 if workload.precision in FULL_PRECISION else 2.0


def layer_activations(model: Model, plans: Plan, workload: Workload, stack: Stack) -> LayerActivations:
    """Activations of every kind of layer under plan columns."""
    combinations = distinct_plans(plans, LAYER, upcasts(plans, workload, stack))
    some = combinations.of(plans)
    kinds = [_activations(model, layer, some, workload, stack) for layer, _ in model.layer_kinds]
    return LayerActivations(*(combinations.stack(kinds, name) for name in ("kept", "whole", "input")))


def _activations(model: Model, layer: Layer, plans: Plan, workload: Workload, stack: Stack) -> LayerActivations:
    shape = shapes(layer, plans, workload)
    gathered = _gathered_keys(layer, plans, workload, shape)
    own = _whole(model, layer, plans, workload, shape, stack=stack)
    layer_input = cost.layer_input_bytes(
        shape.tokens,
        model.hidden_size,
        sequence_split=np.maximum(shape.split, plans.tp * stack.splits_inputs),
        element=residual_bytes(plans, workload, stack),
    )
    own = own + stack.keeps_gathered_inputs * _gathered_inputs(model, shape, element_bytes(workload), in_place=1.0)
    whole = own + gathered * stack.keeps_gathered_keys
    kept = np.select(
        [np.asarray(plans.recompute) == Recompute.FULL, np.asarray(plans.recompute) == Recompute.SELECTIVE],
        [
            layer_input,
            _selective(model, layer, plans, workload, shape, stack=stack, whole=whole),
        ],
        whole,
    )
    block_gradients = 2 * cost.layer_input_bytes(
        shape.tokens, model.hidden_size, sequence_split=shape.split, element=element_bytes(workload)
    )
    gradients = _mlp_gradients(layer, plans, shape, element_bytes(workload)) + block_gradients
    return LayerActivations(kept, own + gathered + gradients, layer_input)


def residual_bytes(plans: Plan, workload: Workload, stack: Stack) -> Bytes:
    """Size of one element between layers."""
    full = upcasts(plans, workload, stack)
    return np.where(full, 4.0, element_bytes(workload))


def upcasts(plans: Plan, workload: Workload, stack: Stack) -> Column:
    """Whether embedding, head and residual stream are in fp32 beside quantized weights."""
    quantized = workload.method == "qlora" and stack.full_precision_residual > 0
    return (np.asarray(plans.sharding) < Sharding.ZERO3) & quantized


def _whole(model: Model, layer: Layer, plans: Plan, workload: Workload, shape: Shapes, *, stack: Stack) -> Bytes:
    """Everything one layer keeps without recomputation."""
    eager, apart = 1 - np.asarray(plans.compiled), 1 - np.asarray(plans.compiled) * stack.fuses_gate
    hidden, element = model.hidden_size, element_bytes(workload)
    norms = cost.eager_bytes(shape.tokens, hidden, norm_bytes=stack.eager_norm_bytes, sequence_split=shape.split)
    dropout = cost.dropout_bytes(shape.tokens, hidden, sequence_split=shape.split) * workload.dropout
    return (
        cost.norm_bytes(shape.tokens, hidden, sequence_split=shape.split, element=element)
        + norms * eager
        + dropout
        + _attention(layer, plans, workload, shape)
        + _scores(layer, workload, shape)
        + _mlp(layer, plans, shape, element, unfused=apart)
        + _experts(model, layer, plans, shape, element)
    )


def _attention(layer: Layer, plans: Plan, workload: Workload, shape: Shapes) -> Bytes:
    ulysses = head_split(plans)
    query, kv, out = attention_widths(layer.attention, shape, ulysses)
    latent = layer.attention.latent
    down = (latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_head_dim) if latent else 0
    blocks = 2 if layer.cross_attention else 1
    element = element_bytes(workload)
    fused = cost.attention_bytes(shape.tokens, query + down, kv, out, element=element)
    row_sums = cost.row_sum_bytes(shape.tokens, shape.heads * ulysses) * (workload.attention != "math")
    return blocks * (fused + row_sums)


def _gathered_keys(layer: Layer, plans: Plan, workload: Workload, shape: Shapes) -> Bytes:
    """Keys and values of the other ranks' tokens, where attention gathers them."""
    _, kv, _ = attention_widths(layer.attention, shape)
    others = np.where(np.asarray(plans.context_kind) == ContextKind.ALL_GATHER, plans.cp - 1, 0)
    return cost.gathered_key_bytes(shape.tokens, kv, others, element=element_bytes(workload))


def _gathered_inputs(model: Model, shape: Shapes, element: Bytes, *, in_place: float) -> Bytes:
    """Inputs that sequence parallelism gathered, in place of the rank's own or beside them."""
    return cost.gathered_input_bytes(
        shape.tokens, model.hidden_size, sequence_split=shape.split, in_place=in_place, element=element
    )


def _scores(layer: Layer, workload: Workload, shape: Shapes) -> Bytes:
    if workload.attention != "math":
        return 0.0
    return cost.score_bytes(shape.tokens, workload.seq_len, shape.heads, element=element_bytes(workload))


def _mlp(layer: Layer, plans: Plan, shape: Shapes, element: Bytes, *, unfused: Column) -> Bytes:
    if not layer.mlp:
        return 0.0
    width = layer.mlp.intermediate_size / plans.tp
    return cost.mlp_bytes(shape.tokens, width, layer.mlp.gated, unfused=unfused, element=element)


def _mlp_gradients(layer: Layer, plans: Plan, shape: Shapes, element: Bytes) -> Bytes:
    """Gradients inside the feed-forward block, or inside the experts beside it."""
    mlp, experts = layer.mlp, layer.experts
    dense = (
        cost.mlp_gradient_bytes(shape.tokens, mlp.intermediate_size / plans.tp, mlp.gated, element=element)
        if mlp
        else 0.0
    )
    if not experts:
        return dense
    width = experts.expert.intermediate_size / plans.expert_tp
    return np.maximum(dense, cost.mlp_gradient_bytes(shape.routed, width, experts.expert.gated, element=element))


def _experts(model: Model, layer: Layer, plans: Plan, shape: Shapes, element: Bytes) -> Bytes:
    if not layer.experts:
        return 0.0
    expert = layer.experts.expert
    inside = cost.mlp_bytes(shape.routed, expert.intermediate_size / plans.expert_tp, expert.gated, element=element)
    return cost.routed_bytes(shape.routed, model.hidden_size, element=element) + inside


def _selective(
    model: Model, layer: Layer, plans: Plan, workload: Workload, shape: Shapes, *, stack: Stack, whole: Bytes
) -> Bytes:
    """What selective recomputation keeps, in the stack's sense of it."""
    element = element_bytes(workload)
    without_scores = whole - _scores(layer, workload, shape)
    ulysses = head_split(plans)
    _, kv, _ = attention_widths(layer.attention, shape, ulysses)
    width = layer.mlp.intermediate_size / plans.tp if layer.mlp else 0.0
    operators = (
        cost.selective_bytes(shape.tokens, model.hidden_size, kv, width, sequence_split=shape.split, element=element)
        + _experts(model, layer, plans, shape, element) * 0.5
        + stack.keeps_gathered_inputs * _gathered_inputs(model, shape, element, in_place=0.0)
    )
    return np.where(stack.selective_operators > 0, np.minimum(operators, without_scores), without_scores)
