"""Which split of layers over pipeline ranks of unequal speed takes least time: exact, under what each rank can hold.

`balance` finds the best split where a layer takes as long on every rank: what comes before a rank then follows from
where its layers begin. On unequal ranks it does not. What can be found exactly is the split of the least

    (m - 1) x the slowest rank + the sum of all ranks

which is how long m micro-batches take in a pipeline that waits for its slowest rank alone (GPipe and 1F1B, Narayanan et
al. 2021, with unequal stages). For each time that the slowest rank may take, dynamic programming over (rank, end of its
layers) finds the least sum; times are tried from the smallest possible one up, until the slowest rank alone costs more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.errors import NoFeasiblePlan
from planner.quantities import Column, Seconds

ROUNDING = 1e-10
"""Share of the longest time below which two times are one."""
EVENLY = 1e-7
"""Of splits of one sum the even one is taken: a rank's time counts so much more as it is long."""


@dataclass(frozen=True, eq=False)
class UnequalWork:
    """What is to be split: seconds of a micro-batch, forward and backward.

    `layers` has shape (ranks, layers): what each layer takes on each rank. `extra` is what a rank does beside its
    layers, shape (ranks,), and `reach` what it can hold, as in `balance.Work`, shape (ranks, layers).
    """

    layers: Column
    extra: Column
    reach: Column

    def times(self, sizes: tuple[int, ...]) -> Column:
        """Seconds of each rank, shape (ranks,)."""
        ends = np.cumsum(sizes)
        rank = np.arange(len(sizes))
        return self._done[rank, ends] - self._done[rank, ends - sizes] + self.extra

    def cost(self, sizes: tuple[int, ...], microbatches: int) -> Seconds:
        """(m - 1) slowest + sum."""
        times = self.times(sizes)
        return float((microbatches - 1) * times.max() + times.sum())

    @cached_property
    def _done(self) -> Column:
        """Seconds of the first 0, 1, ... all layers on each rank, shape (ranks, layers + 1)."""
        return np.concatenate([np.zeros((len(self.layers), 1)), np.cumsum(self.layers, axis=1)], axis=1)

    @cached_property
    def blocks(self) -> Column:
        """Seconds of each rank by the end and the beginning of its layers, infinite where it cannot hold them.

        Shape (ranks, layers + 1, layers + 1). Times that differ by rounding are made equal.
        """
        done, edges = self._done, np.arange(self._done.shape[1])
        times = done[:, :, None] - done[:, None, :] + self.extra[:, None, None]
        reach = np.concatenate([self.reach, np.zeros((len(done), 1), dtype=int)], axis=1)
        held = (edges[None, None, :] < edges[None, :, None]) & (edges[None, :, None] <= reach[:, None, :])
        unit = ROUNDING * float(times.max())
        return np.where(held, np.round(times / unit) * unit if unit else times, np.inf)

    def least_sum(self, limit: Seconds) -> tuple[Seconds, tuple[int, ...]]:
        """The least sum of all ranks' times with none beyond `limit`, and the split; infinite if there is none."""
        best = np.where(np.arange(self.blocks.shape[1]) == 0, 0.0, np.inf)
        chosen = []
        for block, weighted in zip(self.blocks, self._weighted, strict=True):
            sums = np.where(block <= limit, weighted + best[None, :], np.inf)
            chosen.append(sums.argmin(axis=1))
            best = np.take_along_axis(sums, chosen[-1][:, None], axis=1)[:, 0]
        if not np.isfinite(best[-1]):
            return np.inf, ()
        ends = [len(best) - 1]
        for begins in reversed(chosen):
            ends.append(int(begins[ends[-1]]))
        sizes = tuple(int(size) for size in -np.diff(ends)[::-1])
        return float(self.times(sizes).sum()), sizes

    @cached_property
    def _weighted(self) -> Column:
        """The blocks with long ones counted a little more."""
        longest = float(np.max(self.blocks, where=np.isfinite(self.blocks), initial=0.0))
        return self.blocks * (1 + EVENLY * self.blocks / longest) if longest else self.blocks


def unequal_splits(work: UnequalWork, microbatches: int) -> Iterator[tuple[int, ...]]:
    """Splits worth a look: for each time that the slowest rank may take the one of the least sum, up to the best.

    The best by (m - 1) slowest + sum is among them. Raises NoFeasiblePlan where no split fits.
    """
    limits = np.unique(work.blocks[np.isfinite(work.blocks)])
    least, _ = work.least_sum(np.inf)
    if not np.isfinite(least):
        ranks, layers = work.layers.shape
        raise NoFeasiblePlan(f"no split of {layers} layers fits on {ranks} pipeline ranks of unequal accelerators")
    best, seen = np.inf, set()
    for limit in limits[_first_possible(work, limits) :].tolist():
        if (microbatches - 1) * limit + least >= best:
            return
        _, sizes = work.least_sum(limit)
        best = min(best, work.cost(sizes, microbatches))
        if sizes not in seen:
            seen.add(sizes)
            yield sizes


def best_unequal_split(work: UnequalWork, microbatches: int) -> tuple[int, ...]:
    """The split of the least (m - 1) slowest + sum. Raises NoFeasiblePlan where none fits."""
    return min(unequal_splits(work, microbatches), key=lambda sizes: work.cost(sizes, microbatches))


def _first_possible(work: UnequalWork, limits: Column) -> int:
    """Where the times begin with which the slowest rank is possible at all, by bisection."""
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        possible = np.isfinite(work.least_sum(limits[middle])[0])
        low, high = (low, middle) if possible else (middle + 1, high)
    return low
