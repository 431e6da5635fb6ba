"""Several jobs on one pool of accelerators over time: who has how many, from when to when, and when each is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Any

from planner.economics.allocation import Counts, most_valuable, soonest_done
from planner.economics.packing import Nodes, Solve, packed
from planner.quantities import Scalar, Seconds

LATE = 1e6
"""How much heavier a job counts that would miss its deadline: meeting it comes before anything else."""
DONE = 1e-9
"""Share of a job's work that is rounding."""


class Rule(IntEnum):
    """How accelerators are divided whenever a job comes or goes."""

    TOGETHER = 0
    """So that the last job is done soonest."""
    SHORTEST_FIRST = 1
    """So that most jobs are done per time: by the share of what is left that each accelerator does."""


@dataclass(frozen=True)
class PoolJob:
    """A job: `work` (tokens), and its `speeds` (tokens per second) by number of accelerators, from the first that fits.

    `pause` says how long it stands still when it goes from one number of accelerators to another.
    """

    name: str
    work: Scalar
    speeds: Mapping[int, Scalar]
    priority: Scalar = 1.0
    arrival: Seconds = 0.0
    deadline: Seconds = inf
    pause: Callable[[int, int], Seconds] = lambda before, after: 0.0


@dataclass(frozen=True)
class Span:
    """One job on so many accelerators for a while; `paused` of that it is resharded."""

    job: int
    accelerators: int
    start: Seconds
    end: Seconds
    paused: Seconds


@dataclass(frozen=True)
class Timeline:
    """All spans, and when each job is done; `accelerators` are those of the pool."""

    jobs: tuple[PoolJob, ...]
    accelerators: int
    spans: tuple[Span, ...]
    ends: tuple[Seconds, ...]

    @property
    def makespan(self) -> Seconds:
        """Until the last job is done."""
        return max(self.ends)

    @property
    def mean_turnaround(self) -> Seconds:
        """From arrival to end, weighted by priority."""
        weights = sum(job.priority for job in self.jobs)
        waits = (job.priority * (end - job.arrival) for job, end in zip(self.jobs, self.ends, strict=True))
        return sum(waits) / weights

    @property
    def late(self) -> int:
        """Jobs that miss their deadlines."""
        return sum(end > job.deadline * (1 + DONE) for job, end in zip(self.jobs, self.ends, strict=True))

    @property
    def held(self) -> Seconds:
        """Accelerator-seconds that jobs hold."""
        return sum(span.accelerators * (span.end - span.start) for span in self.spans)

    @property
    def paused(self) -> Seconds:
        """Accelerator-seconds of these in which a job is resharded."""
        return sum(span.accelerators * span.paused for span in self.spans)

    @property
    def idle_share(self) -> Scalar:
        """Share of the pool that nobody holds until the last job is done."""
        return max(0.0, 1 - self.held / (self.accelerators * self.makespan))

    @property
    def resizes(self) -> int:
        """How often a running job changes its number of accelerators."""
        return len(self.spans) - len({span.job for span in self.spans})


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
    return _Pool(tuple(jobs), accelerators, rule, resize, nodes).played()


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


