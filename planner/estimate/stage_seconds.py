"""What each stage of one plan takes for a micro-batch: the figures that a schedule is played with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.estimate.layer_communication import layer_communication
from planner.estimate.layer_time import layer_time
from planner.estimate.once_per_step import root_time
from planner.estimate.records import Role
from planner.estimate.setting import Setting
from planner.estimate.stage_time import layer_micro_batch
from planner.estimate.stages import Layout, all_ranks, layout, stages
from planner.quantities import Column, Seconds
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
    times = _LayerSeconds.of(setting, plans, wired)
    root = root_time(setting, plans, wired, all_ranks(setting.model, plan, dealt))[:, 0]
    return times.row(0, dealt, root[[0, -1]])


def stage_seconds_of_each(setting: Setting, plans: Plan, links: Links) -> list[StageSeconds]:
    """The same for columns of plans, each as it says itself: what their layers take is found at once."""
    times = _LayerSeconds.of(setting, plans, links)
    root = root_time(setting, plans, links, stages(setting.model, plans))
    number = len(setting.model.layer_pattern)
    return [times.row(i, layout(number, plan), root[[Role.FIRST, Role.LAST], i]) for i, plan in enumerate(plans)]


@dataclass(frozen=True)
class _LayerSeconds:
    """Of plan columns: `parts` of a layer (forward and both gradients) of shape (3, kinds, rows), `head` and `send`."""

    pattern: list[int]
    parts: Column
    head: Column
    send: Column

    @classmethod
    def of(cls, setting: Setting, plans: Plan, links: Links) -> _LayerSeconds:
        compute, wire = layer_time(setting, plans), layer_communication(setting, plans, links)
        layer = layer_micro_batch(setting, plans, compute, wire)
        parts = np.array([layer.forward, layer.total - layer.forward - layer.weight_gradient, layer.weight_gradient])
        return cls(
            list(setting.model.layer_pattern), parts, np.asarray(compute.head) + wire.head, np.asarray(wire.send)
        )

    def row(self, row: int, dealt: Layout, root: Column) -> StageSeconds:
        """Of one plan; `root` is what the first and the last rank gather and reduce with every micro-batch."""
        parts = self.parts[:, :, row]
        each = np.array(
            [
                parts[:, self.pattern[begin : begin + size]].sum(axis=1)
                for begin, size in zip(dealt.starts, dealt.sizes, strict=True)
            ]
        )
        each[-1] += float(self.head[row]) / HEAD_PARTS
        each[0, 1] += root[0]
        each[-1, 1] += root[1] * (max(dealt.rank_of) > 0)
        forward, inputs, weights = (tuple(column.tolist()) for column in each.T)
        return StageSeconds(forward, inputs, weights, send=float(self.send[row]))
