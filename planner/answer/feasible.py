"""Whether a question has any plan that fits, without timing one: what loops over many questions ask first."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from planner.answer.question import Question
from planner.errors import PlannerError
from planner.estimate.memory import memory_use
from planner.search.advice import LEAN
from planner.search.enumerate import Candidates, enumerate_plans
from planner.search.fitting import device_fits, host_fits, memory_limit


@dataclass(frozen=True)
class Room:
    """Whether any plan fits, and the smallest peak as a share of what a plan may use (0 where no plan is legal)."""

    fits: bool
    load: float


def room(question: Question) -> Room:
    """What the plans that need least memory find on the cluster.

    Full recomputation in one rank order needs no more than any other plan, so these are enough.
    """
    asked, candidates = question, _lean(question)
    if candidates is None:
        return Room(fits=False, load=0.0)
    fits, least = False, np.inf
    for plans in candidates.chunks():
        use = memory_use(asked.model, plans, asked.workload, asked.stack)
        fits |= bool((device_fits(use, asked.cluster) & host_fits(use, asked.cluster)).any())
        least = min(least, float(np.min(use.peak)))
    return Room(fits, least / float(memory_limit(asked.cluster)))


def _lean(question: Question) -> Candidates | None:
    """The plans that need least memory; all where a stack recomputes nothing; None where none is legal."""
    asked = question
    lean = {name: values for name, values in LEAN.items() if name not in asked.fix}
    for fix in ({**asked.fix, **lean}, asked.fix):
        with suppress(PlannerError):
            return enumerate_plans(asked.model, asked.cluster, asked.workload, stack=asked.stack, fix=fix)
    return None
