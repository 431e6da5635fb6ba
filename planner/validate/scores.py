"""How far predictions are from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from planner.quantities import Column, Number


@dataclass(frozen=True)
class Score:
    """Relative errors of `n` predictions: of the absolute errors median, mean, 90th percentile and maximum.

    `bias` is the median signed error: positive where predictions are too high.
    """

    n: int
    median: float
    mean: float
    p90: float
    maximum: float
    bias: float


def relative_error(measured: Number, predicted: Number) -> Number:
    """Signed error over the measurement.

    >>> relative_error(2.0, 2.5)
    0.25
    """
    return predicted / measured - 1


def score(measured: Column, predicted: Column) -> Score:
    """The score of columns of measurements and predictions; rows where either is not positive do not count.

    >>> score(np.array([1.0, 2.0, 4.0]), np.array([1.1, 1.8, 4.4])).median
    0.1
    """
    both = (measured > 0) & (predicted > 0)
    if not both.any():
        return Score(0, *[float("nan")] * 5)
    error = relative_error(measured[both], predicted[both])
    far = np.abs(error)
    figures = (np.median(far), far.mean(), np.percentile(far, 90), far.max(), np.median(error))
    return Score(int(both.sum()), *(round(float(figure), 6) for figure in figures))


def half(ids: Sequence[str]) -> Column:
    """A fixed half of the rows, as a mask: by a hash of each row's name, so that it never depends on the order."""
    return np.array([crc32(name.encode()) % 2 == 0 for name in ids])


def rescaled(measured: Column, predicted: Column, groups: Sequence[object], fit: Column) -> Column:
    """Predictions times one factor per group: the median of measured / predicted over the group's rows in `fit`.

    Groups without a row to fit to become 0, which does not count.

    >>> ones = np.ones(3)
    >>> rescaled(np.array([2.0, 2.0, 3.0]), ones, ["a", "a", "b"], np.array([True, False, False])).tolist()
    [2.0, 2.0, 0.0]
    """
    usable = fit & (measured > 0) & (predicted > 0)
    ratio = np.divide(measured, predicted, out=np.zeros(len(measured)), where=usable)
    names = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    group = np.array([names[name] for name in groups])
    factors = np.array([_median(ratio[usable & (group == number)]) for number in range(len(names))])
    return predicted * factors[group] if len(names) else predicted


def cross_rescaled(measured: Column, predicted: Column, groups: Sequence[object], ids: Sequence[str]) -> Column:
    """Each half of the rows rescaled by factors fitted to the other half only."""
    first = half(ids)
    return np.where(first, rescaled(measured, predicted, groups, ~first), rescaled(measured, predicted, groups, first))


def _median(values: Column) -> float:
    return float(np.median(values)) if len(values) else 0.0
