"""What each rank holds over time, by item, and the moment at which it holds most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from planner.quantities import Bytes, Column, Count
from planner.simulate.actions import Order
from planner.simulate.play import Played
from planner.simulate.step import IN_FLIGHT, RESERVE, Label, Step
from planner.spec.durations import OUTSIDE, Durations


@dataclass(frozen=True, eq=False)
class Timeline:
    """One rank: `seconds` at which something changes, bytes by item from then on, and the tasks that changed it.

    All of shape (changes,); the first is the step's start. `in_flight` counts micro-batches of the rank's whole stage.
    """

    seconds: Column
    items: Mapping[str, Column]
    in_flight: Column
    causes: list[Label | None]

    @cached_property
    def total(self) -> Column:
        """All items together."""
        return sum(self.items.values(), start=np.zeros(len(self.seconds)))

    @cached_property
    def fullest(self) -> int:
        """The change after which the rank holds most."""
        return int(self.total.argmax())

    @property
    def peak(self) -> Bytes:
        """The most that the rank holds at once."""
        return float(self.total[self.fullest])

    @property
    def peak_in_flight(self) -> Count:
        """The most micro-batches in flight at once."""
        return float(self.in_flight.max())

    def at_peak(self) -> dict[str, Bytes]:
        """Bytes by item when the rank is fullest."""
        return {name: float(item[self.fullest]) for name, item in self.items.items()}


def timelines(durations: Durations, order: Order, step: Step, played: Played) -> list[Timeline]:
    """The timeline of every rank."""
    columns = zip(*step.holdings, strict=True)
    tasks, at_end, names, amounts = (np.array(column) for column in columns)
    moments = np.where(at_end, played.end[tasks], played.start[tasks])
    owner = np.array(step.tasks.rank)[tasks]
    items, codes = np.unique(names, return_inverse=True)
    # By rank and moment; what is given back at the same moment comes first.
    in_order = np.lexsort((amounts, moments, owner))
    in_order = in_order[amounts[in_order] != 0]
    edges = np.searchsorted(owner[in_order], range(order.num_ranks + 1))
    stages = np.bincount(order.rank_of)
    found = []
    for rank, (begin, end) in enumerate(pairwise(edges)):
        chosen = in_order[begin:end]
        changes = {str(item): amounts[chosen] * (codes[chosen] == code) for code, item in enumerate(items)}
        in_flight = _running(0.0, changes.pop(IN_FLIGHT)) / stages[rank]
        causes = [None, *(step.tasks.label[task] for task in tasks[chosen])]
        seconds = np.concatenate([[0.0], moments[chosen]])
        found.append(Timeline(seconds, _held(durations, rank, changes), in_flight, causes))
    return found


def _held(durations: Durations, rank: int, changes: Mapping[str, Column]) -> dict[str, Column]:
    """Bytes by item from each change on: what is held all along, what comes and goes, and the allocator's reserve."""
    state = {name: each[rank] for name, each in durations.state.items()}
    none = np.zeros(1 + len(next(iter(changes.values()))))
    items = {name: _running(state.get(name, 0.0), changes.get(name, none[1:])) for name in {**state, **changes}}
    freed = items.pop(RESERVE, none)
    allocated = sum((items[name] for name in items if name not in OUTSIDE), start=0.0)
    return items | {RESERVE: freed + (durations.allocator_slack - 1) * allocated}


def _running(start: Bytes, changes: Column) -> Column:
    """The sum up to each change, the start first; never below 0 by rounding."""
    return np.maximum(np.concatenate([[start], start + np.cumsum(changes)]), 0.0)
