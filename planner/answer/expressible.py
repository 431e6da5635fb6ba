"""Of a ranking, the plans that the trainer of a target can express: what its stack's rules do not say yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from planner.answer.question import Question
from planner.answer.software import own_refusals
from planner.emit.targets import target_name
from planner.errors import NoFeasiblePlan
from planner.search.rank import Ranking
from planner.spec.plan import Plan
from planner.spec.plan_file import PlanFile, ProfileReference

DEPTHS = (200, 20_000)
"""How many plans are gone through for those that are shown: first, and where none of these is expressible."""


def reason_against(question: Question) -> Callable[[Plan], str]:
    """The first reason of the target's trainer against a plan; empty where there is none, or no target."""
    if question.choices.target is None:
        return lambda _plan: ""
    name = target_name(question.choices.target).trainer
    inputs = question.model, question.cluster, question.workload, question.stack
    contents = PlanFile(Plan(), *inputs, ProfileReference.of(question.profile))
    return lambda plan: next(own_refusals(replace(contents, plan=plan), name), "")


def expressible(question: Question, top: int, ranked: Callable[[int], Ranking]) -> Ranking:
    """The best `top` plans, and the front, that the target's trainer has no reason against.

    `ranked` gives the ranking with so many plans. Raises NoFeasiblePlan where none remains, with the reason.
    """
    if question.choices.target is None:
        return ranked(top)
    against = reason_against(question)
    for depth in DEPTHS:
        ranking = ranked(max(top, depth))
        kept = list(islice(_accepted(ranking, against), top))
        if kept:
            front = [not against(row.plan) for row in ranking.front]
            return replace(ranking, plans=ranking.plans[np.array(kept)], front=ranking.front[np.array(front)])
        if len(ranking.plans) < depth:
            break
    why = against(ranking.best.plan)
    raise NoFeasiblePlan(f"{question.choices.target} can express none of the plans that fit: {why}", ranking.rejected)


def _accepted(ranking: Ranking, against: Callable[[Plan], str]) -> Iterator[int]:
    return (i for i, row in enumerate(ranking.plans) if not against(row.plan))
