"""Compute time of one layer and micro-batch on one rank, by kind of kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import kernels as cost
from planner.cost.states import quantized_bytes
from planner.estimate.activations import element_bytes
from planner.estimate.factor import LAYER, distinct_plans
from planner.estimate.kernels import AttentionCore
from planner.estimate.parameters import layer_parameters
from planner.estimate.products import ExpertProduct, Product, layer_products
from planner.estimate.setting import Setting
from planner.estimate.shapes import Shapes, rank_tokens, shapes
from planner.quantities import Bytes, Scalar, Seconds
from planner.spec.model import Layer, Model
from planner.spec.plan import Plan, Recompute
from planner.spec.stack import Stack
from planner.spec.workload import Workload

EAGER_FACTOR = 2.3
"""Memory traffic of unfused element-wise operators over one pass over their operands.

Provisional: the middle of 2.2 to 2.5, the range that published step times of eager stacks imply.
"""


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer, shape (kinds, rows), and of the head, shape (rows,); no communication.

    `recompute` is what backward computes again. The head's forward and backward are one figure.
    """

    matmul: Seconds
    """Matrix products, forward."""
    input_gradient: Seconds
    weight_gradient: Seconds
    attention: Seconds
    attention_backward: Seconds
    elementwise: Seconds
    elementwise_backward: Seconds
    recompute: Seconds
    head: Seconds = 0.0

    OF_LAYERS = (
        "matmul", "input_gradient", "weight_gradient", "attention", "attention_backward",
        "elementwise", "elementwise_backward", "recompute",
    )  # fmt: skip

    @property
    def forward(self) -> Seconds:
        """Forward of one layer."""
        return self.matmul + self.attention + self.elementwise

    @property
    def backward(self) -> Seconds:
        """Backward of one layer, without recomputation."""
        return self.input_gradient + self.weight_gradient + self.attention_backward + self.elementwise_backward


def layer_time(setting: Setting, plans: Plan) -> LayerTime:
    """Times of every kind of layer under plan columns, each distinct shape evaluated once."""
    combinations = distinct_plans(plans, LAYER)
    some = combinations.of(plans)
    kinds = [_one_kind(setting, layer, some) for layer, _ in setting.model.layer_kinds]
    times = {name: combinations.stack(kinds, name) for name in LayerTime.OF_LAYERS}
    return LayerTime(**times, head=combinations.spread(_head(setting, some)))


def _head(setting: Setting, plans: Plan) -> Seconds:
    """Output projection and loss, forward and backward."""
    model, kernels, tokens = setting.model, setting.kernels.half, rank_tokens(plans, setting.workload)
    projection = Product(tokens, model.hidden_size, model.vocab_size / plans.tp)
    forward, inputs, weights = projection.times(kernels)
    loss = cost.loss_traffic(tokens, projection.outputs, bytes_per_logit=setting.stack.logit_traffic_bytes)
    return forward + inputs + weights * (setting.workload.method == "full") + kernels.stream(loss)


def _one_kind(setting: Setting, layer: Layer, plans: Plan) -> LayerTime:
    model, workload, kernels, stack = setting.model, setting.workload, setting.kernels, setting.stack
    shape = shapes(layer, plans, workload)
    products = layer_products(model, layer, plans, shape)
    forward, inputs, weights = (
        list(times) for times in zip(*(product.times(kernels) for product in products), strict=True)
    )
    attention, attention_backward = _attention(setting, layer, plans, shape)
    scale = _fusion(plans, stack) * setting.profile.elementwise_scale
    elementwise = kernels.stream(_elementwise_traffic(setting, layer, plans, shape) * scale)
    frozen = kernels.stream(
        _dequantize_traffic(model, layer, plans, workload) + _adapter_traffic(products) * (workload.method != "full")
    )
    time = LayerTime(
        matmul=sum(forward, start=0.0),
        input_gradient=sum(inputs, start=0.0),
        weight_gradient=(sum(weights, start=0.0) + _accumulation(setting, layer, plans)) * (workload.method == "full"),
        attention=attention,
        attention_backward=attention_backward,
        elementwise=elementwise + frozen,
        elementwise_backward=elementwise * cost.ELEMENTWISE_BACKWARD + 2 * frozen,
        recompute=0.0,
    )
    operators = _every_second(layer, forward) + attention * (workload.attention == "math")
    return _with_recompute(time, plans, stack, skipped=forward[-1], operators=operators)


