"""The fastest plans of a search alone, without timing those that cannot be among them, on one network or on several.

Which plans are legal and fit does not depend on how fast a network is, so this is found out once. Plans that differ in
schedule and recomputation alone are twins: none takes less than what the one that recomputes least takes without bubble
and without sends between stages. So of twins that one is timed first, and another only where this floor is among the
times that are wanted. What comes out is what timing every plan gives.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.cost.optimizers import OPTIMIZERS
from planner.distinct import distinct
from planner.estimate.memory import memory_use
from planner.estimate.records import StepTime
from planner.estimate.step_time import step_time
from planner.quantities import Column, Seconds
from planner.rows import concatenate
from planner.search.advice import Case, nothing_fits
from planner.search.enumerate import Candidates, enumerate_plans
from planner.search.fitting import fitting, memory_limit, peaks
from planner.search.rank import CHUNK, Scored
from planner.search.sorting import first_rows
from planner.spec.cluster import Cluster
from planner.spec.plan import Offload, Plan, Recompute
from planner.spec.profile import Profile
from planner.topology.group_links import placed_links

BATCH = 8192
"""Plans timed at once, before the slowest of those that are wanted is known better."""
SCHEDULE = ("schedule", "virtual_stages")
"""What twins may differ in beside recomputation; where layers are alike, so that stages hold as much in any chunks."""
ROUNDING = 1e-9
"""Relative difference that is rounding."""


@dataclass(frozen=True, eq=False)
class Feasible:
    """The plans of a case that are legal and fit: rows of its candidates.

    `lead` is for each the twin that is timed first, as an index of these rows.
    """

    case: Case
    candidates: Candidates
    rows: Column
    lead: Column

    @classmethod
    def of(cls, case: Case) -> Feasible:
        """All of a case. Raises SpecError and NoFeasiblePlan as `search` does."""
        inputs = case.model, case.cluster, case.workload
        candidates = enumerate_plans(*inputs, stack=case.stack, fix=case.fix)
        rows = _fitting_rows(case, candidates)
        if not len(rows):
            memory = fitting(candidates, *inputs, case.stack, estimate=memory_use)
            raise nothing_fits(case, candidates, memory, memory_use)
        return cls(case, candidates, rows, _leads(candidates.plans[rows], alike=len(case.model.layer_kinds) == 1))

    def serves(self, cluster: Cluster) -> bool:
        """Whether a cluster of the same nodes has the same plans: rank orders differ where the network has borders."""
        return cluster.node.fabric.thin_blocks == self.case.cluster.node.fabric.thin_blocks

    def fastest(self, count: int, cluster: Cluster, profile: Profile) -> Scored:
        """The `count` fastest plans, as `search` ranks them; the cluster may differ from the case's in its network."""
        timed = _Timed(self, cluster, profile, count)
        leads = np.flatnonzero(self.lead == np.arange(len(self.rows)))
        floor = np.full(len(self.rows), np.inf)
        floor[leads] = timed.add(leads)
        floor = floor[self.lead]
        twins = np.flatnonzero(floor <= timed.last)
        twins = twins[twins != self.lead[twins]]
        twins = twins[np.argsort(floor[twins], kind="stable")]
        while len(twins):
            part = twins[:BATCH][floor[twins[:BATCH]] <= timed.last]
            timed.add(part)
            twins = twins[BATCH:] if len(part) == BATCH else part[:0]
        return timed.first()


class _Timed:
    """Those of the plans that were timed so far on one network, by index of the feasible rows.

    `last` is the time of the last of the `count` fastest (infinite where there are not so many), and rounding.
    """

    def __init__(self, feasible: Feasible, cluster: Cluster, profile: Profile, count: int) -> None:
        self.feasible, self.cluster, self.profile = feasible, cluster, profile
        self.seconds = np.full(len(feasible.rows), np.inf)
        self.fastest = np.full(count, np.inf)
        self.parts: list[StepTime] = []
        self.part_of, self.place = np.zeros((2, len(feasible.rows)), dtype=np.int32)

    @property
    def last(self) -> float:
        return float(self.fastest.max()) * (1 + ROUNDING)

    def add(self, which: Column) -> Seconds:
        """Time some; gives what none of the twins of each can take less than."""
        floors = [np.zeros(0)]
        for start in range(0, len(which), CHUNK):
            rows = which[start : start + CHUNK]
            time = self._time(rows)
            self.seconds[rows] = time.total
            some = np.concatenate([self.fastest, self.seconds[rows]])
            self.fastest = np.partition(some, len(self.fastest) - 1)[: len(self.fastest)]
            floors.append(self.seconds[rows] - time.bubble - time.pp_exposed)
            self.part_of[rows], self.place[rows] = len(self.parts), np.arange(len(rows))
            self.parts.append(time)
        return np.concatenate(floors)

    def first(self) -> Scored:
        """The fastest with their estimates."""
        case, candidates, rows = self.feasible.case, self.feasible.candidates, self.feasible.rows
        timed = np.flatnonzero(self.seconds <= self.fastest.max())
        plans = candidates.rows(rows[timed])
        memory = memory_use(case.model, plans, case.workload, case.stack)
        order = first_rows(plans, (self.seconds[timed], memory.peak), len(self.fastest))
        best = timed[order]
        times = [self.parts[part][[place]] for part, place in zip(self.part_of[best], self.place[best], strict=True)]
        return Scored(plans[order], concatenate(times), memory[order])

    def _time(self, which: Column) -> StepTime:
        case = self.feasible.case
        plans = self.feasible.candidates.rows(self.feasible.rows[which])
        links, inputs = placed_links(plans, self.cluster), (case.workload, self.cluster)
        return step_time(case.model, plans, *inputs, links, profile=self.profile, stack=case.stack)


def _fitting_rows(case: Case, candidates: Candidates) -> Column:
    """The candidates that fit. What is near the limit, and what hosts hold, is estimated in full."""
    model, workload, stack = case.model, case.workload, case.stack
    if OPTIMIZERS[workload.optimizer].paged or (np.asarray(candidates.plans.offload) != Offload.NONE).any():
        return np.flatnonzero(fitting(candidates, model, case.cluster, workload, stack, estimate=memory_use).fits)
    peak, limit = peaks(candidates, model, workload, stack), memory_limit(case.cluster)
    near = np.flatnonzero(np.abs(peak - limit) <= ROUNDING * limit)
    if len(near):
        peak[near] = memory_use(model, candidates.rows(near), workload, stack).peak
    return np.flatnonzero(peak <= limit)


def _leads(plans: Plan, *, alike: bool) -> Column:
    """For each plan the twin that recomputes least; itself where offloading makes time less simple."""
    own = np.arange(len(plans))
    if (np.asarray(plans.offload) != Offload.NONE).any():
        return own
    free = ("recompute", *(SCHEDULE if alike else ()))
    twins = distinct([np.asarray(getattr(plans, each.name)) for each in fields(plans) if each.name not in free])
    order = np.argsort(twins.index * len(Recompute) + plans.recompute, kind="stable")
    first = np.ones(len(plans), dtype=bool)
    first[1:] = twins.index[order[1:]] != twins.index[order[:-1]]
    return own[order[first]][twins.index]
