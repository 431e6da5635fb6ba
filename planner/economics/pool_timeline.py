"""Several jobs on one pool of accelerators over time: who has how many, from when to when, and when each is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from math import inf
from typing import Any

from planner.economics.allocation import Counts, most_valuable, soonest_done
from planner.economics.packing import Nodes, Solve, packed
from planner.economics.pool_records import DONE, PoolJob, Span, Timeline
from planner.economics.pool_state import PoolState
from planner.quantities import Scalar, Seconds

LATE = 1e6
"""How much heavier a job counts that would miss its deadline: meeting it comes before anything else."""


class Rule(IntEnum):
    """How accelerators are divided whenever a job comes or goes."""

    TOGETHER = 0
    """So that the last job is done soonest."""
    SHORTEST_FIRST = 1
    """So that most jobs are done per time: by the share of what is left that each accelerator does."""


def reserved(jobs: Sequence[PoolJob], accelerators: int, counts: Sequence[int]) -> Timeline:
    """Every job on its own accelerators from its arrival to its end, which nobody else uses at any time."""
    ends = [job.arrival + job.work / job.speeds[n] for job, n in zip(jobs, counts, strict=True)]
    spans = [Span(i, n, job.arrival, end, 0.0) for i, (job, n, end) in enumerate(zip(jobs, counts, ends, strict=True))]
    return Timeline(tuple(jobs), accelerators, tuple(spans), tuple(ends))


def reserved_counts(jobs: Sequence[PoolJob], accelerators: int, nodes: Nodes | None = None) -> tuple[int, ...] | None:
    """The division with which the last of the jobs, each on its own from its arrival on, is done soonest.

    Deadlines come first. Exact where `nodes` are not to hold the parts; None where there are not enough accelerators.
    """
    times = [{n: _weighed(job, job.arrival + job.work / speed) for n, speed in job.speeds.items()} for job in jobs]
    if nodes is None:
        return soonest_done(times, accelerators)
    return packed(soonest_done, times, accelerators, nodes=nodes, kept=(), cost=lambda counts: _last(times, counts))


def played(
    jobs: Sequence[PoolJob], accelerators: int, rule: Rule, *, resize: bool, nodes: Nodes | None = None
) -> Timeline:
    """Jobs that come, share the pool and go: whenever one does, accelerators are divided anew by the rule, exactly.

    Without `resize` running jobs keep what they have, and only what is free is divided among those that wait. With it a
    running job changes its number where that, its pause included, ends the jobs at hand sooner than keeping.
    Every job has to fit the pool alone. With `nodes` only numbers are given that these hold side by side, jobs being
    moved together where that makes room.
    """
    return _Policy(PoolState(tuple(jobs), accelerators, nodes), rule, resize).played()


def _last(times: Sequence[Mapping[int, Seconds]], counts: Sequence[int]) -> tuple[Seconds, Seconds]:
    """The longest time of a division, and the sum of all."""
    each = [options[n] for options, n in zip(times, counts, strict=True)]
    return max(each, default=0.0), sum(each)


def _weighed(job: PoolJob, end: Seconds) -> Seconds:
    """An end, far later where it misses the deadline."""
    return end if end <= job.deadline * (1 + DONE) else LATE * end


def _sum(values: Sequence[Counts], counts: Sequence[int]) -> Scalar:
    """What a division is worth."""
    return sum(options[n] for options, n in zip(values, counts, strict=True) if n)


class _Policy:
    """A pool divided by one rule."""

    def __init__(self, state: PoolState, rule: Rule, resize: bool) -> None:
        self.state, self.rule, self.resize = state, rule, resize
        self.jobs = state.jobs

    def played(self) -> Timeline:
        """Until all are done."""
        while not self.state.done:
            self.state.give(self._division(self.state.active))
            self.state.go_on()
        return self.state.timeline

    def _division(self, active: list[int]) -> dict[int, int]:
        """The accelerators of every active job for the time from now on."""
        state = self.state
        kept = {i: state.count[i] for i in active if state.count[i]}
        waiting = [i for i in active if i not in kept]
        chosen = kept | self._by_rule(waiting, state.accelerators - sum(kept.values()), tuple(kept.values()))
        if self.resize and kept:
            anew = self._by_rule(active, state.accelerators, ())
            chosen = min((chosen, anew), key=lambda counts: self._outlook(active, counts))
        return chosen

    def _by_rule(self, some: list[int], units: int, kept: Sequence[int]) -> dict[int, int]:
        """The division of so many accelerators among some jobs; those that get none are left out."""
        if self.rule == Rule.SHORTEST_FIRST:
            worth = self._worth(some)
            counts = self._solved(most_valuable, worth, units, kept, lambda chosen: -_sum(worth, chosen)) or ()
            return {i: n for i, n in zip(some, counts, strict=False) if n}
        times = {i: {n: self._ahead(i, n) for n in self.jobs[i].speeds} for i in some}
        admitted = list(some)
        while admitted:
            options = [times[i] for i in admitted]
            found = self._solved(soonest_done, options, units, kept, lambda chosen, each=options: _last(each, chosen))
            if found is not None:
                return dict(zip(admitted, found, strict=True))
            admitted.remove(min(admitted, key=lambda i: (self.jobs[i].priority, -self.jobs[i].arrival, -i)))
        return {}

    def _solved(
        self, solve: Solve, options: Sequence[Counts], units: int, kept: Sequence[int], cost: Callable[..., Any]
    ) -> tuple[int, ...] | None:
        """The best division, of those that the nodes hold if there are nodes."""
        if self.state.nodes is None:
            return solve(options, units)
        return packed(solve, options, units, nodes=self.state.nodes, kept=kept, cost=cost)

    def _worth(self, some: list[int]) -> list[dict[int, Scalar]]:
        """Jobs done per time by each number of accelerators; a deadline that it meets is worth more than all others."""
        times = {
            i: {n: max(self.state.end_with(i, n) - self.state.now, DONE) for n in self.jobs[i].speeds} for i in some
        }
        each = [{n: self.jobs[i].priority / time for n, time in times[i].items()} for i in some]
        bonus = LATE * sum(max(values.values()) for values in each)
        due = [self.jobs[i].deadline * (1 + DONE) - self.state.now for i in some]
        return [
            {n: value + bonus * (times[i][n] <= left < inf) for n, value in values.items()}
            for i, values, left in zip(some, each, due, strict=True)
        ]

    def _outlook(self, active: list[int], counts: Mapping[int, int]) -> Seconds:
        """What a division leads to if nothing else happens; jobs without accelerators follow the others one by one."""
        ahead = {i: self._ahead(i, counts[i]) for i in active if counts.get(i)}
        last = max((self.state.end_with(i, counts[i]) for i in ahead), default=self.state.now)
        for i in active:
            if i not in ahead:
                last += self.state.left[i] / max(self.jobs[i].speeds.values())
                ahead[i] = _weighed(self.jobs[i], last) - self.state.now
        if self.rule == Rule.TOGETHER:
            return max(ahead.values())
        return sum(self.jobs[i].priority * time for i, time in ahead.items())

    def _ahead(self, job: int, number: int) -> Seconds:
        """From now until a job would be done with so many accelerators; far longer where it would miss its deadline."""
        return _weighed(self.jobs[job], self.state.end_with(job, number)) - self.state.now
