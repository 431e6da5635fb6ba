"""The matrix products of a layer on one rank."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate.kernels import Kernels
from planner.estimate.shapes import Shapes, attention_widths, head_split
from planner.quantities import Count, Seconds
from planner.spec.model import Layer, Model
from planner.spec.plan import Plan

Passes = tuple[Seconds, Seconds, Seconds]
"""Forward, gradient of the inputs, gradient of the weights."""


@dataclass(frozen=True)
class Product:
    """`count` equal products: tokens x inputs times inputs x outputs."""

    tokens: Count
    inputs: Count
    outputs: Count
    count: Count = 1

    def times(self, kernels: Kernels) -> Passes:
        """Each pass is a product of the same FLOPs with the dimensions in another order."""
        tokens, inputs, outputs = self.tokens, self.inputs, self.outputs
        return (
            kernels.matmul(tokens, outputs, inputs, self.count),
            kernels.matmul(tokens, inputs, outputs, self.count),
            kernels.matmul(outputs, inputs, tokens, self.count),
        )


@dataclass(frozen=True)
class ExpertProduct:
    """One kernel over the products of `experts` experts, among which the tokens are divided evenly.

    `width` is an expert's inner size on this rank.
    """

    tokens: Count
    inputs: Count
    outputs: Count
    experts: Count
    width: Count

    def times(self, kernels: Kernels) -> Passes:
        """The gradient of the weights is taken to cost as much as the forward, whose kernel has been measured."""
        forward = kernels.grouped_matmul(self.tokens, self.outputs, self.inputs, self.experts, width=self.width)
        inputs = kernels.grouped_matmul(self.tokens, self.inputs, self.outputs, self.experts, width=self.width)
        return forward, inputs, forward


def layer_products(model: Model, layer: Layer, plans: Plan, shape: Shapes) -> list[Product | ExpertProduct]:
    """Matrix products of a layer in the order of the data flow; the last is the down projection.

    Column-parallel products divide their outputs by tp, row-parallel ones their inputs (Shoeybi et al. 2019,
    arXiv 1909.08053); latent attention's down projections are computed by every tensor rank.
    """
    h, tokens = model.hidden_size, shape.tokens
    products: list[Product | ExpertProduct] = [*_attention_products(model, layer, plans, shape)]
    if layer.experts:
        expert, experts = layer.experts.expert, shape.local_experts
        width = expert.intermediate_size / plans.expert_tp
        up = width * (1 + expert.gated)
        products.append(Product(tokens / shape.split, h, layer.experts.num_experts))
        products.append(ExpertProduct(shape.routed, h, up, experts, width))
        products.append(ExpertProduct(shape.routed, width, h, experts, width))
    if layer.mlp:
        width = layer.mlp.intermediate_size / plans.tp
        products.append(Product(tokens, h, width * (1 + layer.mlp.gated)))
        products.append(Product(tokens, width, h))
    return products


def _attention_products(model: Model, layer: Layer, plans: Plan, shape: Shapes) -> list[Product]:
    h, tokens, latent = model.hidden_size, shape.tokens, layer.attention.latent
    blocks = 2 if layer.cross_attention else 1
    ulysses = head_split(plans)
    query, kv, out = attention_widths(layer.attention, shape, ulysses)
    if latent is None:
        return [Product(tokens, h, query + kv, blocks), Product(tokens, out, h, blocks)]
    rank, heads = latent.q_lora_rank, shape.heads * ulysses
    queries = [Product(tokens, h, rank), Product(tokens, rank, query)] if rank else [Product(tokens, h, query)]
    return [
        *queries,
        Product(tokens, h, latent.kv_lora_rank + latent.qk_rope_head_dim),
        Product(tokens, latent.kv_lora_rank, heads * (latent.qk_nope_head_dim + latent.v_head_dim)),
        Product(tokens, out, h),
    ]
