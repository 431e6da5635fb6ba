"""The optimizer step, on the device or on the host, and what offloading moves over PCIe."""

from __future__ import annotations

import numpy as np

from planner.cost.optimizers import host_step_time, offload_time, optimizer_step_time, relative_traffic
from planner.cost.overlap import exposed_time
from planner.estimate.activations import element_bytes
from planner.estimate.setting import Setting
from planner.estimate.stage_time import MicroBatchTime
from planner.quantities import Bytes, BytesPerSecond, Column, Count, Scalar, Seconds
from planner.spec.plan import Offload, Plan, Sharding

TYPICAL_HOST_BANDWIDTH: BytesPerSecond = 200e9
"""Memory bandwidth of a host whose own figure is not known."""
PCIE_EFFICIENCY: Scalar = 0.8
"""Share of a slot's bandwidth that copies from pinned memory reach."""


def optimizer_time(setting: Setting, plans: Plan, dense: Count, experts: Count) -> Seconds:
    """Step over the parameters that a rank updates; 0 where the host does it.

    `dense` and `experts` are the rank's trained parameters before data-parallel sharding.
    """
    updated = _updated(plans, dense, experts)
    time = optimizer_step_time(updated, _traffic(setting), setting.kernels.bandwidth)
    return np.where(_on_host(plans), 0.0, time)


def offload_exposed(
    setting: Setting, plans: Plan, dense: Count, experts: Count, micro_batch: MicroBatchTime
) -> Seconds:
    """Gradients down, the host's step and weights up, one after the other; streamed weights beside the compute."""
    node, accelerator = setting.cluster.node, setting.cluster.accelerator
    updated, element = _updated(plans, dense, experts), element_bytes(setting.workload)
    host = host_step_time(
        updated,
        _traffic(setting),
        node.host_memory_bandwidth or TYPICAL_HOST_BANDWIDTH,
        ranks=np.minimum(node.gpus_per_node, plans.world_size),
    )
    pcie = {"bandwidth": accelerator.pcie_bandwidth, "efficiency": PCIE_EFFICIENCY}
    moved = offload_time(updated, element, element, **pcie)
    both_passes = offload_time(updated, 0.0, 2 * element, **pcie)
    beside = exposed_time(micro_batch.total, both_passes, penalty=setting.profile.overlap_penalty)
    streamed = np.where(np.asarray(plans.offload) == Offload.ALL, beside * plans.num_microbatches, 0.0)
    return np.where(_on_host(plans), host + moved, 0.0) + streamed


def _updated(plans: Plan, dense: Count, experts: Count) -> Count:
    """Parameters whose optimizer states the rank holds."""
    divided = np.asarray(plans.sharding) >= Sharding.ZERO1
    dense_group, expert_group = (np.where(divided, group, 1) for group in (plans.shard_group, plans.expert_shard_group))
    return dense / dense_group + experts / expert_group


def _traffic(setting: Setting) -> Bytes:
    workload = setting.workload
    return setting.stack.optimizer_traffic_bytes * relative_traffic(workload.optimizer, workload.state)


def _on_host(plans: Plan) -> Column:
    return np.asarray(plans.offload) >= Offload.OPTIMIZER
