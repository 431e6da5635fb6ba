"""What single changes of the inputs would do: to the same plan, and where the best plan is chosen anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from planner.answer.compared.changes import Change, changes, turned
from planner.answer.compared.comparison import chance_slower
from planner.answer.compared.figures import percent
from planner.answer.evaluate import evaluate
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.answer.recommendation import SAME
from planner.errors import NoFeasiblePlan, PlannerError, SpecError
from planner.estimate.interval import TIE
from planner.explain.reasons import why_slower
from planner.quantities import GIB, counted, format_seconds
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.spec.codec import plan_to_plain
from planner.spec.plan import Plan

SCHEMA_VERSION = 1
STEP = 1.01
"""A dial is turned by 1 % for its sensitivity."""


@dataclass(frozen=True, eq=False)
class Effect:
    """A plan under a changed question against the plan before; without a plan `reason` says why there is none."""

    before: RankedPlan
    after: RankedPlan | None
    reason: str = ""

    @property
    def time(self) -> float:
        """Step time over that before; 0 without a plan."""
        return self.after.step_time / self.before.step_time if self.after else 0.0

    @property
    def speed(self) -> float:
        """Tokens/s over those before; 0 without a plan."""
        return _speed(self.after) / _speed(self.before) if self.after else 0.0

    @property
    def memory(self) -> float:
        """Peak over that before; 0 without a plan."""
        return self.after.peak / self.before.peak if self.after else 0.0

    @property
    def cost(self) -> float:
        """Cost of a token over that before; 0 without a plan. Without prices, GPU-seconds are what a token costs."""
        return _cost(self.after) / _cost(self.before) if self.after else 0.0

    @property
    def tie(self) -> bool:
        """Whether a measurement might well show the opposite."""
        if self.after is None or abs(self.speed - 1) < SAME:
            return False
        chance = chance_slower(self.before, self.after)
        return max(chance, 1 - chance) < TIE

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        if self.after is None:
            return {"plan": None, "reason": self.reason}
        ratios = {"step_time_ratio": self.time, "tokens_per_s_ratio": self.speed}
        ratios |= {"peak_memory_ratio": self.memory, "cost_per_token_ratio": self.cost}
        after = self.after
        return {
            "name": after.name,
            "plan": plan_to_plain(after.plan),
            **ratios,
            "tie": self.tie,
            "step_time_s": after.step_time,
            "peak_memory_gib": after.peak / GIB,
            "memory_verdict": after.verdict.name.lower(),
            "usd_per_million_tokens_range": after.usd_per_million_tokens,
        }


@dataclass(frozen=True, eq=False)
class Row:
    """One change: `held` is the same plan, `chosen` the best one under the changed question.

    `sensitivity` is by how much per cent the held plan's step time changes for each per cent more; None where an amount
    cannot be turned a little.
    """

    text: str
    words: str
    held: Effect
    chosen: Effect
    sensitivity: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "change": self.text,
            "words": self.words,
            "sensitivity": self.sensitivity,
            "same_plan": self.held.as_dict(),
            "best_plan": self.chosen.as_dict(),
        }


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The answer: the plan as it is, the best plan now (`now`), and every change."""

    base: RankedPlan
    now: Row
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        """The change with which the best plan is fastest; None where none is faster than now."""
        fit = [row for row in self.rows if row.chosen.after]
        best = max(fit, key=lambda row: row.chosen.speed, default=None)
        return best if best and best.chosen.speed > self.now.chosen.speed * (1 + SAME) else None

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        asked = self.base.question
        base = f"{asked.model.name} on {asked.cluster.name} takes {format_seconds(self.base.step_time)} per step"
        base += f" with {self.base.name}{self._better_now}"
        count = counted(len(self.rows), "change")
        if self.best is None:
            return f"{base}; none of {count} makes it faster."
        row, plan = self.best, self.best.chosen.after
        held = f"{percent(row.held.speed)} tokens/s with the same plan, " if row.held.after else ""
        anew = f"{percent(row.chosen.speed)}{'' if held else ' tokens/s'} with the best ({plan.name if plan else ''})"
        helps = f"of {count} {row.text} helps most" if len(self.rows) > 1 else f"with {row.text}"
        tie = ", within what predictions differ by" if row.chosen.tie else ""
        return f"{base}; {helps}: {held}{anew}{tie}."

    @property
    def _better_now(self) -> str:
        """Where the plan is not the best as it is: that, in words."""
        plan = self.now.chosen.after
        if plan is None or self.now.chosen.speed < 1 + SAME:
            return ""
        return f" ({percent(self.now.chosen.speed)} tokens/s with the best as it is, {plan.name})"

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """For each change that makes a difference to the same plan: which terms of its time account for it."""
        return tuple((row.text, _reason(self.base, row)) for row in self.rows if _reason(self.base, row))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner compare --what-if ... --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "answer": self.sentence,
            **self.base.question.as_dict(),
            "base": {"name": self.base.name, "plan": plan_to_plain(self.base.plan), **self.base.prediction()},
            "now": self.now.as_dict(),
            "changes": [row.as_dict() for row in self.rows],
            "reasons": dict(self.reasons),
        }


