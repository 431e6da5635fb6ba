"""What the ranks of one layer say to each other in one micro-batch, forward and backward, by axis."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.cost.states import held_bytes, quantized_bytes
from planner.estimate.activations import element_bytes
from planner.estimate.factor import WIRE, distinct_plans
from planner.estimate.parameters import layer_parameters
from planner.estimate.setting import Setting
from planner.estimate.shapes import Shapes, attention_widths, shapes
from planner.estimate.synchronisation import reduces_once
from planner.quantities import Bytes, Count, Seconds
from planner.spec.model import Layer
from planner.spec.plan import ContextKind, Plan, Sharding
from planner.spec.workload import Workload
from planner.topology.links import Links, PlacedLinks


@dataclass(frozen=True)
class LayerCommunication:
    """Seconds on the wire of shape (kinds, rows), hidden or not.

    `tp`, `ep` and `ulysses` are those of one forward (backward has as much); `regather` is what sequence parallelism
    gathers once more in backward; `ring` the forward's exchange of keys and values (backward: twice that). `key_gather`
    and `key_scatter` gather keys and values from all ranks, and give their gradients back.
    `gather` is ZeRO-3's, of one layer; `reduce` its gradients' reduction where each micro-batch has one. Of shape
    (rows,) are `head`, what the vocabulary-parallel head reduces, and `send`, one tensor between two pipeline stages.
    """

    tp: Seconds
    regather: Seconds
    ring: Seconds
    ulysses: Seconds
    key_gather: Seconds
    key_scatter: Seconds
    ep: Seconds
    gather: Seconds
    reduce: Seconds
    head: Seconds
    send: Seconds


def layer_communication(setting: Setting, plans: Plan, links: Links | PlacedLinks) -> LayerCommunication:
    """Communication of every kind of layer under plan columns, each distinct placement and size evaluated once."""
    placed = distinct_plans(plans, WIRE)
    some_plans, some_links = placed.of(plans), links[placed.first]
    kinds = [_one_kind(setting, layer, some_plans, some_links) for layer, _ in setting.model.layer_kinds]
    times = {field.name: placed.stack(kinds, field.name) for field in fields(LayerCommunication)}
    return LayerCommunication(**(times | {name: times[name][0] for name in ("head", "send")}))


def _one_kind(setting: Setting, layer: Layer, plans: Plan, links: Links) -> LayerCommunication:
    network, workload = setting.network, setting.workload
    shape = shapes(layer, plans, workload)
    gather, reduce = _data_parallel(setting, layer, plans, links)
    key_gather, key_scatter = _gathered_keys(setting, layer, plans, shape, links)
    boundary = shape.tokens * setting.model.hidden_size * element_bytes(workload)
    sequence = np.asarray(plans.sequence_parallel) > 0
    one_block = np.where(
        sequence,
        network.all_gather(boundary, links.tp) + network.reduce_scatter(boundary, links.tp),
        network.all_reduce(boundary, links.tp),
    )
    blocks = _parallel_blocks(layer, plans)
    return LayerCommunication(
        tp=blocks * one_block,
        regather=np.where(sequence, blocks * network.all_gather(boundary, links.tp), 0.0),
        ring=_ring(setting, layer, plans, shape, links),
        ulysses=_ulysses(setting, layer, plans, shape, links),
        key_gather=key_gather,
        key_scatter=key_scatter,
        ep=_experts(setting, layer, plans, shape, links),
        gather=gather,
        reduce=reduce,
        head=network.all_reduce(boundary, links.tp),
        send=network.send(boundary / shape.split, links.pp),
    )


def _parallel_blocks(layer: Layer, plans: Plan) -> Count:
    """Regions of tensor parallelism in one forward: attention and the dense block, or experts that share tokens."""
    experts_only = np.where(np.asarray(plans.sequence_parallel) > 0, 0, 1)
    return 1 + bool(layer.cross_attention) + (1 if layer.mlp else experts_only)


def _ring(setting: Setting, layer: Layer, plans: Plan, shape: Shapes, links: Links) -> Seconds:
    """Exchanges, cp - 1 of them, of the rank's keys and values with its neighbour."""
    _, kv, _ = attention_widths(layer.attention, shape)
    hop = setting.network.send(shape.tokens * kv * element_bytes(setting.workload), links.cp)
    return np.where(np.asarray(plans.context_kind) == ContextKind.RING, (plans.cp - 1) * hop, 0.0)


