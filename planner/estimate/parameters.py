"""Parameters that each pipeline rank holds before sharding: what tensor, expert and pipeline parallelism leave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.states import adapter_parameters
from planner.estimate.stages import Stages
from planner.quantities import Column, Count
from planner.spec.model import Layer, Model
from planner.spec.plan import Plan
from planner.spec.workload import Workload


@dataclass(frozen=True)
class LocalParameters:
    """Counts of shape (roles, rows), but `largest_layer` of shape (rows,).

    `dense` are the layers' without experts, `root` the embedding and head, `largest_layer` those of the layer that is
    heaviest to gather.
    """

    dense: Column
    experts: Column
    root: Column
    largest_layer: Column

    @property
    def outside_experts(self) -> Column:
        """All but the experts."""
        return self.dense + self.root


@dataclass(frozen=True)
class TrainedParameters:
    """Trained parameters outside experts and in experts, and all of embedding and head, of shape (roles, rows)."""

    dense: Column
    experts: Column
    root: Column


def trained_parameters(model: Model, plans: Plan, workload: Workload, stages: Stages) -> TrainedParameters:
    """Parameters before data-parallel sharding; with adapters only those are trained."""
    local = local_parameters(model, plans, stages)
    if workload.method == "full":
        return TrainedParameters(local.outside_experts, local.experts, local.root)
    adapters = local_adapters(model, plans, stages, workload.lora_rank)
    return TrainedParameters(adapters, np.zeros_like(adapters), local.root)


def local_parameters(model: Model, plans: Plan, stages: Stages) -> LocalParameters:
    """Parameters of each role; a tied head is held twice when the pipeline separates it from the embedding."""
    h = model.hidden_size
    kinds = [layer for layer, _ in model.layer_kinds]
    dense, experts = (np.stack(part) for part in zip(*(layer_parameters(k, h, plans) for k in kinds), strict=True))
    own_head = 1.0 - model.tie_word_embeddings * stages.has_embedding
    root = model.embedding_parameters * stages.has_embedding + model.head_parameters * stages.has_head * own_head
    return LocalParameters(
        dense=np.einsum("krn,kn->rn", stages.layers, dense),
        experts=np.einsum("krn,kn->rn", stages.layers, experts),
        root=root / plans.tp + model.other_parameters * stages.has_embedding,
        largest_layer=(dense + experts).max(axis=0),
    )


def local_adapters(model: Model, plans: Plan, stages: Stages, rank: int) -> Column:
    """Trainable parameters of low-rank adapters on every large matrix outside the experts, shape (roles, rows)."""
    per_kind = np.array([_adapters(layer, model.hidden_size, rank) for layer, _ in model.layer_kinds])
    return np.einsum("krn,k->rn", stages.layers, per_kind) / plans.tp


def layer_parameters(layer: Layer, hidden: int, plans: Plan) -> tuple[Count, Count]:
    """Parameters of one layer on a rank, outside experts and in experts; what is no large matrix is on every rank."""
    dense = layer.dense_parameters(hidden) / plans.tp + layer.other_parameters
    return dense, layer.expert_parameters(hidden) / (plans.ep * plans.expert_tp)


def _adapters(layer: Layer, hidden: int, rank: int) -> Count:
    matrices = list(layer.attention.separate_projections(hidden))
    if layer.mlp:
        width = layer.mlp.intermediate_size
        matrices += [(hidden, width)] * (2 if layer.mlp.gated else 1) + [(width, hidden)]
    return sum((adapter_parameters(inputs, outputs, rank) for inputs, outputs in matrices), start=0.0)