class _Pool:
    """The jobs as they are played: what is left of each, what it has since when, and from when on it computes."""

    def __init__(
        self, jobs: tuple[PoolJob, ...], accelerators: int, rule: Rule, resize: bool, nodes: Nodes | None
    ) -> None:
        self.jobs, self.accelerators, self.rule, self.resize, self.nodes = jobs, accelerators, rule, resize, nodes
        self.now = min(job.arrival for job in jobs)
        self.left = [job.work for job in jobs]
        self.count, self.since, self.resumes = [0] * len(jobs), [0.0] * len(jobs), [0.0] * len(jobs)
        self.ends, self.spans = [inf] * len(jobs), list[Span]()

    def played(self) -> Timeline:
        """Until all are done."""
        while inf in self.ends:
            self._divide(self._active())
            self._go_on()
        return Timeline(self.jobs, self.accelerators, tuple(self.spans), tuple(self.ends))

    def _active(self) -> list[int]:
        return [i for i, job in enumerate(self.jobs) if job.arrival <= self.now and self.ends[i] == inf]

    def _go_on(self) -> None:
        """To the next arrival or end."""
        running = {i: self._end(i, self.count[i]) for i in self._active() if self.count[i]}
        coming = [job.arrival for job in self.jobs if job.arrival > self.now]
        after = min([*running.values(), *coming])
        for i, end in running.items():
            self.left[i] -= max(0.0, after - max(self.now, self.resumes[i])) * self.jobs[i].speeds[self.count[i]]
            if end <= after or self.left[i] <= DONE * self.jobs[i].work:
                self.ends[i] = after
                self._take(i, 0, after)
        self.now = after

    def _divide(self, active: list[int]) -> None:
        """Give every active job its accelerators for the time from now on."""
        kept = {i: self.count[i] for i in active if self.count[i]}
        waiting = [i for i in active if i not in kept]
        chosen = kept | self._by_rule(waiting, self.accelerators - sum(kept.values()), tuple(kept.values()))
        if self.resize and kept:
            anew = self._by_rule(active, self.accelerators, ())
            chosen = min((chosen, anew), key=lambda counts: self._outlook(active, counts))
        for i in active:
            self._take(i, chosen.get(i, 0), self.now)

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
        if self.nodes is None:
            return solve(options, units)
        return packed(solve, options, units, nodes=self.nodes, kept=kept, cost=cost)

    def _worth(self, some: list[int]) -> list[dict[int, Scalar]]:
        """Jobs done per time by each number of accelerators; a deadline that it meets is worth more than all others."""
        times = {i: {n: max(self._end_with(i, n) - self.now, DONE) for n in self.jobs[i].speeds} for i in some}
        each = [{n: self.jobs[i].priority / time for n, time in times[i].items()} for i in some]
        bonus = LATE * sum(max(values.values()) for values in each)
        due = [self.jobs[i].deadline * (1 + DONE) - self.now for i in some]
        return [
            {n: value + bonus * (times[i][n] <= left < inf) for n, value in values.items()}
            for i, values, left in zip(some, each, due, strict=True)
        ]

    def _outlook(self, active: list[int], counts: Mapping[int, int]) -> Seconds:
        """What a division leads to if nothing else happens; jobs without accelerators follow the others one by one."""
        ahead = {i: self._ahead(i, counts[i]) for i in active if counts.get(i)}
        last = max((self._end_with(i, counts[i]) for i in ahead), default=self.now)
        for i in active:
            if i not in ahead:
                last += self.left[i] / max(self.jobs[i].speeds.values())
                ahead[i] = _weighed(self.jobs[i], last) - self.now
        if self.rule == Rule.TOGETHER:
            return max(ahead.values())
        return sum(self.jobs[i].priority * time for i, time in ahead.items())

    def _ahead(self, job: int, number: int) -> Seconds:
        """From now until a job would be done with so many accelerators; far longer where it would miss its deadline."""
        return _weighed(self.jobs[job], self._end_with(job, number)) - self.now

    def _end_with(self, job: int, number: int) -> Seconds:
        """When a job would be done with so many accelerators from now on, its pause included."""
        before = self.count[job]
        if number == before:
            return self._end(job, number)
        pause = self.jobs[job].pause(before, number) if before else 0.0
        return self.now + pause + self.left[job] / self.jobs[job].speeds[number]

    def _end(self, job: int, number: int) -> Seconds:
        """When a running job is done if nothing changes."""
        return max(self.now, self.resumes[job]) + self.left[job] / self.jobs[job].speeds[number]

    def _take(self, job: int, number: int, now: Seconds) -> None:
        """From now on a job has another number of accelerators; the time with the former is noted."""
        before = self.count[job]
        if number == before:
            return
        if before and now > self.since[job]:
            paused = max(0.0, min(now, self.resumes[job]) - self.since[job])
            self.spans.append(Span(job, before, self.since[job], now, paused))
        pause = self.jobs[job].pause(before, number) if before and number else 0.0
        self.count[job], self.since[job], self.resumes[job] = number, now, now + pause
