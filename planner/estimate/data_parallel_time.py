"""Data-parallel communication that happens once per step, or once per micro-batch for the root unit of ZeRO-3."""

from __future__ import annotations

import numpy as np

from planner.cost.overlap import exposed_time
from planner.estimate.activations import element_bytes
from planner.estimate.layer_communication import LayerCommunication, gathered_weight_bytes, gradient_reduction
from planner.estimate.setting import Setting
from planner.estimate.stage_time import MicroBatchTime
from planner.quantities import Column, Seconds
from planner.spec.plan import Plan, Sharding
from planner.topology.links import Links


def once_per_step_exposed(
    setting: Setting, plans: Plan, links: Links, trainable: tuple[Column, Column], micro_batch: MicroBatchTime
) -> Seconds:
    """DDP's all-reduce, ZeRO-1's and ZeRO-2's reduce-scatter and gather, what the last backward does not hide.

    Gradients of earlier micro-batches are summed locally; the gather of new weights runs beside the next forward
    where the stack overlaps gradients, else alone. `trainable` are the parameters outside and in experts.
    """
    network, replicated = setting.network, np.asarray(plans.sharding) < Sharding.ZERO3
    sharded = np.asarray(plans.sharding) >= Sharding.ZERO1
    each = setting.stack.reduce_bytes
    dense, experts = trainable
    reduce = gradient_reduction(setting, plans, links, dense, experts)
    all_reduce = reduce + network.all_gather(dense * each, links.dp_shard)
    all_reduce = all_reduce + network.all_gather(experts * each, links.expert_shard)
    weight = gathered_weight_bytes(setting.workload)
    gather = network.all_gather(dense * weight, links.dp_shard)
    gather = gather + network.all_gather(experts * weight, links.expert_shard)
    backward = micro_batch.total - micro_batch.forward
    reducing = np.where(sharded, reduce, all_reduce)
    gathering = np.where(sharded, gather, 0.0)
    hidden = _exposed(setting, backward, reducing) + _exposed(setting, micro_batch.forward, gathering)
    return np.where(replicated, hidden, 0.0)


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


def root_exposed(setting: Setting, plans: Plan, links: Links, root: Column) -> Seconds:
    """ZeRO-3's gather and reduction of embedding and head (`root` parameters): nothing runs beside them.

    Once per micro-batch, or once per step in a pipeline that keeps its weights.
    """
    sharded = np.asarray(plans.sharding) >= Sharding.ZERO3
    trained = setting.workload.method == "full"
    gather = setting.network.all_gather(root * element_bytes(setting.workload), links.dp_shard)
    reduce = gradient_reduction(setting, plans, links, root * trained, 0.0 * root)
    return np.where(sharded, gather + reduce, 0.0) * np.where(keeps_weights(plans), 1, plans.num_microbatches)


def keeps_weights(plans: Plan) -> Column:
    """Rows whose pipeline gathers ZeRO-3's weights once per step."""
    return (np.asarray(plans.sharding) == Sharding.ZERO3_KEEP) & (np.asarray(plans.pp) > 1)
