"""Which split of a row of layers over pipeline stages takes least time, under what each rank can hold: exact and fast.

A step takes at least, and of nearly equal stages exactly, as long as the longest of a few paths through its schedule:
down to some rank, that rank's work, and back. Each is a sum over the ranks before, the rank itself and those behind it,
so it follows from where the rank's layers begin and end. The best split is the one whose longest path is shortest,
which `best_split` finds by dynamic programming over (rank, end of its layers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.errors import NoFeasiblePlan
from planner.quantities import Column, Seconds
from planner.spec.plan import Schedule

ROUNDING = 1e-12
"""Relative difference that is rounding."""


@dataclass(frozen=True, eq=False)
class Paths:
    """One path for each rank: how often it holds a micro-batch's time on the ranks before and on those behind it.

    And of its own forwards and backwards. Shape (ranks,).
    """

    before: Column
    forward: Column
    backward: Column
    behind: Column

    def seconds(self, times: Column) -> Column:
        """Length of each rank's path; `times` are forward and backward on each rank, shape (..., 2, ranks)."""
        forward, backward = np.moveaxis(times, -2, 0)
        both = forward + backward
        to_rank = np.cumsum(both, axis=-1)
        ends = self.before * (to_rank - both) + self.behind * (to_rank[..., -1:] - to_rank)
        return ends + self.forward * forward + self.backward * backward


def paths_of(schedule: Schedule, ranks: int, microbatches: int, chunks: int = 1) -> tuple[Paths, ...]:
    """The paths of a schedule of m micro-batches, with as many chunks of layers on each rank.

    1F1B: rank r does w = p - 1 - r forwards, then forwards and backwards in turn, then w backwards. A path leads down
    to r, through all m forwards and backwards of r, and up again; or it takes the way from r to the last rank and back
    in place of the w forwards, of the w backwards, or of both. No split is faster than these say. Where stages are
    within 10 % of each other they say exactly how long it takes (20 %, if all divide alike into forward and backward).
    Source: own derivation, checked against the schedule played.

    Other schedules: their closed forms in `planner.cost.pipeline` for whichever rank is the slowest.

    >>> [path.forward.tolist() for path in paths_of(Schedule.ONE_F_ONE_B, 3, 8)]
    [[8.0, 8.0, 8.0], [6.0, 7.0, 8.0], [8.0, 8.0, 8.0], [6.0, 7.0, 8.0]]
    """
    one, every = np.ones(ranks), np.full(ranks, float(microbatches))
    if schedule != Schedule.ONE_F_ONE_B:
        return (Paths(one / chunks, every, every, one / chunks),)
    without_warm_up = microbatches - np.arange(ranks)[::-1]
    some = np.maximum(without_warm_up, 1.0)
    return (
        Paths(one, every, every, 0 * one),
        Paths(one, some, every, one),
        Paths(one, every, some, one),
        Paths(one, some, some, np.where(without_warm_up > 0, 2.0, 1.0)),
    )


def least_time(paths: tuple[Paths, ...], times: Column) -> Seconds:
    """The longest path; `times` are forward and backward of a micro-batch on each rank, shape (..., 2, ranks)."""
    return np.max([path.seconds(times).max(axis=-1) for path in paths], axis=0)


@dataclass(frozen=True, eq=False)
class Work:
    """What is to be split.

    `layers` are seconds of forward and backward of each layer for a micro-batch, shape (2, layers); `extra` those of
    each rank beside its layers (the head), shape (2, ranks). `reach` says what ranks can hold, shape (ranks, layers): a
    rank whose first layer is i may have layers up to, but without, `reach[rank, i]`; i where it cannot hold that one.
    """

    layers: Column
    extra: Column
    reach: Column
    paths: tuple[Paths, ...]

    @cached_property
    def done(self) -> Column:
        """Seconds of the first 0, 1, ... all layers, shape (2, layers + 1)."""
        return np.concatenate([np.zeros((2, 1)), np.cumsum(self.layers, axis=1)], axis=1)

    def times(self, sizes: Sequence[int] | Column) -> Column:
        """Forward and backward of a micro-batch on ranks of `sizes` layers, shape (..., 2, ranks)."""
        ends = np.cumsum(sizes, axis=-1)
        layers = self.done[:, ends] - self.done[:, ends - sizes]
        return np.moveaxis(layers, 0, -2) + self.extra

    def longest(self, limit: Seconds) -> int:
        """More layers than this on one rank make a path longer than `limit`."""
        done = np.max(
            [path.forward.min() * self.done[0] + path.backward.min() * self.done[1] for path in self.paths], 0
        )
        ends = np.searchsorted(done, limit + done[:-1], side="right") - 1
        return int((ends - np.arange(len(ends))).max())


