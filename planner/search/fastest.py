"""The fastest plans of a search alone, without timing those that cannot be among them, on one network or on several.

Which plans are legal and fit does not depend on how fast a network is, so this is found out once. Plans that differ in
schedule and recomputation alone are twins: none takes less than what the one that recomputes least takes without bubble
and without sends between stages. So of twins that one is timed first, and another only where this floor is among the
times that are wanted. What comes out is what timing every plan gives.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.distinct import distinct
from planner.estimate.memory import memory_use
from planner.estimate.records import StepTime
from planner.estimate.step_time import step_time
from planner.quantities import Column, Seconds
from planner.search.advice import Case, nothing_fits
from planner.search.enumerate import Candidates, enumerate_plans
from planner.search.fitting import fitting
from planner.search.rank import CHUNK, Scored
from planner.search.sorting import first_rows
from planner.spec.cluster import Cluster
from planner.spec.plan import Offload, Plan
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
    """The plans of a case that are legal and fit: rows of its candidates, and the peak of each in bytes.

    `lead` is for each the twin that is timed first, as an index of these rows.
    """

    case: Case
    candidates: Candidates
    rows: Column
    peak: Column
    lead: Column

    @classmethod
    def of(cls, case: Case) -> Feasible:
        """All of a case. Raises SpecError and NoFeasiblePlan as `search` does."""
        inputs = case.model, case.cluster, case.workload
        candidates = enumerate_plans(*inputs, stack=case.stack, fix=case.fix)
        memory = fitting(candidates, *inputs, case.stack, estimate=memory_use)
        if not memory.fits.any():
            raise nothing_fits(case, candidates, memory, memory_use)
        rows = np.flatnonzero(memory.fits)
        return cls(
            case,
            candidates,
            rows,
            memory.peak[rows],
            _leads(candidates.plans[rows], alike=len(case.model.layer_kinds) == 1),
        )

    def serves(self, cluster: Cluster) -> bool:
        """Whether a cluster of the same nodes has the same plans: rank orders differ where the network has borders."""
        return cluster.node.fabric.thin_blocks == self.case.cluster.node.fabric.thin_blocks

    def fastest(self, count: int, cluster: Cluster, profile: Profile) -> Scored:
        """The `count` fastest plans, as `search` ranks them; the cluster may differ from the case's in its network."""
        seconds, floor = np.full((2, len(self.rows)), np.inf)
        leads = np.unique(self.lead)
        seconds[leads], floor[leads] = self._seconds(leads, cluster, profile)
        twins = np.flatnonzero(self.lead != np.arange(len(self.rows)))
        twins = twins[np.argsort(floor[self.lead[twins]], kind="stable")]
        while len(twins):
            last = np.partition(seconds, count - 1)[count - 1] if len(seconds) > count else np.inf
            part = twins[:BATCH][floor[self.lead[twins[:BATCH]]] <= last * (1 + ROUNDING)]
            seconds[part], _ = self._seconds(part, cluster, profile)
            twins = twins[BATCH:] if len(part) == BATCH else part[:0]
        timed = np.flatnonzero(np.isfinite(seconds))
        plans = self.candidates.plans[self.rows[timed]]
        first = timed[first_rows(plans, (seconds[timed], self.peak[timed]), count)]
        found, case = self.candidates.rows(self.rows[first]), self.case
        memory = memory_use(case.model, found, case.workload, case.stack)
        return Scored(found, self._time(found, cluster, profile), memory)

    def _seconds(self, which: Column, cluster: Cluster, profile: Profile) -> tuple[Seconds, Seconds]:
        """Step time of some of the rows, and what none of their twins can take less than."""
        totals, floors = [np.zeros(0)], [np.zeros(0)]
        for start in range(0, len(which), CHUNK):
            plans = self.candidates.rows(self.rows[which[start : start + CHUNK]])
            time = self._time(plans, cluster, profile)
            totals.append(np.asarray(time.total))
            floors.append(totals[-1] - time.bubble - time.pp_exposed)
        return np.concatenate(totals), np.concatenate(floors)

    def _time(self, plans: Plan, cluster: Cluster, profile: Profile) -> StepTime:
        case, links = self.case, placed_links(plans, cluster)
        return step_time(case.model, plans, case.workload, cluster, links, profile=profile, stack=case.stack)


def _leads(plans: Plan, *, alike: bool) -> Column:
    """For each plan the twin that recomputes least; itself where offloading makes time less simple."""
    own = np.arange(len(plans))
    if (np.asarray(plans.offload) != Offload.NONE).any():
        return own
    free = ("recompute", *(SCHEDULE if alike else ()))
    twins = distinct([np.asarray(getattr(plans, each.name)) for each in fields(plans) if each.name not in free])
    order = np.lexsort((np.asarray(plans.recompute), twins.index))
    first = np.ones(len(plans), dtype=bool)
    first[1:] = twins.index[order[1:]] != twins.index[order[:-1]]
    return own[order[first]][twins.index]
