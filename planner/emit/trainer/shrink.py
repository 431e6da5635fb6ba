"""The same plan on a tiny model: every degree stays, only the dimensions go."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from .settings import Latent, Layer, Settings

HEAD_DIM = 8
VOCABULARY = 256
SEQUENCE = 64
MOST_ROUNDS = 2
"""Micro-batches per pipeline stage that are kept."""


def shrunk(settings: Settings) -> Settings:
    """A model of a layer per pipeline chunk, a few heads and few tokens, divisible by all degrees of the plan."""
    plan = settings.plan
    rounds = plan.pp * MOST_ROUNDS
    micro_batches = plan.num_microbatches if plan.num_microbatches <= rounds else rounds
    parts = plan.tp * plan.cp
    chunks, uneven = plan.virtual_stages, plan.pp > 1 and plan.first_stage_layers + plan.last_stage_layers > 0
    num_layers = max(2, plan.pp * chunks + uneven)
    pattern = settings.model.layers
    layers = tuple(_tiny(settings, pattern[i * len(pattern) // num_layers]) for i in range(num_layers))
    size = max(64, layers[0].num_attention_heads * HEAD_DIM, 2 * plan.dp_shard * parts)
    model = replace(
        settings.model,
        hidden_size=lcm(size, plan.tp, plan.dp_shard * plan.cp),
        vocab_size=lcm(VOCABULARY, plan.tp),
        layers=layers,
    )
    shrunk_plan = replace(
        plan,
        micro_batch_size=min(plan.micro_batch_size, 2),
        num_microbatches=micro_batches,
        first_stage_layers=chunks + (plan.pp == 2) if uneven else 0,
        last_stage_layers=chunks if uneven else 0,
    )
    seq_len = lcm(SEQUENCE, 2 * parts)
    return replace(settings, model=model, plan=shrunk_plan, seq_len=seq_len, lora_rank=2, prediction={})


def _tiny(settings: Settings, layer: Layer) -> Layer:
    plan = settings.plan
    grouped = layer.num_attention_heads > layer.num_key_value_heads
    divided = plan.tp * (plan.cp if plan.context_kind == "ulysses" else 1)
    kv_heads = lcm(2, divided)
    experts = lcm(4, plan.ep) if layer.num_experts else 0
    width = lcm(64, plan.tp)
    return replace(
        layer,
        num_attention_heads=kv_heads * (2 if grouped else 1),
        num_key_value_heads=kv_heads,
        head_dim=HEAD_DIM,
        intermediate_size=width if layer.intermediate_size else 0,
        num_experts=experts,
        experts_per_token=min(layer.experts_per_token, 2) if experts else 0,
        expert_size=lcm(32, plan.expert_tp) if experts else 0,
        latent=layer.latent and Latent(layer.latent.q_lora_rank and 32, 16, HEAD_DIM, HEAD_DIM, HEAD_DIM),
    )
