"""What changes of the inputs would do, printed for people."""

from __future__ import annotations

from planner.answer.compared.figures import percent
from planner.answer.compared.what_if import Effect, Row, WhatIf
from planner.cli.printing import Heading, say, table
from planner.estimate.interval import Verdict


def print_what_if(found: WhatIf) -> None:
    """Every change to the same plan and to the best plan, and what accounts for it."""
    moved = found.now.chosen.after
    now = [found.now] if moved is not None and not moved.same(found.base) else []
    table(_headings(), [_row(row) for row in (*now, *found.rows)])
    say()
    if any(row.held.tie or row.chosen.tie for row in found.rows):
        say("~ within what predictions differ by: the chance of the opposite is over 20 %.", indent="  ")
    if any(row.sensitivity is not None for row in found.rows):
        say("per 1 %: change of the same plan's step time in per cent for each per cent more", indent="  ")
    priced = found.base.usd_per_million_tokens is not None
    held = "at the price per GPU-hour as it is" if priced else "in GPU-seconds, since no price is known"
    say(f"cost per token: {held}", indent="  ")
    for text, reason in found.reasons:
        say(f"{text}: {reason}", indent="  ")
    for row in found.rows:
        for what, effect in (("same plan", row.held), ("best plan", row.chosen)):
            if effect.after is None:
                say(f"{row.text}: {what}: {effect.reason}", indent="  ")
    say()


def _headings() -> list[Heading]:
    same = [Heading(f"same plan:\n{name}", place) for name, place in _COLUMNS]
    best = [Heading(f"best plan:\n{name}", place + 1) for name, place in _COLUMNS]
    change, plan = Heading("change", 1, left=True), Heading("best plan", 1, left=True)
    return [change, *same, Heading("per 1 %", 3), *best, plan]


_COLUMNS = (("step time", 1), ("tokens/s", 1), ("memory", 1), ("cost per\ntoken", 2))


def _row(row: Row) -> list[str]:
    small = "" if row.sensitivity is None else f"{row.sensitivity:+.2f} %".replace("-0.00", "0").replace("+0.00", "0")
    plan = row.chosen.after.name if row.chosen.after else "nothing fits"
    return [row.text, *_cells(row.held), small, *_cells(row.chosen), plan]


def _cells(effect: Effect) -> list[str]:
    after = effect.after
    if after is None:
        return ["-", "-", "-", "-"]
    unfit = after.verdict is Verdict.DOES_NOT_FIT
    return [
        percent(effect.time),
        f"{percent(effect.speed)}{'~' if effect.tie else ''}",
        f"{percent(effect.memory)}{' (does not fit)' if unfit else ''}",
        percent(effect.cost),
    ]
