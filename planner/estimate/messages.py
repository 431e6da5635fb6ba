"""What ranks send each other in a layer and in a step: collectives with their sizes, for time and for volume alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.activations import SINGLE
from planner.cost.states import held_bytes, quantized_bytes
from planner.estimate.activations import element_bytes
from planner.estimate.communication import Message
from planner.estimate.parameters import layer_parameters
from planner.estimate.setting import Job
from planner.estimate.shapes import Shapes, attention_widths, rank_tokens, sequence_split, shapes
from planner.estimate.synchronisation import keeps_weights
from planner.quantities import Bytes, Column, Count
from planner.spec.model import Layer
from planner.spec.plan import ContextKind, Plan, Sharding
from planner.spec.workload import Workload

Messages = tuple[Message, ...]


@dataclass(frozen=True)
class LayerMessages:
    """What one layer sends in one micro-batch, each as often as one pass does.

    `gather_inputs`, `scatter_outputs` (sequence parallelism) and `reduce_outputs` (without it) are those of a forward's
    regions of tensor parallelism; `experts` and `exchange` (Ulysses) a forward's; `ring` passes keys and values once
    around. `weights` is a gather of ZeRO-3, `gradients` a reduction over shard groups and their replicas.
    """

    gather_inputs: Message
    scatter_outputs: Message
    reduce_outputs: Message
    ring: Message
    exchange: Messages
    key_gather: Message
    key_scatter: Message
    experts: Messages
    weights: Messages
    gradients: Messages


def layer_messages(job: Job, layer: Layer, plans: Plan) -> LayerMessages:
    """The messages of one kind of layer under plan columns."""
    shape = shapes(layer, plans, job.workload)
    boundary, sequence = boundary_bytes(job, plans), np.asarray(plans.sequence_parallel) > 0
    blocks = _parallel_blocks(layer, plans)
    gathered, reduced = np.where(sequence, boundary, 0.0), np.where(sequence, 0.0, boundary)
    keys, passed = _keys(job, layer, plans, shape)
    dense, experts = layer_parameters(layer, job.model.hidden_size, plans)
    held = np.asarray(plans.sharding) >= Sharding.ZERO3
    trained = float(job.workload.method == "full")
    each = gathered_weight_bytes(job.workload)
    return LayerMessages(
        gather_inputs=Message("all_gather", "tp", gathered, blocks),
        scatter_outputs=Message("reduce_scatter", "tp", gathered, blocks),
        reduce_outputs=Message("all_reduce", "tp", reduced, blocks),
        ring=Message("send", "cp", passed, plans.cp - 1),
        exchange=_exchange(job, layer, plans, shape),
        key_gather=Message("all_gather", "cp", keys),
        key_scatter=Message("reduce_scatter", "cp", keys),
        experts=_experts(job, layer, plans, shape),
        weights=weight_messages(job, dense * held * each, experts * held * each),
        gradients=gradient_messages(job, plans, dense * trained, experts * trained),
    )


def boundary_bytes(job: Job, plans: Plan) -> Bytes:
    """The hidden states between two layers, of one micro-batch on one rank, not divided by sequence parallelism."""
    return rank_tokens(plans, job.workload) * job.model.hidden_size * element_bytes(job.workload)


def stage_message(job: Job, plans: Plan) -> Message:
    """One micro-batch's hidden states, or their gradients, to the neighbouring pipeline stage."""
    split = plans.tp if job.stack.scatters_sends else sequence_split(plans)
    return Message("send", "pp", boundary_bytes(job, plans) / split)


def stage_gather(job: Job, plans: Plan) -> Message:
    """What tensor-parallel ranks gather of a tensor of which each was sent a part, without sequence parallelism."""
    parts = (np.asarray(plans.sequence_parallel) == 0) & (np.asarray(plans.pp) > 1)
    return Message("all_gather", "tp", boundary_bytes(job, plans) * parts * job.stack.scatters_sends)


def head_message(job: Job, plans: Plan) -> Message:
    """The gradient that the vocabulary-parallel head reduces, as it is timed; `head_messages` as it is sent."""
    return Message("all_reduce", "tp", boundary_bytes(job, plans))


def embedding_messages(job: Job, plans: Plan) -> Messages:
    """The vocabulary-parallel embedding: parts of a sum are reduced; or scattered, and their gradients gathered."""
    return _gathered_or_reduced(job, plans)


def head_messages(job: Job, plans: Plan) -> Messages:
    """The vocabulary-parallel head as it is sent, and its loss: largest logit, sum and target's logit, in fp32."""
    each = rank_tokens(plans, job.workload) * SINGLE
    return (*_gathered_or_reduced(job, plans), Message("all_reduce", "tp", each, 3))


def tied_message(job: Job, plans: Plan) -> Message:
    """Gradients that first and last stage swap where embedding and head are one matrix."""
    apart = job.model.tie_word_embeddings * (np.asarray(plans.pp) > 1)
    whole = job.model.embedding_parameters / plans.tp * job.stack.reduce_bytes * apart
    sharded = np.asarray(plans.sharding) >= Sharding.ZERO2
    return Message("send", "pp", whole / np.where(sharded, plans.shard_group, 1))


