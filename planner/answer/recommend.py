"""From a question to the whole answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.answer.choices import Choices
from planner.answer.evaluate import links_of, played
from planner.answer.expressible import expressible, reason_against
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommendation import Recommendation
from planner.errors import PlannerError, SpecError
from planner.estimate.interval import tie
from planner.estimate.memory import memory_use
from planner.estimate.setting import Setting
from planner.explain.words import PlanFamily, family
from planner.search.advice import Case
from planner.search.enumerate import enumerate_plans
from planner.search.fastest import Feasible
from planner.search.fix import Values, parse_fix
from planner.search.rank import Ranking, Scored, search
from planner.search.refine import first_refined
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.topology.group_links import group_links

SHOWN = 5
"""Plans that an answer shows unless told otherwise."""
LOOK_AHEAD = 5
"""Plans behind the last that is shown which may yet turn out faster when their schedules are played."""
SIMPLE: Mapping[PlanFamily, dict[str, Values]] = {
    kind: parse_fix(f"tp=1,pp=1,cp=1,ep=1,sharding={sharding}")
    for kind, sharding in {
        PlanFamily.DDP: "ddp",
        PlanFamily.ZERO: "zero1|zero2",
        PlanFamily.FSDP: "fsdp",
        PlanFamily.HSDP: "hsdp",
    }.items()
}
"""Families that people ask about first, so that a missing one is explained."""


def recommend(
    model: Model | str | Path, cluster: Cluster | str, choices: Choices | None = None, *, top: int = SHOWN
) -> Recommendation:
    """The best `top` plans for a model on a cluster, explained.

    Raises SpecError or FileFormatError for what cannot be read, NoFeasiblePlan where nothing legal fits.
    """
    if top < 1:
        raise SpecError(f"must be at least 1, not {top}", where="top")
    return answer(ask(model, cluster, choices), top=top)


def answer(question: Question, *, top: int = SHOWN) -> Recommendation:
    """The answer to a question; which plan is first does not depend on how few are shown.

    Raises NoFeasiblePlan where nothing legal fits.
    """
    ranking = expressible(question, max(top, SHOWN) + LOOK_AHEAD, lambda number: _ranking(question, number))
    return _recommendation(question, ranking, _played_in_order(question, ranking.plans)[:top])


def best_plan(question: Question, feasible: Feasible | None = None) -> RankedPlan:
    """The first plan of the answer, without the rest of it. Raises NoFeasiblePlan where nothing legal fits.

    `feasible` are the plans that fit, where another question on the same nodes has found them.
    """
    asked, count = question, SHOWN + LOOK_AHEAD
    if asked.objective == "memory" or asked.choices.target is not None:
        plans = expressible(asked, count, lambda number: _ranking(asked, number)).plans
    else:
        plans = (feasible or feasible_plans(asked)).fastest(count, asked.cluster, asked.profile)
    first = _first_played(asked, plans)
    return RankedPlan(asked, first.plan, first.time, first.memory)


def feasible_plans(question: Question) -> Feasible:
    """The plans of a question that are legal and fit. Raises NoFeasiblePlan where none does."""
    asked = question
    return Feasible.of(Case(asked.model, asked.cluster, asked.workload, asked.stack, asked.fix))


def _first_played(question: Question, plans: Scored) -> Scored:
    """The first of `_played_in_order`."""
    asked = question
    if asked.objective == "memory":
        return replace(plans[0], time=played(asked, plans[0].plan, plans[0].time))
    setting = Setting.of(asked.model, asked.workload, asked.cluster, asked.profile, asked.stack)
    first, time = first_refined(setting, plans.plan, group_links(plans.plan, asked.cluster), plans.time)
    return replace(plans[first], time=time)


def _played_in_order(question: Question, plans: Scored) -> list[Scored]:
    """The plans with their pipelines' schedules played, in the order that this gives."""
    rows = [replace(row, time=played(question, row.plan, row.time)) for row in plans]
    if question.objective == "memory":
        return rows
    return sorted(rows, key=lambda row: float(row.time.total))


def _ranking(question: Question, top: int) -> Ranking:
    return search(
        question.model,
        question.cluster,
        question.workload,
        stack=question.stack,
        profile=question.profile,
        objective=question.objective,
        fix=question.fix,
        top=top,
        family=family,
    )


def _recommendation(question: Question, ranking: Ranking, plans: list[Scored]) -> Recommendation:
    best, against = plans[0], reason_against(question)
    known = {_key(row): row for row in plans}
    families = {PlanFamily(code): known.get(_key(row), row) for code, row in ranking.families.items()}
    for row in reversed(plans):
        families[PlanFamily(int(family(row.plan.columns())[0]))] = row
    return Recommendation(
        question=question,
        plans=tuple(_ranked(question, row, best, place) for place, row in enumerate(plans, start=1)),
        front=tuple(
            _ranked(question, known.get(_key(row), row), best, place)
            for place, row in enumerate(ranking.front, start=1)
        ),
        families={kind: _ranked(question, row, best, 1) for kind, row in families.items() if not against(row.plan)},
        too_large=dict(_too_large(question, [kind for kind in SIMPLE if kind not in families])),
        evaluated=ranking.evaluated,
        feasible=ranking.feasible,
        rejected=ranking.rejected,
        links=links_of(question, best.plan),
        search_seconds=ranking.search_seconds,
    )


def _key(row: Scored) -> tuple[float, ...]:
    """What tells a plan from others."""
    return tuple(row.plan.as_dict().values())


def _ranked(question: Question, row: Scored, best: Scored, place: int) -> RankedPlan:
    """A row of the ranking with its place; a tie is judged by step time against the best."""
    ranked = RankedPlan(question, row.plan, row.time, row.memory, rank=place)
    other = row.plan.as_dict() != best.plan.as_dict()
    return replace(ranked, tie=other and tie(float(best.time.total), ranked.step_time, question.profile))


def _too_large(question: Question, families: list[PlanFamily]) -> Iterator[tuple[PlanFamily, float]]:
    """The smallest peak (bytes) of families that have legal plans within `--fix`, none of which fits."""
    for kind in families:
        fix = {**SIMPLE[kind], **question.fix}
        try:
            candidates = enumerate_plans(
                question.model, question.cluster, question.workload, stack=question.stack, fix=fix
            )
        except PlannerError:
            continue
        uses = (memory_use(question.model, p, question.workload, question.stack) for p in candidates.chunks())
        if bool((family(candidates.rows(slice(0, 1))) == kind).all()):
            yield kind, min(float(np.min(use.peak)) for use in uses)
