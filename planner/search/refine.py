"""The best plans once more: their pipeline's schedule played, where its closed form is exact only for equal stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np

from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.stage_seconds import StageSeconds, stage_seconds, stage_seconds_of_each
from planner.quantities import Column, Seconds
from planner.simulate.actions import Kind
from planner.simulate.makespan import Program, makespan
from planner.simulate.schedules import FIXED_CHUNKS, NAME_OF, known_order
from planner.spec.plan import Plan, Schedule
from planner.topology.links import Links

MOST_ACTIONS = 20_000
"""Forwards and backwards up to which a schedule is played: some 20 ms. Beyond it the steady state, of which the closed
form is exact, is nearly all."""
EXACT = 1e-9
"""Relative difference that is rounding."""


def refined(setting: Setting, plan: Plan, links: Links, time: StepTime) -> StepTime:
    """The step time of one plan with bubble and sends as its schedule plays them."""
    if not bool(worth_playing(plan)):
        return time
    return _Pipeline(plan, time, stage_seconds(setting, plan, links)).refined()


def worth_playing(plans: Plan) -> Column:
    """Whether a plan has a pipeline, and its schedule is short enough."""
    actions = 2 * plans.pp * plans.virtual_stages * plans.num_microbatches
    return (np.asarray(plans.pp) > 1) & np.asarray(actions <= MOST_ACTIONS)


def first_refined(setting: Setting, plans: Plan, links: Links, time: StepTime) -> tuple[int, StepTime]:
    """The row that is first by its total when all are `refined` (of equals the first), and its time.

    Only schedules that may be the shortest are played.
    """
    playable = np.flatnonzero(worth_playing(plans))
    each = stage_seconds_of_each(setting, plans[playable], links[playable]) if len(playable) else []
    pipelines = {row: _Pipeline(plans[row], time[row], one) for row, one in zip(playable.tolist(), each, strict=True)}
    totals = np.array(time.total, dtype=float)
    totals[playable] = np.inf
    for row in sorted(pipelines, key=lambda row: pipelines[row].least):
        if pipelines[row].least <= totals.min() * (1 + EXACT):
            totals[row] = pipelines[row].total
    near = np.flatnonzero(totals <= totals.min() * (1 + EXACT)).tolist()
    exact = {row: pipelines[row].refined() if row in pipelines else time[row] for row in near}
    first = min(near, key=lambda row: float(exact[row].total))
    return first, exact[first]


@dataclass(frozen=True, eq=False)
class _Pipeline:
    """One plan with its step time in closed form and what its stages take."""

    plan: Plan
    time: StepTime
    each: StageSeconds

    @cached_property
    def most(self) -> Seconds:
        """Work of the busiest rank in the whole step."""
        return max(self._busy)

    @cached_property
    def _busy(self) -> list[Seconds]:
        busy, each = [0.0] * int(self.plan.pp), self.each
        for stage, parts in enumerate(zip(each.forward, each.input_gradient, each.weight_gradient, strict=True)):
            busy[stage % len(busy)] += self.plan.num_microbatches * sum(parts)
        return busy

    @cached_property
    def played(self) -> Seconds:
        """Duration of the schedule, sends included."""
        return schedule_time(self.plan, self.each)

    @property
    def total(self) -> Seconds:
        """The step time with the schedule played, up to rounding."""
        return self._other + self.played - self.most

    @cached_property
    def least(self) -> Seconds:
        """What the step takes at least by any order: the way down to a rank, all of its work, and the way back.

        Weight gradients apart may be a rank's last work, with no way back behind them.
        """
        each, ranks = self.each, int(self.plan.pp)
        back = int(self.plan.schedule) != Schedule.ZB_H1
        columns = zip(each.forward[:ranks], each.input_gradient[:ranks], each.weight_gradient[:ranks], strict=True)
        hops = (f + back * (b + w) + (1 + back) * each.send for f, b, w in columns)
        ways = accumulate(hops, initial=0.0)
        return self._other + max(way + busy for way, busy in zip(ways, self._busy, strict=False)) - self.most

    @property
    def _other(self) -> Seconds:
        """The step without waiting in the pipeline."""
        return float(self.time.total - self.time.bubble - self.time.pp_exposed)

    def refined(self) -> StepTime:
        """The step time with bubble and sends as the schedule plays them."""
        closed = self.most + self.time.bubble + self.time.pp_exposed
        if abs(self.played - closed) < EXACT * closed:
            return self.time
        without = schedule_time(self.plan, replace(self.each, send=0.0))
        return replace(self.time, bubble=without - self.most, pp_exposed=self.played - without)


def schedule_time(plan: Plan, each: StageSeconds) -> Seconds:
    """Duration of a plan's schedule on stages that take so long, sends included."""
    program = _program(
        *(int(number) for number in (plan.schedule, plan.pp, plan.num_microbatches, plan.virtual_stages))
    )
    backward = tuple(sum(pair) for pair in zip(each.input_gradient, each.weight_gradient, strict=True))
    seconds = {
        Kind.FORWARD: each.forward,
        Kind.BACKWARD: backward,
        Kind.INPUT: each.input_gradient,
        Kind.WEIGHT: each.weight_gradient,
    }
    return makespan(program, seconds, send=each.send)


@lru_cache(maxsize=64)
def _program(schedule: int, ranks: int, microbatches: int, chunks: int) -> Program:
    name = NAME_OF[Schedule(schedule)]
    order = known_order(name, ranks, microbatches, FIXED_CHUNKS.get(name) or chunks)
    return Program.of(order)
