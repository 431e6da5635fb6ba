"""A model of another size and the same shape."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import gcd

from planner.quantities import format_count
from planner.spec.model import Attention, Experts, Layer, Mlp, Model


def scaled_model(model: Model, factor: Fraction) -> Model | None:
    """The model with layers, heads, hidden and feed-forward sizes times a factor; None where it would divide a head.

    Head size, low ranks of latent attention, number of experts and vocabulary stay. Parameters grow with about the
    third power of the factor. Layers of several kinds keep their order and proportions.
    """
    if any((factor * _heads_in_step(layer)).denominator > 1 for layer, _ in model.layer_kinds):
        return None
    if (factor * model.hidden_size).denominator > 1:
        return None
    number = max(1, round(factor * model.num_hidden_layers))
    kept = (model.layers[place * model.num_hidden_layers // number] for place in range(number))
    found = replace(
        model,
        hidden_size=int(factor * model.hidden_size),
        layers=tuple(_layer(layer, factor) for layer in kept),
        other_parameters=round(factor * model.other_parameters),
        embedding_size=round(factor * model.embedding_size),
    )
    return found if factor == 1 else replace(found, name=f"{model.name} of {format_count(found.parameters)}")


def _heads_in_step(layer: Layer) -> int:
    """What every head count of a layer is a multiple of; a single key-value head serves any number of heads."""
    blocks = [block for block in (layer.attention, layer.cross_attention) if block]
    counts = [
        gcd(each.num_attention_heads, each.num_key_value_heads)
        if each.num_key_value_heads > 1
        else each.num_attention_heads
        for each in blocks
    ]
    return gcd(*counts)


def _layer(layer: Layer, factor: Fraction) -> Layer:
    return replace(
        layer,
        attention=_attention(layer.attention, factor),
        cross_attention=layer.cross_attention and _attention(layer.cross_attention, factor),
        mlp=layer.mlp and _mlp(layer.mlp, factor),
        experts=layer.experts and _experts(layer.experts, factor),
        other_parameters=round(factor * layer.other_parameters),
    )


def _attention(block: Attention, factor: Fraction) -> Attention:
    kv = block.num_key_value_heads
    return replace(
        block,
        num_attention_heads=int(factor * block.num_attention_heads),
        num_key_value_heads=int(factor * kv) if kv > 1 else kv,
    )


def _mlp(block: Mlp, factor: Fraction) -> Mlp:
    return replace(block, intermediate_size=round(factor * block.intermediate_size))


def _experts(block: Experts, factor: Fraction) -> Experts:
    return replace(block, expert=_mlp(block.expert, factor))
