"""What each stage of one plan takes for a micro-batch: the figures that a schedule is played with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.layer_communication import layer_communication
from planner.estimate.layer_time import layer_time
from planner.estimate.once_per_step import once_per_step_by_rank
from planner.estimate.setting import Setting
from planner.estimate.stage_time import layer_micro_batch
from planner.estimate.stages import Layout, all_ranks, layout
from planner.quantities import Seconds
from planner.spec.plan import Plan
from planner.topology.links import Links

HEAD_PARTS = 3
"""The head's time has three like parts: its forward with the loss, and the gradients of its inputs and weights."""


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of a forward, of the gradients of inputs and of those of weights, by stage as the data flows.

    Communication that compute does not hide is in them; `send` is one tensor's way to the next stage.
    """

    forward: tuple[Seconds, ...]
    input_gradient: tuple[Seconds, ...]
    weight_gradient: tuple[Seconds, ...]
    send: Seconds


def stage_seconds(setting: Setting, plan: Plan, links: Links, dealt: Layout | None = None) -> StageSeconds:
    """Of one plan (scalars), with the same terms as `step_time`, its layers `dealt` as the plan says unless given."""
    plans, wired = plan.columns(), links.columns()
    dealt = dealt or layout(len(setting.model.layer_pattern), plan)
    compute, wire = layer_time(setting, plans), layer_communication(setting, plans, wired)
    layer = layer_micro_batch(setting, plans, compute, wire)
    parts = np.array([layer.forward, layer.total - layer.forward - layer.weight_gradient, layer.weight_gradient])[
        :, :, 0
    ]
    pattern = list(setting.model.layer_pattern)
    each = np.array(
        [
            parts[:, pattern[begin : begin + size]].sum(axis=1)
            for begin, size in zip(dealt.starts, dealt.sizes, strict=True)
        ]
    )
    each[-1] += (float(compute.head[0]) + float(wire.head[0])) / HEAD_PARTS
    root = once_per_step_by_rank(setting, plans, wired, all_ranks(setting.model, plan, dealt)).root[:, 0]
    each[0, 1] += root[0]
    each[-1, 1] += root[-1] * (len(root) > 1)
    forward, inputs, weights = (tuple(column.tolist()) for column in each.T)
    return StageSeconds(forward, inputs, weights, send=float(wire.send[0]))
