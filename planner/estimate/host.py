"""What the host takes to launch layers and updates: beside the device, or before it where the host computes itself."""

from __future__ import annotations

import numpy as np

from planner.cost.kernels import device_or_host_time, host_time
from planner.estimate.setting import Setting
from planner.estimate.stages import Stages
from planner.quantities import Column, Count, Seconds
from planner.spec.plan import Plan, Recompute, Sharding
from planner.spec.stack import Stack

EAGER_OPERATORS: Count = 50.0
"""Operators of one layer's forward in uncompiled Python (projections, norms, rotation, activation, residuals).

Provisional: counted by hand, to be replaced by a profiler's count.
"""
ADAPTER_OPERATORS: Count = 35.0
"""What low-rank adapters add: of each of seven projections a dropout, two products, a scale and a sum. As above."""
QUANTIZED_OPERATORS: Count = 70.0
"""What 4-bit weights add: of each of seven projections some ten, for scales that are quantized themselves, the whole
weight, and conversions. As above; without them short sequences of Qwen-7B come out at half of their published time."""


def passes(plans: Plan) -> Count:
    """Passes over a layer in its backward, each with as many launches as forward: two, and forward again."""
    return 2 + (np.asarray(plans.recompute) == Recompute.FULL)


def layer_launches(setting: Setting, plans: Plan) -> tuple[Seconds, Seconds]:
    """Host time of one layer and micro-batch, in forward and in backward: operators, and what divided layers add.

    Compiled layers dispatch divided tensors when they are compiled; hooks that gather and reduce stay.
    """
    profile = setting.profile
    eager = np.asarray(plans.compiled) == 0
    each = host_time(host_operators(plans, setting.stack, setting.workload.method), profile.launch_time)
    each = each + profile.tp_launch_time * (eager & (np.asarray(plans.tp) > 1))
    each = each + profile.pp_launch_time * (np.asarray(plans.pp) > 1)
    each = each + profile.fsdp_launch_time * (np.asarray(plans.sharding) >= Sharding.ZERO3)
    again = profile.recompute_launch_time * (eager & (np.asarray(plans.recompute) == Recompute.FULL))
    return each, passes(plans) * each + again


def update_launches(setting: Setting, stage: Stages) -> Seconds:
    """Host time of the optimizer and of clipping on each rank, seconds of shape (roles, rows)."""
    return setting.profile.update_launch_time * stage.layers.sum(axis=0)


def with_host(setting: Setting, device: Seconds, launches: Seconds) -> Seconds:
    """Time of what the host launches and the device runs; where they are one processor, of one after the other."""
    return device_or_host_time(device, launches, shared=float(setting.cluster.accelerator.runs_on_host))


def host_operators(plans: Plan, stack: Stack, method: str) -> Count:
    """Operators that the host dispatches in one layer's forward."""
    added = ADAPTER_OPERATORS * (method != "full") + QUANTIZED_OPERATORS * (method == "qlora")
    return np.where(np.asarray(plans.compiled) > 0, stack.kernels_per_layer, EAGER_OPERATORS) + added


def waits_for_collectives(setting: Setting, plans: Plan) -> Column:
    """Whether gathers and reductions of a plan are done when the call returns, so that nothing hides them.

    FSDP puts collectives on a stream of their own; a processor has none. Buckets of plain replicas (no other axis) are
    reduced by threads of their own.
    """
    alone = (np.asarray(plans.sharding) == Sharding.NONE) & (np.asarray(plans.tp) * plans.pp * plans.cp == 1)
    return np.where(alone, 0.0, float(setting.cluster.accelerator.runs_on_host))
