"""How long the ranks of one layer talk in one micro-batch, forward and backward, by axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.factor import SHARDS, WIRE, distinct_plans
from planner.estimate.messages import head_message, layer_messages, stage_gather, stage_message
from planner.estimate.setting import Setting
from planner.estimate.synchronisation import reduces_once
from planner.quantities import Seconds
from planner.spec.model import Layer
from planner.spec.plan import Plan
from planner.topology.links import Links, PlacedLinks


@dataclass(frozen=True)
class LayerCommunication:
    """Seconds on the wire of shape (kinds, rows), hidden or not.

    `tp`, `ep` and `ulysses` are those of one forward (backward has as much); `regather` is what sequence parallelism
    gathers once more in backward; `ring` the forward's exchange of keys and values (backward: twice that). `key_gather`
    and `key_scatter` gather keys and values from all ranks, and give their gradients back.
    `gather` is ZeRO-3's, of one layer; `reduce` its gradients' reduction where each micro-batch has one. Of shape
    (rows,) are `head`, what the vocabulary-parallel head reduces, and `send`, one tensor between two pipeline stages
    with what its receivers gather of it.
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
    times: dict[str, Seconds] = {}
    for columns, one_kind in ((WIRE, _of_activations), (SHARDS, _of_weights)):
        placed = distinct_plans(plans, columns)
        some_plans, some_links = placed.of(plans), links[placed.first]
        kinds = [one_kind(setting, layer, some_plans, some_links) for layer, _ in setting.model.layer_kinds]
        times |= {name: placed.stacked([kind[name] for kind in kinds]) for name in kinds[0]}
    return LayerCommunication(**(times | {name: times[name][0] for name in ("head", "send")}))


def _of_activations(setting: Setting, layer: Layer, plans: Plan, links: Links) -> dict[str, Seconds]:
    network, sent = setting.network, layer_messages(setting, layer, plans)
    regather = network.time((sent.gather_inputs,), links)
    return {
        "tp": regather + network.time((sent.scatter_outputs, sent.reduce_outputs), links),
        "regather": regather,
        "ring": network.time((sent.ring,), links),
        "ulysses": network.time(sent.exchange, links),
        "key_gather": network.time((sent.key_gather,), links),
        "key_scatter": network.time((sent.key_scatter,), links),
        "ep": network.time(sent.experts, links),
        "head": network.time((head_message(setting, plans),), links),
        "send": network.time((stage_message(setting, plans), stage_gather(setting, plans)), links),
    }


def _of_weights(setting: Setting, layer: Layer, plans: Plan, links: Links) -> dict[str, Seconds]:
    network, sent = setting.network, layer_messages(setting, layer, plans)
    return {
        "gather": network.time(sent.weights, links),
        "reduce": np.where(reduces_once(plans), 0.0, network.time(sent.gradients, links)),
    }
