"""The search: memory of every candidate, time of those that fit, and the best of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.errors import unknown_name
from planner.estimate.memory import memory_use
from planner.estimate.records import MemoryUse, StepTime
from planner.estimate.step_time import step_time
from planner.quantities import Column
from planner.rows import Rows
from planner.search.advice import Case, nothing_fits
from planner.search.enumerate import Bounds, Candidates, enumerate_plans
from planner.search.fitting import MemoryEstimate, fitting
from planner.search.fix import Fix
from planner.search.sorting import first_rows, front_rows
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.group_links import placed_links
from planner.topology.links import Links, PlacedLinks

OBJECTIVES = ("throughput", "usd", "memory")
"""`throughput` and `usd` (per token) both put the fastest first, since all plans use the same ranks; `memory` puts the
smallest peak first, and the faster of equals."""
CHUNK = 32768


@dataclass(frozen=True)
class Estimates:
    """The functions that judge plans."""

    memory: MemoryEstimate = memory_use
    links: Callable[[Plan, Cluster], Links | PlacedLinks] = placed_links
    time: Callable[..., StepTime] = step_time


@dataclass(frozen=True, eq=False)
class Scored(Rows):
    """Plans with their estimates: one row or columns."""

    plan: Plan
    time: StepTime
    memory: MemoryUse


@dataclass(frozen=True, eq=False)
class Ranking:
    """The answer to a search.

    `plans` are the best, best first; `front` those that no other plan beats in both time and memory, fastest first;
    `families` the best of each family, by the code that the search was given for it. `evaluated` counts distinct
    legal plans, `feasible` those that fit, `rejected` the others by reason (illegal plans of which only some fields
    were chosen count once).
    """

    plans: Scored
    front: Scored
    families: Mapping[int, Scored]
    evaluated: int
    feasible: int
    rejected: Mapping[str, int]
    search_seconds: float

    @property
    def best(self) -> Scored:
        """The first plan."""
        return self.plans[0]


def search(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    stack: Stack,
    profile: Profile,
    objective: str = "throughput",
    fix: Fix | None = None,
    top: int = 5,
    family: Callable[[Plan], Column] | None = None,
    bounds: Bounds | None = None,
    estimates: Estimates | None = None,
) -> Ranking:
    """The best plans of all that are legal and fit.

    `family` gives each plan of columns a code; the ranking then holds the best of each. Raises SpecError for what
    cannot be, NoFeasiblePlan (with what would help) if nothing legal fits.
    """
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES, where="--objective")
    started, judge = time.perf_counter(), estimates or Estimates()
    case = Case(model, cluster, workload, stack, fix or {})
    candidates = enumerate_plans(model, cluster, workload, stack=stack, fix=fix, bounds=bounds)
    memory = fitting(candidates, model, cluster, workload, stack, estimate=judge.memory)
    if not memory.fits.any():
        raise nothing_fits(case, candidates, memory, judge.memory)
    feasible = np.flatnonzero(memory.fits)
    timed = _Timed(case, candidates, feasible, profile, judge)
    seconds, peak = timed.totals(), memory.peak[feasible]
    keys = (peak, seconds) if objective == "memory" else (seconds, peak)
    plans = candidates.plans[feasible]
    codes = np.zeros(0) if family is None else family(plans)
    parts = [first_rows(plans, keys, top), front_rows(plans, seconds, peak)]
    names = np.unique(codes).astype(int).tolist()
    parts += [_best_of(plans, keys, np.flatnonzero(codes == code)) for code in names]
    first, front, *families = timed.scored(parts)
    return Ranking(
        plans=first,
        front=front,
        families={code: best[0] for code, best in zip(names, families, strict=True)},
        evaluated=len(candidates),
        feasible=len(feasible),
        rejected={**candidates.rejected, **memory.rejected},
        search_seconds=time.perf_counter() - started,
    )


def _best_of(plans: Plan, keys: tuple[Column, Column], rows: Column) -> Column:
    """The first of some rows."""
    return rows[first_rows(plans[rows], (keys[0][rows], keys[1][rows]), 1)]


@dataclass(frozen=True, eq=False)
class _Timed:
    """The candidates that fit; rows are counted among these."""

    case: Case
    candidates: Candidates
    feasible: Column
    profile: Profile
    judge: Estimates

    def totals(self) -> Column:
        """Step time of each in seconds."""
        parts = np.split(self.feasible, range(CHUNK, len(self.feasible), CHUNK))
        return np.concatenate([np.asarray(self._time(self.candidates.rows(part)).total) for part in parts])

    def scored(self, parts: Sequence[Column]) -> list[Scored]:
        """Some with their estimates in full, part by part."""
        rows, case = np.concatenate(parts), self.case
        plans = self.candidates.rows(self.feasible[rows])
        all_parts = Scored(plans, self._time(plans), self.judge.memory(case.model, plans, case.workload, case.stack))
        ends = np.cumsum([len(part) for part in parts])
        return [all_parts[end - len(part) : end] for part, end in zip(parts, ends.tolist(), strict=True)]

    def _time(self, plans: Plan) -> StepTime:
        case = self.case
        links = self.judge.links(plans, case.cluster)
        extra: dict[str, Any] = {"profile": self.profile, "stack": case.stack}
        return self.judge.time(case.model, plans, case.workload, case.cluster, links, **extra)