def _attention(setting: Setting, layer: Layer, plans: Plan, shape: Shapes) -> tuple[Seconds, Seconds]:
    attention = layer.attention
    core = AttentionCore(
        batch=plans.micro_batch_size,
        queries=shape.queries,
        keys=setting.workload.seq_len,
        heads=shape.heads,
        key_value_heads=shape.key_value_heads,
        key_dim=attention.head_dim,
        value_dim=attention.value_head_dim,
        causal=setting.model.causal,
        window=attention.sliding_window,
    )
    forward, backward = setting.kernels.attention(core)
    blocks = 2 if layer.cross_attention else 1
    return blocks * forward, blocks * backward


def _elementwise_traffic(setting: Setting, layer: Layer, plans: Plan, shape: Shapes) -> Bytes:
    """Memory traffic of norms, residuals, rotation, non-linearity and routing, forward, each operand passed once."""
    hidden, element, outside = setting.model.hidden_size, element_bytes(setting.workload), shape.tokens / shape.split
    rotated = (shape.heads + shape.key_value_heads) * layer.attention.head_dim
    traffic = (
        2 * cost.norm_traffic(outside, hidden, element_bytes=element)
        + 2 * cost.residual_traffic(outside, hidden, element_bytes=element)
        + cost.rotary_traffic(shape.tokens, rotated, element_bytes=element)
        + 2 * cost.dropout_traffic(outside, hidden, element_bytes=element) * setting.workload.dropout
    )
    if layer.mlp:
        width = layer.mlp.intermediate_size / plans.tp
        traffic = traffic + cost.activation_traffic(shape.tokens, width, layer.mlp.gated, element_bytes=element)
    if layer.experts:
        expert, copies = layer.experts.expert, layer.experts.experts_per_token
        width = expert.intermediate_size / plans.expert_tp
        traffic = traffic + cost.activation_traffic(shape.routed, width, expert.gated, element_bytes=element)
        traffic = traffic + cost.routing_traffic(shape.tokens / plans.tp, hidden, copies, element_bytes=element)
    return traffic


def _accumulation(setting: Setting, layer: Layer, plans: Plan) -> Seconds:
    """Adding gradients to those of earlier micro-batches."""
    dense, experts = layer_parameters(layer, setting.model.hidden_size, plans)
    return setting.kernels.stream((dense + experts) * setting.stack.accumulation_bytes)


def _fusion(plans: Plan, stack: Stack) -> Scalar:
    return np.where(np.asarray(plans.compiled) > 0, stack.elementwise_factor, EAGER_FACTOR)


def _dequantize_traffic(model: Model, layer: Layer, plans: Plan, workload: Workload) -> Bytes:
    """QLoRA unpacks each weight before each use: the quantized form read, the whole written and read."""
    quantized = workload.method == "qlora"
    moved = quantized_bytes() + 2 * element_bytes(workload)
    return quantized * layer.dense_parameters(model.hidden_size) / plans.tp * moved


def _adapter_traffic(products: Sequence[Product | ExpertProduct]) -> Bytes:
    """Memory traffic of low-rank adapters beside every matrix product outside the experts, forward."""
    beside = (product for product in products if isinstance(product, Product))
    return sum((cost.adapter_traffic(each.tokens, each.inputs, each.outputs) for each in beside), start=0.0)


def _every_second(layer: Layer, forward: list[Seconds]) -> Seconds:
    """Products that operator-wise recomputation runs again: output projection and half of a gated up projection."""
    attention_products = len(forward) - (2 if layer.mlp else 0) - (3 if layer.experts else 0)
    gated_up = forward[-2] * 0.5 if layer.mlp and layer.mlp.gated else 0.0
    return forward[attention_products - 1] + gated_up


def _with_recompute(time: LayerTime, plans: Plan, stack: Stack, *, skipped: Seconds, operators: Seconds) -> LayerTime:
    """Add what the plan's recomputation costs in backward."""
    full = time.forward - stack.early_stop * skipped
    selective = np.where(stack.selective_operators > 0, operators + time.elementwise, time.attention)
    mode = np.asarray(plans.recompute)
    again = np.select([mode == Recompute.FULL, mode == Recompute.SELECTIVE], [full, selective], 0.0)
    return replace(time, recompute=again)