def best_split(work: Work) -> tuple[int, ...]:
    """Layers of each rank, at least one, with the shortest longest path; of several such the most even in time.

    Dynamic programming: the best that r ranks can do with the first j layers follows from the best of r - 1 ranks with
    the first i < j, since the paths of rank r depend on i and j alone. No rank takes more than b layers, where b is the
    most of which no path is longer than that of a split already found, so that time and memory are O(ranks x layers x
    b), with b usually twice the mean. Exact for any times that are not negative, and any `reach`.

    Raises NoFeasiblePlan where no split is within `reach`, with the rank that is over.
    """
    _check(work.reach)
    ranks, layers = work.reach.shape
    needed, most = 2 * -(-layers // ranks), 0
    while most < needed:
        most = min(needed, layers)
        table = _Table(work, most)
        shortest = table.shortest() * (1 + ROUNDING)
        needed = work.longest(shortest) if np.isfinite(shortest) else 2 * most
    return table.most_even(shortest)


def _check(reach: Column) -> None:
    """Raise NoFeasiblePlan where no split is within reach. The layers that r ranks can hold follow from r - 1's."""
    ranks, layers = reach.shape
    held = np.arange(layers + 1) == 0
    for rank in range(ranks):
        begins = np.flatnonzero(held[:-1] & (reach[rank] > np.arange(layers)))
        if not len(begins):
            raise NoFeasiblePlan(
                f"no split of {layers} layers fits on {ranks} ranks: none is left that rank {rank} holds"
            )
        change = np.zeros(layers + 2, dtype=int)
        np.add.at(change, begins + 1, 1)
        np.add.at(change, reach[rank, begins] + 1, -1)
        held = change.cumsum()[:-1] > 0
    if not held[-1]:
        most = int(np.flatnonzero(held)[-1])
        raise NoFeasiblePlan(f"no split of {layers} layers fits on {ranks} ranks: they hold {most} at most")


class _Table:
    """Of one rank after the other: what it takes for each end of its layers and each number of them up to `most`.

    Arrays of shape (layers + 1, most): a row is an end, a column a number of layers less one.
    """

    def __init__(self, work: Work, most: int) -> None:
        self.work = work
        self.ends = np.arange(work.layers.shape[1] + 1)[:, None]
        begins = self.ends - np.arange(1, most + 1)
        self.outside, self.begins = begins < 0, np.maximum(begins, 0)

    def shortest(self) -> Seconds:
        """The longest path of the best split; infinite if there is none."""
        best = self._nothing_done
        for paths in self._paths():
            best = np.maximum(paths, best[self.begins], out=paths).min(axis=1)
        return float(best[-1])

    def most_even(self, limit: Seconds) -> tuple[int, ...]:
        """Of the splits without a path beyond `limit` the one with the least sum of squared times."""
        best, chosen = self._nothing_done, []
        both = self.work.done.sum(axis=0)
        layers, row = both[self.ends] - both[self.begins], np.arange(len(both))
        for paths, extra in zip(self._paths(), self.work.extra.sum(axis=0), strict=True):
            sums = np.where(paths <= limit, best[self.begins] + (layers + extra) ** 2, np.inf)
            chosen.append(sums.argmin(axis=1))
            best = sums[row, chosen[-1]]
        sizes, end = [], len(both) - 1
        for place in reversed(chosen):
            sizes.append(int(place[end]) + 1)
            end -= sizes[-1]
        return tuple(reversed(sizes))

    @property
    def _nothing_done(self) -> Column:
        """Before the first rank no layer is done."""
        return np.where(self.ends[:, 0] == 0, 0.0, np.inf)

    def _paths(self) -> Iterator[Column]:
        """The longest paths of each rank, infinite where it cannot hold the layers."""
        work, both = self.work, self.work.done.sum(axis=0)
        constants = [path.seconds(work.extra) + path.behind * both[-1] for path in work.paths]
        for rank, reach in enumerate(work.reach):
            lengths = np.where(self.outside | (self.ends > np.append(reach, 0)[self.begins]), np.inf, -np.inf)
            for path, constant in zip(work.paths, constants, strict=True):
                # What a path takes is what follows from the end less what follows from the beginning.
                own = path.forward[rank] * work.done[0] + path.backward[rank] * work.done[1]
                to_end, to_begin = own - path.behind[rank] * both + constant[rank], own - path.before[rank] * both
                np.maximum(lengths, to_end[:, None] - to_begin[self.begins], out=lengths)
            yield lengths
