"""The best sequence of divisions of a pool, by branch and bound: exact where it ends within its budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import inf, prod

from planner.economics.packing import Nodes
from planner.economics.pool_records import DONE, PoolJob, Timeline
from planner.economics.pool_state import PoolState
from planner.quantities import Seconds

STATES = 3000
"""States of the pool that are looked at, some hundred microseconds each."""
DIVISIONS = 1000
"""Divisions at one event beyond which fewer numbers of accelerators are tried."""

Key = tuple[float, float, float]


def key_of(timeline: Timeline, objective: str) -> Key:
    """By what timelines are compared: deadlines first, then the objective, then the other one."""
    both = (timeline.makespan, timeline.mean_turnaround)
    first, second = both if objective == "makespan" else both[::-1]
    return timeline.late, first, second


def searched(
    known: Timeline, objective: str, nodes: Nodes | None = None, *, states: int = STATES
) -> tuple[Timeline, bool]:
    """A timeline at least as good as a known one, and whether no other sequence of divisions is better.

    Accelerators are divided anew at arrivals and ends only. Every division of the accelerators among the jobs at hand
    is tried at each, those first that promise most; a state is given up where a bound says that it cannot become
    better than the best known: each job alone from now on at its fastest, and all work at the most that an accelerator
    does of it.
    """
    search = _Search(objective, states, known, key_of(known, objective), _choices(known))
    search.visit(PoolState(known.jobs, known.accelerators, nodes))
    whole = all(len(some) == len(job.speeds) for some, job in zip(search.choices, known.jobs, strict=True))
    return search.best, whole and search.states > 0


def _choices(known: Timeline) -> list[tuple[int, ...]]:
    """Numbers of accelerators to try for each job: all, or so few that `DIVISIONS` are not exceeded.

    Those go first that are nearest to the next smaller one; what the known timeline uses stays.
    """
    used = {(span.job, span.accelerators) for span in known.spans}
    choices = [sorted(job.speeds) for job in known.jobs]
    while prod(len(numbers) + 1 for numbers in choices) > DIVISIONS:
        gaps = [
            (numbers[place] / numbers[place - 1], -len(numbers), job, place)
            for job, numbers in enumerate(choices)
            for place in range(1, len(numbers))
            if (job, numbers[place]) not in used
        ]
        if not gaps:
            break
        _, _, job, place = min(gaps)
        choices[job].pop(place)
    return [tuple(numbers) for numbers in choices]


@dataclass
class _Search:
    """The best timeline so far, and how many states may still be looked at."""

    objective: str
    states: int
    best: Timeline
    key: Key
    choices: list[tuple[int, ...]]
    rates: dict[int, float] = field(default_factory=dict)

    def visit(self, state: PoolState) -> None:
        """Try all that can become of a state."""
        children: list[tuple[Key, int, PoolState]] = []
        for counts in self._divisions(state):
            child = state.copy()
            child.give(counts)
            child.go_on()
            self.states -= 1
            if child.done:
                key = key_of(child.timeline, self.objective)
                if key < self.key:
                    self.best, self.key = child.timeline, key
            else:
                children.append((self.bound(child), len(children), child))
            if self.states <= 0:
                return
        for bound, _, child in sorted(children, key=lambda each: each[:2]):
            if bound < self.key and self.states > 0:
                self.visit(child)

    def bound(self, state: PoolState) -> Key:
        """What no sequence of divisions from a state on can be better than."""
        jobs, open_jobs = state.jobs, [i for i, end in enumerate(state.ends) if end == inf]
        fastest = {i: max(state.now, jobs[i].arrival) + state.left[i] / max(jobs[i].speeds.values()) for i in open_jobs}
        areas = {i: state.left[i] / self._rate(jobs, i) / state.accelerators for i in open_jobs}
        ends = [fastest.get(i, end) for i, end in enumerate(state.ends)]
        late = sum(end > job.deadline * (1 + DONE) for job, end in zip(jobs, ends, strict=True))
        last = max([*ends, state.now + sum(areas.values())])
        mean = self._mean(state, ends, areas)
        first = last if self.objective == "makespan" else mean
        return late, first * (1 - DONE), 0.0

    def _rate(self, jobs: tuple[PoolJob, ...], job: int) -> float:
        """The most work per accelerator and second."""
        if job not in self.rates:
            self.rates[job] = max(speed / number for number, speed in jobs[job].speeds.items())
        return self.rates[job]

    @staticmethod
    def _mean(state: PoolState, ends: list[Seconds], areas: dict[int, Seconds]) -> Seconds:
        """The mean turnaround if each ended as soon as alone, or all shared one perfect machine (Smith 1956)."""
        jobs, weights = state.jobs, sum(job.priority for job in state.jobs)
        alone = sum(job.priority * (end - job.arrival) for job, end in zip(jobs, ends, strict=True))
        shared, clock = 0.0, state.now
        for i, end in enumerate(ends):
            shared += jobs[i].priority * (end - jobs[i].arrival) if i not in areas else 0.0
        for i in sorted(areas, key=lambda i: areas[i] / jobs[i].priority):
            clock += areas[i]
            shared += jobs[i].priority * (clock - jobs[i].arrival)
        return max(alone, shared) / weights

    def _divisions(self, state: PoolState) -> Iterator[dict[int, int]]:
        """Every division among the jobs at hand; none at all only where another job is still to come."""
        active = state.active
        waits = any(job.arrival > state.now for job in state.jobs)
        for counts in product(*((0, *self.choices[i]) for i in active)):
            total = sum(counts)
            if total > state.accelerators or not (total or waits):
                continue
            if state.nodes is None or state.nodes.hold([count for count in counts if count]):
                yield dict(zip(active, counts, strict=True))
