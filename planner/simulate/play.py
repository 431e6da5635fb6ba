"""The event loop: when each task of a step starts and ends, with what runs at once taking from each other."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from planner.errors import SpecError
from planner.quantities import Column, Scalar, Seconds
from planner.simulate.tasks import COMPUTE, Tasks


class Deadlock(SpecError):
    """Tasks that wait for each other, or for one that never comes."""


@dataclass(frozen=True, eq=False)
class Played:
    """Seconds of shape (tasks,) at which each task started and ended."""

    start: Column
    end: Column


def play(tasks: Tasks, *, penalty: Scalar = 0.0) -> Played:
    """Run all tasks, each as soon as what it waits for has ended.

    Compute and transfers that hinder it run at 1 / (1 + penalty) of their speed while they run side by side, so that
    both together take max + penalty min (`cost.overlap.overlapped_time`); transfers of a rank that share a link
    divide it evenly. Raises Deadlock naming who waits for what.
    """
    run = _Run(tasks, 1 / (1 + penalty))
    run.to_the_end()
    if run.ended < len(tasks):
        raise Deadlock(_who_waits(tasks, run.end))
    return Played(np.array(run.start), np.array(run.end))


class _Run:
    """The state of a run: what is on its way on each rank, how far it is, and how fast it goes."""

    def __init__(self, tasks: Tasks, beside: Scalar) -> None:
        count = len(tasks)
        self.tasks, self.beside, self.ended = tasks, beside, 0
        self.start, self.end = [0.0] * count, [-1.0] * count
        self.left, self.speed, self.since = list(tasks.seconds), [0.0] * count, [0.0] * count
        self.active: list[list[int]] = [[] for _ in range(max(tasks.rank, default=-1) + 1)]
        self.events: list[tuple[Seconds, int, Scalar]] = []

    def to_the_end(self) -> None:
        tasks, waits = self.tasks, list(self.tasks.waits)
        now, begun = 0.0, [task for task, count in enumerate(waits) if count == 0 and tasks.added[task]]
        while begun or self.events:
            changed = set()
            for task in begun:
                self.start[task] = self.since[task] = now
                self.active[tasks.rank[task]].append(task)
                changed.add(tasks.rank[task])
            for rank in changed:
                self._set_speeds(rank, now)
            now, begun = self._next_ends(waits)

    def _next_ends(self, waits: list[int]) -> tuple[Seconds, list[int]]:
        """The next moment at which tasks end, and the tasks that can start then."""
        tasks, events, begun, left = self.tasks, self.events, [], set()
        now = -1.0
        while events and (now < 0 or events[0][0] == now):
            moment, task, speed = heappop(events)
            if self.end[task] >= 0 or speed != self.speed[task] or moment != self.since[task] + self.left[task] / speed:
                continue
            now, self.end[task] = moment, moment
            self.ended += 1
            rank = tasks.rank[task]
            self.active[rank].remove(task)
            left.add(rank)
            for follower in tasks.followers[task]:
                waits[follower] -= 1
                if waits[follower] == 0 and tasks.added[follower]:
                    begun.append(follower)
        starting = {tasks.rank[task] for task in begun}
        for rank in left - starting:
            self._set_speeds(rank, now)
        return now, begun

    def _set_speeds(self, rank: int, now: Seconds) -> None:
        """Let what is on its way on a rank go as fast as the others leave it."""
        active, tasks = self.active[rank], self.tasks
        if len(active) == 1:
            self._set_speed(active[0], 1.0, now)
            return
        computing = any(tasks.stream[task] == COMPUTE for task in active)
        hindered = any(tasks.hinders[task] for task in active)
        for task in active:
            link = tasks.link[task]
            speed = 1.0 / max(sum(tasks.link[other] == link for other in active), 1) if link else 1.0
            if (tasks.hinders[task] and computing) or (hindered and tasks.stream[task] == COMPUTE):
                speed *= self.beside
            self._set_speed(task, speed, now)

    def _set_speed(self, task: int, speed: Scalar, now: Seconds) -> None:
        if speed == self.speed[task]:
            return
        self.left[task] -= (now - self.since[task]) * self.speed[task]
        self.speed[task], self.since[task] = speed, now
        heappush(self.events, (now + self.left[task] / speed, task, speed))


def _who_waits(tasks: Tasks, ends: list[Seconds]) -> str:
    """The first task of each rank's compute that did not run, and the first that it waits for."""
    first: dict[int, int] = {}
    for task, end in enumerate(ends):
        if end < 0 and tasks.added[task] and tasks.stream[task] == COMPUTE:
            first.setdefault(tasks.rank[task], task)
    waited: dict[int, list[int]] = {task: [] for task in first.values()}
    for task, end in enumerate(ends):
        for follower in tasks.followers[task] if end < 0 else ():
            if follower in waited:
                waited[follower].append(task)
    lines = (
        f"rank {rank} waits with {_name(tasks, task)} for {_name(tasks, waited[task][0])} of rank "
        f"{tasks.rank[waited[task][0]]}"
        for rank, task in sorted(first.items())
        if waited[task]
    )
    return f"the schedule stops: {'; '.join(lines)}"


def _name(tasks: Tasks, task: int) -> str:
    """The action that a task is part of, or what it is called."""
    label = tasks.label[task]
    return str(getattr(label, "action", None) or label)