def gathered_weight_bytes(workload: Workload) -> Bytes:
    """Bytes per parameter that a gather moves."""
    return quantized_bytes() if workload.method == "qlora" else element_bytes(workload)


def gradient_messages(job: Job, plans: Plan, dense: Count, experts: Count) -> Messages:
    """Reduce-scatter over the shard group, then all-reduce of each shard over its replicas.

    Where nothing is sharded, the shards are gathered again: an all-reduce in three parts.
    """
    each = job.stack.reduce_bytes
    whole = np.asarray(plans.sharding) == Sharding.NONE
    groups = [(dense * each, plans.shard_group, "")]
    groups += [(experts * each, plans.expert_shard_group, "expert")] if job.model.has_experts else []
    reduced = [message for size, group, kind in groups for message in _reduced(size, group, kind, whole)]
    gathered = weight_messages(job, dense * each * whole, experts * each * whole, part_of="all_reduce")
    return (*reduced, *gathered)


def weight_messages(job: Job, dense: Bytes, experts: Bytes, *, part_of: str = "") -> Messages:
    """All-gather of weights (or of anything held like them), given in bytes, over the shard groups."""
    gathered = Message("all_gather", "dp_shard", dense, part_of=part_of)
    if not job.model.has_experts:
        return (gathered,)
    return gathered, Message("all_gather", "expert_shard", experts, part_of=part_of)


def root_messages(job: Job, plans: Plan, root: Count) -> tuple[Message, Messages]:
    """ZeRO-3's gather of embedding and head, and the reduction of their gradients, where each micro-batch has them."""
    every = (np.asarray(plans.sharding) >= Sharding.ZERO3) & ~keeps_weights(plans)
    gradients = root * (job.workload.method == "full")
    gather = Message("all_gather", "dp_shard", root * element_bytes(job.workload) * every)
    return gather, gradient_messages(job, plans, gradients, 0.0 * gradients)


def _reduced(size: Bytes, group: Count, kind: str, whole: Column) -> Messages:
    shard, replicate = ("expert_shard", "expert_replicate") if kind else ("dp_shard", "dp_replicate")
    return (
        Message("reduce_scatter", shard, np.where(whole, 0.0, size)),
        Message("reduce_scatter", shard, np.where(whole, size, 0.0), part_of="all_reduce"),
        Message("all_reduce", replicate, held_bytes(size, 1.0, group)),
    )


def _gathered_or_reduced(job: Job, plans: Plan) -> Messages:
    """A gather and a scatter of hidden states under sequence parallelism, an all-reduce without it."""
    boundary, sequence = boundary_bytes(job, plans), np.asarray(plans.sequence_parallel) > 0
    divided = np.where(sequence, boundary, 0.0)
    return (
        Message("all_gather", "tp", divided),
        Message("reduce_scatter", "tp", divided),
        Message("all_reduce", "tp", np.where(sequence, 0.0, boundary)),
    )


def _parallel_blocks(layer: Layer, plans: Plan) -> Count:
    """Regions of tensor parallelism in one forward: attention and the dense block, or experts that share tokens."""
    experts_only = np.where(np.asarray(plans.sequence_parallel) > 0, 0, 1)
    return 1 + bool(layer.cross_attention) + (1 if layer.mlp else experts_only)


def _keys(job: Job, layer: Layer, plans: Plan, shape: Shapes) -> tuple[Bytes, Bytes]:
    """Keys and values of all ranks where they are gathered, and of one rank where they go around a ring."""
    _, kv, _ = attention_widths(layer.attention, shape)
    own, kind = shape.tokens * kv * element_bytes(job.workload), np.asarray(plans.context_kind)
    gathered = np.where(kind == ContextKind.ALL_GATHER, own * plans.cp, 0.0)
    return gathered, np.where(kind == ContextKind.RING, own, 0.0)


def _exchange(job: Job, layer: Layer, plans: Plan, shape: Shapes) -> Messages:
    """Ulysses' four all-to-alls: queries, keys, values in, the output back."""
    query, kv, out = attention_widths(layer.attention, shape, plans.cp)
    token = shape.tokens * element_bytes(job.workload) * (np.asarray(plans.context_kind) == ContextKind.ULYSSES)
    return tuple(Message("all_to_all", "cp", token * width) for width in (query, kv / 2, kv / 2, out))


def _experts(job: Job, layer: Layer, plans: Plan, shape: Shapes) -> Messages:
    """Dispatch and combine; where experts are divided, their tokens are gathered and reduced among the parts."""
    if not layer.experts:
        return ()
    token = job.model.hidden_size * element_bytes(job.workload)
    sent, shared = shape.tokens / plans.tp * layer.experts.experts_per_token * token, shape.routed * token
    return (
        Message("all_gather", "expert_tp", shared),
        Message("reduce_scatter", "expert_tp", shared),
        Message("all_to_all", "ep", sent, 2),
    )
