"""Sizes of one rank's part of a layer: what tensor, context and expert parallelism leave of each dimension."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.quantities import Count
from planner.spec.model import Attention, Layer
from planner.spec.plan import ContextKind, Plan
from planner.spec.workload import Workload


@dataclass(frozen=True)
class Shapes:
    """Counts of one micro-batch on one rank. Scalars or columns.

    `tokens` are the rank's (after context parallelism); `split` is what sequence parallelism divides them by outside
    the parallel regions. `routed` are the (token, expert) pairs that a rank's experts process, balanced routing
    assumed, and `local_experts` how many experts it holds.
    """

    tokens: Count
    split: Count
    heads: Count
    key_value_heads: Count
    queries: Count
    """Query positions per sequence in the attention kernel."""
    routed: Count
    local_experts: Count


def rank_tokens(plans: Plan, workload: Workload) -> Count:
    """Tokens of one micro-batch on one rank, after context parallelism."""
    return plans.micro_batch_size * workload.seq_len / plans.cp


def sequence_split(plans: Plan) -> Count:
    """What sequence parallelism divides tokens by outside the parallel regions."""
    return np.where(np.asarray(plans.sequence_parallel) > 0, plans.tp, 1)


def head_split(plans: Plan) -> Count:
    """What Ulysses divides heads by (and the ring positions instead)."""
    return np.where(np.asarray(plans.context_kind) == ContextKind.ULYSSES, plans.cp, 1)


def shapes(layer: Layer, plans: Plan, workload: Workload) -> Shapes:
    """Shapes of one layer under each plan.

    Ulysses attends with all positions and 1/cp of the heads, the ring with 1/cp of the queries and all heads.
    Key-value heads are repeated where tensor parallelism exceeds their number.
    """
    tokens = rank_tokens(plans, workload)
    heads_split = plans.tp * head_split(plans)
    experts = layer.experts
    routed = tokens * (experts.experts_per_token if experts else 0) * plans.expert_tp / plans.tp
    return Shapes(
        tokens=tokens,
        split=sequence_split(plans),
        heads=layer.attention.num_attention_heads / heads_split,
        key_value_heads=np.maximum(layer.attention.num_key_value_heads / heads_split, 1),
        queries=workload.seq_len * head_split(plans) / plans.cp,
        routed=routed,
        local_experts=(experts.num_experts if experts else 0) / plans.ep,
    )


def attention_widths(attention: Attention, shape: Shapes, cp_share: Count = 1) -> tuple[Count, Count, Count]:
    """Widths (elements per token) of the queries, of keys and values together, and of the output, on one rank.

    `cp_share` undoes Ulysses' split where a tensor is meant as the projections see it.
    """
    query = shape.heads * cp_share * attention.head_dim
    kv_heads = shape.heads if attention.latent else shape.key_value_heads
    return (
        query,
        kv_heads * cp_share * (attention.head_dim + attention.value_head_dim),
        shape.heads * cp_share * attention.value_head_dim,
    )
