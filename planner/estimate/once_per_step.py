"""Once per optimizer step on each rank: gradients reduced, weights gathered, the optimizer, what offloading moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.optimizers import host_step_time, offload_time, optimizer_step_time, relative_traffic
from planner.estimate.activations import element_bytes
from planner.estimate.factor import ONCE, distinct_plans
from planner.estimate.host import update_launches, waits_for_collectives, with_host
from planner.estimate.messages import gathered_weight_bytes, gradient_messages, root_messages, weight_messages
from planner.estimate.parameters import TrainedParameters, trained_parameters
from planner.estimate.setting import Setting
from planner.estimate.stages import Stages, stages
from planner.estimate.synchronisation import keeps_weights, reduces_once
from planner.quantities import BytesPerSecond, Scalar, Seconds
from planner.spec.plan import Offload, Plan, Sharding
from planner.topology.links import Links, PlacedLinks

TYPICAL_HOST_BANDWIDTH: BytesPerSecond = 200e9
"""Memory bandwidth of a host whose own figure is not known. Provisional: eight channels of DDR4-3200."""
PCIE_EFFICIENCY: Scalar = 0.8
"""Share of a slot's bandwidth that copies from pinned memory reach. Provisional, until measured per machine."""

OF_THE_FULLEST = ("reduce", "gather", "late_reduce", "late_gather", "optimizer", "offload", "streamed")
"""Terms of which the pipeline rank with the most counts."""


@dataclass(frozen=True)
class OncePerStep:
    """Seconds of shape (rows,), each of the pipeline rank with the most of it; `root` of shape (roles, rows).

    From `once_per_step_by_rank` all are of shape (roles, rows).

    `reduce` and `gather` are on the wire, hidden or not: DDP's all-reduce; the reduce-scatter of ZeRO-1 and of
    pipelines that keep ZeRO-3's weights; the gather of weights of these and of ZeRO-2. `late_reduce` and `late_gather`
    are the parts of both that no compute is left to hide. `root` is what is gathered (this
    part is `root_gather`) and reduced of embedding and head with every micro-batch; `streamed` what a micro-batch
    brings from the host.
    """

    reduce: Seconds
    gather: Seconds
    late_reduce: Seconds
    late_gather: Seconds
    optimizer: Seconds
    offload: Seconds
    streamed: Seconds
    root: Seconds
    root_gather: Seconds


def once_per_step(setting: Setting, plans: Plan, links: Links | PlacedLinks) -> OncePerStep:
    """Times under plan columns, each distinct placement and layer split evaluated once."""
    apart = distinct_plans(plans, ONCE)
    some, wired = apart.of(plans), links[apart.first]
    each = once_per_step_by_rank(setting, some, wired, stages(setting.model, some))
    most = {name: apart.spread(getattr(each, name).max(axis=0)) for name in OF_THE_FULLEST}
    return OncePerStep(**most, root=apart.spread(each.root), root_gather=apart.spread(each.root_gather))


def once_per_step_by_rank(setting: Setting, plans: Plan, links: Links, stage: Stages) -> OncePerStep:
    """The same for each of the ranks in `stage`, whatever their number."""
    trained = trained_parameters(setting.model, plans, setting.workload, stage)
    reduce, gather = _whole_rank(setting, plans, links, trained)
    waits = waits_for_collectives(setting, plans)
    last = np.where(waits, 1.0, _last_bucket(setting, plans, trained))
    device, host, streamed = _optimizer(setting, plans, trained)
    device = with_host(setting, device, update_launches(setting, stage))
    root_gather, root_reduce = _root(setting, plans, links, trained)
    root = root_gather + root_reduce
    return OncePerStep(reduce, gather, last * reduce, waits * gather, device, host, streamed, root, root_gather)


def root_time(setting: Setting, plans: Plan, links: Links, stage: Stages) -> Seconds:
    """What is gathered and reduced of embedding and head with every micro-batch: `root` by rank, nothing else."""
    gather, reduce = _root(setting, plans, links, trained_parameters(setting.model, plans, setting.workload, stage))
    return gather + reduce


def _whole_rank(setting: Setting, plans: Plan, links: Links, trained: TrainedParameters) -> tuple[Seconds, Seconds]:
    """Reduction of all gradients of a rank, and gather of all its weights, where they happen once per step."""
    code, parameters = np.asarray(plans.sharding), (trained.dense, trained.experts)
    each = gathered_weight_bytes(setting.workload)
    reduced = setting.network.time(gradient_messages(setting, plans, *parameters), links)
    weights = setting.network.time(weight_messages(setting, *(each * count for count in parameters)), links)
    updated = (code == Sharding.ZERO1) | (code == Sharding.ZERO2) | keeps_weights(plans)
    return np.where(reduces_once(plans), reduced, 0.0), np.where(updated, weights, 0.0)


def _last_bucket(setting: Setting, plans: Plan, trained: TrainedParameters) -> Scalar:
    """Share of a rank's gradients in the bucket that is full when the backward ends, under plain replicas."""
    reduced = (trained.dense + trained.experts) * setting.stack.reduce_bytes
    replicas = np.asarray(plans.sharding) == Sharding.NONE
    return replicas * np.minimum(1.0, setting.stack.gradient_bucket / np.maximum(reduced, 1.0))


def _root(setting: Setting, plans: Plan, links: Links, trained: TrainedParameters) -> tuple[Seconds, Seconds]:
    """Gather and reduction of embedding and head with every micro-batch, which nothing runs beside."""
    weights, gradients = root_messages(setting, plans, trained.root)
    gather, reduce = setting.network.time((weights,), links), setting.network.time(gradients, links)
    return gather, np.where(reduces_once(plans), 0.0, reduce)


def _optimizer(setting: Setting, plans: Plan, trained: TrainedParameters) -> tuple[Seconds, Seconds, Seconds]:
    """The step on the device; or gradients down, the step on the host and weights up; and streamed weights."""
    workload, cluster = setting.workload, setting.cluster
    divided = np.asarray(plans.sharding) >= Sharding.ZERO1
    dense_group, expert_group = (np.where(divided, group, 1) for group in (plans.shard_group, plans.expert_shard_group))
    updated = trained.dense / dense_group + trained.experts / expert_group
    traffic = setting.stack.optimizer_traffic_bytes * relative_traffic(workload.optimizer, workload.state)
    device = optimizer_step_time(updated, traffic, setting.kernels.bandwidth)
    host = host_step_time(
        updated,
        traffic,
        cluster.node.host_memory_bandwidth or TYPICAL_HOST_BANDWIDTH,
        ranks=np.minimum(cluster.node.gpus_per_node, plans.world_size),
    )
    element = element_bytes(workload)
    pcie = {"bandwidth": cluster.accelerator.pcie_bandwidth, "efficiency": PCIE_EFFICIENCY}
    moved = offload_time(updated, element, element, **pcie)
    both_passes = offload_time(updated, 0.0, 2 * element, **pcie)
    on_host, all_weights = (np.asarray(plans.offload) >= code for code in (Offload.OPTIMIZER, Offload.ALL))
    return (
        np.where(on_host, 0.0, device),
        np.where(on_host, host + moved, 0.0),
        np.where(all_weights, both_passes, 0.0),
    )
