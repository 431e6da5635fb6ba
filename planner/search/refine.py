"""The best plans once more: their pipeline's schedule played, where its closed form is exact only for equal stages."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.stage_seconds import StageSeconds, stage_seconds
from planner.quantities import Seconds
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
    if plan.pp == 1 or 2 * plan.pp * plan.virtual_stages * plan.num_microbatches > MOST_ACTIONS:
        return time
    each = stage_seconds(setting, plan, links)
    busy = [0.0] * int(plan.pp)
    for stage, parts in enumerate(zip(each.forward, each.input_gradient, each.weight_gradient, strict=True)):
        busy[stage % len(busy)] += plan.num_microbatches * sum(parts)
    closed = max(busy) + time.bubble + time.pp_exposed
    played = schedule_time(plan, each)
    if abs(played - closed) < EXACT * closed:
        return time
    without = schedule_time(plan, replace(each, send=0.0))
    return replace(time, bubble=without - max(busy), pp_exposed=played - without)


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
