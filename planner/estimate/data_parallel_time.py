"""Data-parallel communication that happens once per step, or once per micro-batch for the root unit of ZeRO-3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.overlap import exposed_time
from planner.estimate.activations import element_bytes
from planner.estimate.factor import STAGES, WIRE, distinct_plans
from planner.estimate.layer_communication import LayerCommunication, gathered_weight_bytes, gradient_reduction
from planner.estimate.parameters import RankParameters
from planner.estimate.setting import Setting
from planner.estimate.stage_time import MicroBatchTime
from planner.quantities import Column, Seconds
from planner.spec.plan import Plan, Sharding
from planner.topology.links import Links, PlacedLinks


@dataclass(frozen=True)
class DataParallelWire:
    """Seconds on the wire of shape (rows,), hidden or not.

    `reduce` and `gather` happen once per step: DDP's all-reduce; the reduce-scatter of ZeRO-1 and ZeRO-2 and their
    gather of new weights. `root` is ZeRO-3's gather and reduction of embedding and head.
    """

    reduce: Seconds
    gather: Seconds
    root: Seconds


def data_parallel_wire(
    setting: Setting, plans: Plan, links: Links | PlacedLinks, rank: RankParameters, role: Column
) -> DataParallelWire:
    """Communication of the rank whose parameters are given (and whose role they depend on)."""
    placed = distinct_plans(plans, (*WIRE, *STAGES), role)
    some, first = placed.of(plans), placed.first
    wire = _wire(setting, some, links[first], RankParameters(*(part[first] for part in rank.parts)))
    return DataParallelWire(placed.spread(wire.reduce), placed.spread(wire.gather), placed.spread(wire.root))


def _wire(setting: Setting, plans: Plan, links: Links, rank: RankParameters) -> DataParallelWire:
    network, code = setting.network, np.asarray(plans.sharding)

    def gathered(bytes_each: float) -> Seconds:
        dense = network.all_gather(rank.dense * bytes_each, links.dp_shard)
        return dense + network.all_gather(rank.experts * bytes_each, links.expert_shard)

    reduced = gradient_reduction(setting, plans, links, rank.dense, rank.experts)
    completing = np.where(code == Sharding.NONE, gathered(setting.stack.reduce_bytes), 0.0)
    updated = np.where(code == Sharding.NONE, 0.0, gathered(gathered_weight_bytes(setting.workload)))
    root_gather = network.all_gather(rank.root * element_bytes(setting.workload), links.dp_shard)
    trained_root = rank.root * (setting.workload.method == "full")
    root_reduce = gradient_reduction(setting, plans, links, trained_root, 0.0 * trained_root)
    whole = code < Sharding.ZERO3
    return DataParallelWire(
        reduce=np.where(whole, reduced + completing, 0.0),
        gather=np.where(whole, updated, 0.0),
        root=np.where(whole, 0.0, root_gather + root_reduce),
    )


def once_per_step_exposed(setting: Setting, wire: DataParallelWire, micro_batch: MicroBatchTime) -> Seconds:
    """What the last backward does not hide of the reduction, nor the next forward of the gather of new weights.

    Gradients of earlier micro-batches are summed locally. Nothing is hidden where the stack does not overlap them.
    """
    backward = micro_batch.total - micro_batch.forward
    return _exposed(setting, backward, wire.reduce) + _exposed(setting, micro_batch.forward, wire.gather)


def _exposed(setting: Setting, compute: Seconds, communication: Seconds) -> Seconds:
    beside = exposed_time(compute, communication, penalty=setting.profile.overlap_penalty)
    return np.where(setting.stack.overlap_gradients > 0, beside, communication)


def kept_weights_exposed(
    setting: Setting, plans: Plan, layers: Column, wire: LayerCommunication, micro_batch: MicroBatchTime
) -> Seconds:
    """ZeRO-3 in a pipeline that keeps its weights: one gather in the first forward, one reduction in the last backward.

    `layers` counts the rank's layers, shape (kinds, rows).
    """
    gather, reduce = ((layers * part).sum(axis=0) for part in (wire.gather, wire.reduce))
    backward, penalty = micro_batch.total - micro_batch.forward, setting.profile.overlap_penalty
    exposed = exposed_time(micro_batch.forward, gather, penalty=penalty)
    exposed = exposed + exposed_time(backward, reduce, penalty=penalty)
    return np.where(keeps_weights(plans), exposed, 0.0)


def root_exposed(plans: Plan, wire: DataParallelWire) -> Seconds:
    """The root unit's communication, beside which nothing runs.

    Once per micro-batch, or once per step in a pipeline that keeps its weights.
    """
    return wire.root * np.where(keeps_weights(plans), 1, plans.num_microbatches)


def keeps_weights(plans: Plan) -> Column:
    """Rows whose pipeline gathers ZeRO-3's weights once per step."""
    return (np.asarray(plans.sharding) == Sharding.ZERO3_KEEP) & (np.asarray(plans.pp) > 1)
