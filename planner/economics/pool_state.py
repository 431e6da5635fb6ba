"""Jobs on a pool at one moment: what is left of each, what it has since when, and how it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Self

from planner.economics.packing import Nodes
from planner.economics.pool_records import DONE, PoolJob, Span, Timeline
from planner.quantities import Seconds


class PoolState:
    """The jobs as they are played. With `nodes` these have to hold the parts that jobs are given."""

    def __init__(self, jobs: tuple[PoolJob, ...], accelerators: int, nodes: Nodes | None = None) -> None:
        """Before the first job comes."""
        self.jobs, self.accelerators, self.nodes = jobs, accelerators, nodes
        self.now = min(job.arrival for job in jobs)
        self.left = [job.work for job in jobs]
        self.count, self.since, self.resumes = [0] * len(jobs), [0.0] * len(jobs), [0.0] * len(jobs)
        self.begun, self.ends, self.spans = [False] * len(jobs), [inf] * len(jobs), list[Span]()

    def copy(self) -> Self:
        """Another that goes its own way."""
        other = object.__new__(type(self))
        other.__dict__.update({k: list(v) if isinstance(v, list) else v for k, v in self.__dict__.items()})
        return other

    @property
    def done(self) -> bool:
        """Whether all jobs have ended."""
        return inf not in self.ends

    @property
    def active(self) -> list[int]:
        """Jobs that have come and not ended."""
        return [i for i, job in enumerate(self.jobs) if job.arrival <= self.now and self.ends[i] == inf]

    @property
    def timeline(self) -> Timeline:
        """What has been, once all are done."""
        return Timeline(self.jobs, self.accelerators, tuple(self.spans), tuple(self.ends))

    def give(self, counts: Mapping[int, int]) -> None:
        """Every active job has so many accelerators from now on, those that are not named none."""
        for i in self.active:
            self._take(i, counts.get(i, 0), self.now)

    def go_on(self) -> None:
        """To the next arrival or end."""
        running = {i: self.end(i) for i in self.active if self.count[i]}
        coming = [job.arrival for job in self.jobs if job.arrival > self.now]
        after = min([*running.values(), *coming])
        for i, end in running.items():
            self.left[i] -= max(0.0, after - max(self.now, self.resumes[i])) * self.jobs[i].speeds[self.count[i]]
            if end <= after or self.left[i] <= DONE * self.jobs[i].work:
                self.ends[i] = after
                self._take(i, 0, after)
        self.now = after

    def end(self, job: int) -> Seconds:
        """When a running job is done if nothing changes."""
        return max(self.now, self.resumes[job]) + self.left[job] / self.jobs[job].speeds[self.count[job]]

    def end_with(self, job: int, number: int) -> Seconds:
        """When a job would be done with so many accelerators from now on, its pause included."""
        if number == self.count[job]:
            return self.end(job)
        return self.now + self._pause(job, number) + self.left[job] / self.jobs[job].speeds[number]

    def _pause(self, job: int, number: int) -> Seconds:
        """How long a job stands still that goes on with another number; to come back takes as long as to change."""
        return self.jobs[job].pause(self.count[job] or number, number) if self.begun[job] and number else 0.0

    def _take(self, job: int, number: int, now: Seconds) -> None:
        """From now on a job has another number of accelerators; the time with the former is noted."""
        before = self.count[job]
        if number == before:
            return
        if before and now > self.since[job]:
            paused = max(0.0, min(now, self.resumes[job]) - self.since[job])
            self.spans.append(Span(job, before, self.since[job], now, paused))
        pause = self._pause(job, number)
        self.count[job], self.since[job], self.resumes[job] = number, now, now + pause
        self.begun[job] |= number > 0
