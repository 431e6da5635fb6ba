"""Jobs that share a pool of accelerators, and who had how many from when to when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from planner.quantities import Scalar, Seconds

DONE = 1e-9
"""Share of a job's work that is rounding."""


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
