"""Units of work dealt to replicas of unequal speed, so that the one that takes longest takes least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.errors import NoFeasiblePlan
from planner.quantities import Column, Seconds


@dataclass(frozen=True)
class Share:
    """What equal replicas do: `most` units each, but `fewer` of them one unit less."""

    replicas: int
    most: int
    fewer: int = 0

    @property
    def units(self) -> int:
        """Units of all of them."""
        return self.replicas * self.most - self.fewer

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Replicas and units of each, those with most first.

        >>> Share(replicas=4, most=12, fewer=1).runs
        ((3, 12), (1, 11))
        """
        both = (self.replicas - self.fewer, self.most), (self.fewer, self.most - 1)
        return tuple(run for run in both if run[0])


def deal(replicas: Sequence[int], seconds: Sequence[Column], units: int, *, least: int = 1) -> tuple[Share, ...]:
    """The shares of kinds of replicas with which the longest time is shortest; each does `least` units or more.

    `replicas` counts those of each kind, `seconds` is for each kind the time of 1, 2, ... units, infinite where so many
    do not fit. Exact where more units never take less time: of all times at which some replica could end, the first
    by which all units can be done is found by bisection; what could be done beyond them is taken off where it takes
    longest. An equal share for all is one of the choices, so none is better.

    Raises NoFeasiblePlan where there are fewer units than replicas, or more than fit.

    >>> deal([2, 2], [np.arange(1, 9) * 1.0, np.arange(1, 9) * 3.0], 8)
    (Share(replicas=2, most=3, fewer=0), Share(replicas=2, most=1, fewer=0))
    """
    if units < least * sum(replicas):
        raise NoFeasiblePlan(f"{units} units of work for {sum(replicas)} replicas: each needs {least}")
    if least > 1:
        begun = deal(replicas, [each[least - 1 :] for each in seconds], units - (least - 1) * sum(replicas))
        return tuple(replace(share, most=share.most + least - 1) for share in begun)
    grown = [np.maximum.accumulate(np.asarray(each, dtype=float)) for each in seconds]
    ends = np.unique(np.concatenate(grown))
    ends = ends[np.isfinite(ends) & (ends >= max(float(each[0]) for each in grown))]

    def held(end: Seconds) -> list[int]:
        return [int(np.searchsorted(each, end, side="right")) for each in grown]

    def enough(end: Seconds) -> bool:
        return sum(n * most for n, most in zip(replicas, held(end), strict=True)) >= units

    if not len(ends) or not enough(ends[-1]):
        raise NoFeasiblePlan(f"{units} units of work are more than {sum(replicas)} replicas hold")
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(ends[middle]) else (middle + 1, high)
    return _without_surplus(list(replicas), held(ends[low]), grown, units)


def longest(shares: Sequence[Share], seconds: Sequence[Column]) -> Seconds:
    """Time of the replica that takes longest."""
    return max(
        float(each[units - 1]) for share, each in zip(shares, seconds, strict=True) for _, units in share.runs if units
    )


def _without_surplus(replicas: list[int], most: list[int], seconds: Sequence[Column], units: int) -> tuple[Share, ...]:
    """As many units as there are, the rest taken off the replicas that take longest."""
    surplus = sum(n * each for n, each in zip(replicas, most, strict=True)) - units
    fewer = [0] * len(most)
    while surplus:
        kind = max((i for i, each in enumerate(most) if each > 1), key=lambda i: seconds[i][most[i] - 1])
        if surplus < replicas[kind]:
            fewer[kind] = surplus
            break
        most[kind] -= 1
        surplus -= replicas[kind]
    return tuple(Share(*each) for each in zip(replicas, most, fewer, strict=True))