def _gathered_keys(setting: Setting, layer: Layer, plans: Plan, shape: Shapes, links: Links) -> tuple[Seconds, Seconds]:
    """All-gather of all ranks' keys and values, and reduce-scatter of their gradients."""
    _, kv, _ = attention_widths(layer.attention, shape)
    size = shape.tokens * plans.cp * kv * element_bytes(setting.workload)
    gathers = np.asarray(plans.context_kind) == ContextKind.ALL_GATHER
    network = setting.network
    return (
        np.where(gathers, network.all_gather(size, links.cp), 0.0),
        np.where(gathers, network.reduce_scatter(size, links.cp), 0.0),
    )


def _ulysses(setting: Setting, layer: Layer, plans: Plan, shape: Shapes, links: Links) -> Seconds:
    """Four all-to-alls: queries, keys, values in, the output back."""
    query, kv, out = attention_widths(layer.attention, shape, plans.cp)
    token = shape.tokens * element_bytes(setting.workload)
    sizes = (token * query, token * kv / 2, token * kv / 2, token * out)
    time = sum((setting.network.all_to_all(size, links.cp) for size in sizes), start=0.0)
    return np.where(np.asarray(plans.context_kind) == ContextKind.ULYSSES, time, 0.0)


def _experts(setting: Setting, layer: Layer, plans: Plan, shape: Shapes, links: Links) -> Seconds:
    """Dispatch and combine; where experts are divided, their tokens are gathered and reduced among the parts."""
    if not layer.experts:
        return 0.0
    network, token = setting.network, setting.model.hidden_size * element_bytes(setting.workload)
    sent = shape.tokens / plans.tp * layer.experts.experts_per_token * token
    shared = shape.routed * token
    within = network.all_gather(shared, links.expert_tp) + network.reduce_scatter(shared, links.expert_tp)
    return 2 * network.all_to_all(sent, links.ep) + within


def _data_parallel(setting: Setting, layer: Layer, plans: Plan, links: Links) -> tuple[Seconds, Seconds]:
    """Gather of one layer's weights, and reduction of its gradients over shard groups and their replicas."""
    code = np.asarray(plans.sharding)
    dense, experts = layer_parameters(layer, setting.model.hidden_size, plans)
    gather = weight_gather(setting, links, dense, experts, gathered_weight_bytes(setting.workload))
    trained = setting.workload.method == "full"
    reduce = gradient_reduction(setting, plans, links, dense * trained, experts * trained)
    return np.where(code >= Sharding.ZERO3, gather, 0.0), np.where(reduces_once(plans), 0.0, reduce)


def gathered_weight_bytes(workload: Workload) -> Bytes:
    """Bytes per parameter that a gather moves."""
    return quantized_bytes() if workload.method == "qlora" else element_bytes(workload)


def gradient_reduction(setting: Setting, plans: Plan, links: Links, dense: Count, experts: Count) -> Seconds:
    """Reduce-scatter over the shard group, then all-reduce of each shard over its replicas.

    Where nothing is sharded, the shards are gathered again: an all-reduce in three parts.
    """
    network, each = setting.network, setting.stack.reduce_bytes
    reduced = network.reduce_scatter(dense * each, links.dp_shard)
    reduced = reduced + network.all_reduce(held_bytes(dense, each, plans.shard_group), links.dp_replicate)
    if setting.model.has_experts:
        shard = held_bytes(experts, each, plans.expert_shard_group)
        reduced = reduced + network.reduce_scatter(experts * each, links.expert_shard)
        reduced = reduced + network.all_reduce(shard, links.expert_replicate)
    whole = weight_gather(setting, links, dense, experts, each)
    return reduced + np.where(np.asarray(plans.sharding) == Sharding.NONE, whole, 0.0)


def weight_gather(setting: Setting, links: Links, dense: Count, experts: Count, bytes_each: Bytes) -> Seconds:
    """All-gather of weights (or of anything held like them) over the shard group."""
    gathered = setting.network.all_gather(dense * bytes_each, links.dp_shard)
    if not setting.model.has_experts:
        return gathered
    return gathered + setting.network.all_gather(experts * bytes_each, links.expert_shard)