def what_if(base: RankedPlan, wanted: str | Sequence[Change]) -> WhatIf:
    """What each change does to a plan, and to the best plan of its question.

    `wanted` is a text such as "nic=2x,memory=40GB". Raises SpecError for a change that cannot be.
    """
    named = changes(wanted) if isinstance(wanted, str) else tuple(wanted)
    now = Row("no change", "as it is", Effect(base, base), _chosen(base, base.question))
    return WhatIf(base, now, tuple(_row(base, change) for change in named))


def _row(base: RankedPlan, change: Change) -> Row:
    asked = change.apply(base.question)
    return Row(change.text, change.words, _held(base, asked), _chosen(base, asked), _sensitivity(base, change))


def _held(base: RankedPlan, asked: Question) -> Effect:
    """The same degrees and micro-batches, as many of them as the batch now needs."""
    try:
        return Effect(base, evaluate(asked, _same_plan(base.plan, asked)))
    except PlannerError as error:
        return Effect(base, None, str(error))


def _same_plan(plan: Plan, asked: Question) -> Plan:
    """The plan under a changed question. Raises SpecError where it cannot be the same."""
    if plan.world_size != asked.cluster.world_size:
        raise SpecError(f"the plan is for {counted(int(plan.world_size), 'GPU')}")
    number, rest = divmod(asked.workload.global_batch_size, int(plan.dp * plan.micro_batch_size))
    if rest or not number:
        raise SpecError("the batch is no multiple of the plan's micro-batches")
    same = replace(plan, num_microbatches=number)
    for broken in reasons(same, Problem.of(asked.model, asked.cluster, asked.workload, asked.stack))[:1]:
        raise SpecError(f"the plan is not legal: {broken}")
    return same


def _chosen(base: RankedPlan, asked: Question) -> Effect:
    try:
        return Effect(base, best_plan(asked))
    except NoFeasiblePlan as error:
        return Effect(base, None, str(error))


def _sensitivity(base: RankedPlan, change: Change) -> float | None:
    """The finite difference of the logarithms of step time and amount."""
    if change.dial is None or change.dial.whole:
        return None
    after = evaluate(turned(base.question, change.dial, STEP), base.plan)
    return log(after.step_time / base.step_time) / log(STEP)


def _reason(base: RankedPlan, row: Row) -> str:
    """The terms of the held plan's time that a change moves; empty where it moves none."""
    after = row.held.after
    if after is None or abs(row.held.time - 1) < SAME:
        return ""
    if row.held.time > 1:
        return f"{percent(row.held.time)} step time with the same plan: {why_slower(base.time, after.time)}"
    slower = why_slower(after.time, base.time)
    return f"{percent(row.held.time)} step time with the same plan; as it is there is {slower}"


def _speed(ranked: RankedPlan) -> float:
    return float(ranked.speed.tokens_per_s)


def _cost(ranked: RankedPlan) -> float:
    money = ranked.usd_per_million_tokens
    return sum(money) / 2 if money else 1 / float(ranked.speed.tokens_per_s_per_gpu)
