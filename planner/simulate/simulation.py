"""A step played: when every rank computes, talks and waits, and what it holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.errors import SpecError
from planner.quantities import Column, Scalar, Seconds
from planner.simulate.actions import Order
from planner.simulate.memory import Timeline, timelines
from planner.simulate.play import Played, play
from planner.simulate.step import SEND_BACKWARD, SEND_FORWARD, Step, step
from planner.simulate.tasks import COMPUTE
from planner.spec.durations import Durations

SENDS = (SEND_FORWARD, SEND_BACKWARD)


@dataclass(frozen=True)
class Disturbance:
    """What makes ranks differ: `slow` by how much longer a rank computes, `jitter` how much each task varies.

    The jitter is the standard deviation of the logarithm of a task's compute, drawn anew for each from `seed`.
    """

    slow: Mapping[int, Scalar] = field(default_factory=dict)
    jitter: Scalar = 0.0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Simulation:
    """One step of all pipeline ranks, whose data- and tensor-parallel peers do the same at the same time."""

    durations: Durations
    order: Order
    step: Step
    played: Played

    @property
    def makespan(self) -> Seconds:
        """From the step's start to the end of its last task."""
        return float(self.played.end.max())

    @property
    def bubble_fraction(self) -> Scalar:
        """Share of the step in which a rank neither computes nor waits for its own peers; the ranks' mean."""
        return float(np.mean([rank.idle for rank in self.ranks]) / self.makespan) if self.makespan else 0.0

    @cached_property
    def ranks(self) -> list[RankUse]:
        """What each rank did."""
        streams, owners = (np.array(column) for column in (self.step.tasks.stream, self.step.tasks.rank))
        columns = (streams == COMPUTE, np.isin(streams, SENDS), self.played.start, self.played.end)
        by_rank = np.argsort(owners, kind="stable")
        edges = np.searchsorted(owners[by_rank], range(1, self.order.num_ranks))
        parts = zip(*(np.split(column[by_rank], edges) for column in columns), strict=True)
        return [self._use(*part) for part in parts]

    @cached_property
    def memory(self) -> list[Timeline]:
        """What each rank holds over time."""
        return timelines(self.durations, self.order, self.step, self.played)

    def _use(self, compute: Column, sent: Column, start: Column, end: Column) -> RankUse:
        busy = float((end - start)[compute].sum())
        active = covered(start[~sent], end[~sent])
        return RankUse(busy, max(active - busy, 0.0), max(self.makespan - active, 0.0))


@dataclass(frozen=True)
class RankUse:
    """Seconds of a step: computing, waiting for a transfer among the rank's peers, and neither; they add up to it."""

    busy: Seconds
    exposed: Seconds
    idle: Seconds


def simulate(durations: Durations, order: Order, disturbance: Disturbance | None = None) -> Simulation:
    """Play a step. The same table, order and seed give the same times.

    Raises SpecError where the order has other stages or ranks than the table, or for a disturbance that makes no sense;
    Deadlock where ranks wait for each other.
    """
    if order.rank_of != durations.rank_of:
        raise SpecError(f"the schedule has stages on ranks {order.rank_of}, the table of durations {durations.rank_of}")
    with _no_garbage():
        made = step(durations, order)
        if disturbance:
            _disturb(made, disturbance, order.num_ranks)
        return Simulation(durations, order, made, play(made.tasks, penalty=durations.penalty))


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Without Python's search for garbage: a step is many small objects that all stay (half of the time, else)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def covered(start: Column, end: Column) -> Seconds:
    """Length of the union of intervals."""
    if not len(start):
        return 0.0
    by_start = np.argsort(start, kind="stable")
    start, latest = start[by_start], np.maximum.accumulate(end[by_start])
    gaps = np.maximum(start[1:] - latest[:-1], 0.0).sum()
    return float(latest[-1] - start[0] - gaps)


def _disturb(made: Step, disturbance: Disturbance, num_ranks: int) -> None:
    """Stretch the compute of every task."""
    strange = [rank for rank in disturbance.slow if not 0 <= rank < num_ranks]
    if strange:
        raise SpecError(f"slow rank {strange[0]}: there are pipeline ranks 0 to {num_ranks - 1}")
    if disturbance.jitter < 0 or any(factor <= 0 for factor in disturbance.slow.values()):
        raise SpecError("jitter must be 0 or more, and a rank's factor above 0 (1.2 computes 1.2 times as long)")
    tasks = made.tasks
    factors = np.array([disturbance.slow.get(rank, 1.0) for rank in range(num_ranks)])[np.array(tasks.rank)]
    if disturbance.jitter:
        drawn = np.random.default_rng(disturbance.seed).normal(
            -(disturbance.jitter**2) / 2, disturbance.jitter, len(tasks)
        )
        factors = factors * np.exp(drawn)
    compute = np.array(tasks.stream) == COMPUTE
    tasks.seconds[:] = np.where(compute, np.array(tasks.seconds) * factors, tasks.seconds).tolist()
