"""A table of plans that grows field by field and keeps what is legal, searched and asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planner.errors import NoFeasiblePlan, SpecError
from planner.quantities import Column
from planner.search.fix import FLAG, Fix, allowed
from planner.search.legality import reason, value_name
from planner.search.problem import Problem
from planner.search.rules import Rule
from planner.spec.plan import Plan


def cross(plans: Plan, **options: Any) -> Plan:
    """Every plan with every option; `options` are equal-length columns of new values for fields, one option a row."""
    columns = {name: np.asarray(values) for name, values in options.items()}
    choices = len(next(iter(columns.values())))
    rows = plans[np.repeat(np.arange(len(plans)), choices)]
    return replace(rows, **{name: np.tile(values, len(plans)) for name, values in columns.items()})


def up_to(largest: int, values: Column) -> Column:
    """The values up to the largest; all of them where that leaves none."""
    within = values[values <= largest]
    return within if len(within) else values


@dataclass(frozen=True, eq=False)
class Sieve:
    """Lets through what the problem and the user allow, and counts by reason what it holds back.

    A plan is held back when it is a few fields old, so one count stands for all plans that would have grown from it.
    """

    problem: Problem
    fix: Fix
    rejected: Counter[str] = field(default_factory=Counter)

    def legal(self, plans: Plan, rules: Iterable[Rule]) -> Plan:
        """Plans that obey the rules. Raises SpecError or NoFeasiblePlan if none does."""
        here: Counter[str] = Counter()
        left = plans
        for rule in rules:
            mask = np.broadcast_to(rule.holds(left, self.problem), len(left))
            if not mask.all():
                here[reason(rule, self.problem)] += int(len(left) - mask.sum())
                left = left[mask]
        self.rejected.update(here)
        if not len(left):
            raise self._nothing_left(here)
        return left

    def possible(self, plans: Plan, mask: bool | Column, why: str) -> Plan:
        """Plans in the mask; the others are no plans at all and not counted. Raises as `legal` if none is left."""
        if not np.any(mask):
            raise self._nothing_left(Counter({why: len(plans)}))
        return plans[np.broadcast_to(mask, len(plans))]

    def fixed(self, plans: Plan, name: str, column: Column | None = None) -> Plan:
        """Plans whose field the user allows; `column` where it is not one of Plan's. Raises SpecError if none is."""
        if name not in self.fix:
            return plans
        values = np.asarray(getattr(plans, name) if column is None else column)
        mask = allowed(self.fix, name, values)
        if not mask.any():
            possible = ", ".join(dict.fromkeys(value_name(name, value) for value in np.unique(values)))
            raise SpecError(f"no legal plan has this {name} with the rest; possible: {possible}", where=FLAG)
        return plans[mask]

    def searched(self, name: str, values: Sequence[int] | Column) -> Column:
        """The values that the user allows."""
        column = np.asarray(values)
        return column[allowed(self.fix, name, column)]

    def asked(self, name: str, values: Sequence[int] | Column, default: int) -> Column:
        """The values that the user asks for; the default if the field is not fixed."""
        return self.searched(name, values) if name in self.fix else np.array([default])

    def _nothing_left(self, here: Counter[str]) -> Exception:
        if self.fix and len(here) == 1:
            return SpecError(f"no legal plan: {next(iter(here))}", where=FLAG)
        words = "; ".join(here)
        return NoFeasiblePlan(f"no plan is legal: {words}", self.rejected)
