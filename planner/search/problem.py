"""The figures of model, cluster, workload and stack that decide which plans are legal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import gcd

from planner.spec.cluster import Cluster
from planner.spec.model import Model, ModelKind
from planner.spec.plan import ContextKind, GradientSync, Offload, RankOrder, Recompute, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload

CODED: Mapping[str, type[IntEnum]] = {
    "shardings": Sharding,
    "replicated_shardings": Sharding,
    "pipeline_shardings": Sharding,
    "tensor_shardings": Sharding,
    "offload_shardings": Sharding,
    "schedules": Schedule,
    "context_kinds": ContextKind,
    "offloads": Offload,
    "gradient_syncs": GradientSync,
    "replica_syncs": GradientSync,
    "pipeline_syncs": GradientSync,
    "recomputations": Recompute,
    "rank_orders": RankOrder,
}
"""Limit of a stack -> the kind whose members it names."""
NEEDLESS = ("schedules", "context_kinds", "offloads", "recomputations")
"""Limits of what a plan can always do without: `none` is among them whether a stack says so or not."""


@dataclass(frozen=True)
class Problem:
    """What every plan is judged against.

    Dimensions that differ from layer to layer are tuples of the distinct values, ascending. `kv_heads` leaves out
    latent attention, whose heads all have keys and values of their own. `num_experts` is the greatest number that
    divides every layer's experts evenly (1 for a dense model).
    """

    world_size: int
    gpus_per_node: int
    domain_size: int
    """Accelerators of one link domain: a node, or a rack of nodes on one switch."""
    global_batch_size: int
    seq_len: int
    attention: str
    method: str
    num_layers: int
    hidden_size: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    intermediate_sizes: tuple[int, ...]
    num_experts: int
    expert_sizes: tuple[int, ...]
    causal: bool
    encoder_decoder: bool
    tied: bool
    """Whether embedding and head are one matrix."""
    head_layers: float
    """Layers that the output projection takes as long as, by multiplications alone."""
    stack: Stack

    @classmethod
    def of(cls, model: Model, cluster: Cluster, workload: Workload, stack: Stack) -> Problem:
        """The problem that a question poses."""
        layers = [layer for layer, _ in model.layer_kinds]
        attentions = [block for layer in layers for block in (layer.attention, layer.cross_attention) if block]
        experts = [layer.experts for layer in layers if layer.experts]
        node = cluster.node
        return cls(
            world_size=cluster.world_size,
            gpus_per_node=node.gpus_per_node,
            domain_size=node.gpus_per_node * node.domain_nodes,
            global_batch_size=workload.global_batch_size,
            seq_len=workload.seq_len,
            attention=workload.attention,
            method=workload.method,
            num_layers=model.num_hidden_layers,
            hidden_size=model.hidden_size,
            heads=_distinct(a.num_attention_heads for a in attentions),
            kv_heads=_distinct(a.num_key_value_heads for a in attentions if a.latent is None),
            intermediate_sizes=_distinct(layer.mlp.intermediate_size for layer in layers if layer.mlp),
            num_experts=gcd(*(e.num_experts for e in experts)) or 1,
            expert_sizes=_distinct(e.expert.intermediate_size for e in experts),
            causal=model.causal,
            encoder_decoder=model.kind is ModelKind.ENCODER_DECODER,
            tied=model.tie_word_embeddings,
            head_layers=_head_layers(model, workload.seq_len),
            stack=stack,
        )

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return bool(self.expert_sizes)

    def codes(self, limit: str) -> tuple[IntEnum, ...]:
        """The members of a kind that a limit of the stack names (a key of CODED)."""
        names = (*getattr(self.stack, limit), *(("none",) if limit in NEEDLESS else ()))
        return tuple(member for member in CODED[limit] if member.name.lower() in names)


def _head_layers(model: Model, seq_len: int) -> float:
    """The head's multiplications for a token over those of a mean layer: its active weights, and attention."""
    weights = sum(count * layer.active_parameters(model.hidden_size) for layer, count in model.layer_kinds)
    attention = seq_len * model.hidden_size * (1 if model.causal else 2)
    return model.head_parameters / (weights / model.num_hidden_layers + attention)


def _distinct(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({size for size in sizes if size > 0}))
