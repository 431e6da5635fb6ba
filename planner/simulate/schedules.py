"""All known schedules by the names that people type, and those of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.errors import SpecError, unknown_name
from planner.simulate.actions import Order
from planner.simulate.looped_schedules import (
    gpipe,
    interleaved,
    interleaved_zero_bubble,
    looped_bfs,
    one_f_one_b,
    zb_h1,
)
from planner.simulate.v_schedules import CHUNKS, dual_pipe_v, zb_v
from planner.spec.plan import Schedule

SCHEDULES: Mapping[str, Callable[..., Order]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "looped-bfs": looped_bfs,
    "zb-h1": zb_h1,
    "interleaved-zb": interleaved_zero_bubble,
    "zb-v": zb_v,
    "dualpipe-v": dual_pipe_v,
}
"""Schedules by name: functions of ranks, micro-batches and, unless fixed, stages a rank."""

FIXED_CHUNKS: Mapping[str, int] = {"gpipe": 1, "1f1b": 1, "zb-h1": 1, "zb-v": CHUNKS, "dualpipe-v": CHUNKS}
"""Stages a rank of those schedules that leave no choice."""

NAME_OF: Mapping[Schedule, str] = {
    Schedule.NONE: "1f1b",
    Schedule.GPIPE: "gpipe",
    Schedule.ONE_F_ONE_B: "1f1b",
    Schedule.INTERLEAVED: "interleaved",
    Schedule.ZB_H1: "zb-h1",
}
"""What a plan's schedule is called here; one stage alone does as 1F1B does: a forward, its backward."""


def known_order(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> Order:
    """The order of a known schedule; `chunks` are stages a rank: what the schedule needs, or 2, unless given.

    Raises SpecError where the name is unknown, or the schedule not made for these numbers.

    >>> known_order("zb-v", 2, 3).rank_of
    (0, 1, 1, 0)
    """
    if name.lower() not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES)
    schedule, fixed = SCHEDULES[name.lower()], FIXED_CHUNKS.get(name.lower())
    if fixed is None:
        return schedule(ranks, microbatches, 2 if chunks is None else chunks)
    if chunks not in (None, fixed):
        raise SpecError(f"{name} with {chunks} stages a rank; it is made for {fixed}")
    return schedule(ranks, microbatches)
