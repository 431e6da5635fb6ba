"""How well predictions order the plans of one job: rank correlations, and what trusting them would have cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from planner.quantities import Column, Scalar
from planner.validate.predict import Prediction
from planner.validate.runs import MeasuredRun

FEWEST = 2
"""Measured runs that make a group."""


@dataclass(frozen=True)
class PlanOrder:
    """A group's order. `regret` is how much slower the run ranked first is than the best measured."""

    key: str
    n: int
    spearman: Scalar | None
    kendall: Scalar | None
    regret: Scalar
    best_measured_id: str
    chosen_id: str

    def as_dict(self) -> dict[str, Any]:
        """The group as JSON has it."""
        return asdict(self)


def plan_orders(runs: Sequence[MeasuredRun], predictions: Sequence[Prediction]) -> list[PlanOrder]:
    """Groups of at least two runs of one job that were measured and predicted, the largest first.

    Runs that ran out of memory were not measured.
    """
    jobs: dict[Hashable, list[int]] = defaultdict(list)
    for row, (run, made) in enumerate(zip(runs, predictions, strict=True)):
        if run.job and run.measured_step_time and not made.skipped and not run.oom:
            jobs[run.job].append(row)
    found = [
        _plan_order([runs[row] for row in rows], [predictions[row] for row in rows])
        for rows in jobs.values()
        if len(rows) >= FEWEST
    ]
    return sorted(found, key=lambda group: (-group.n, group.key))


def _plan_order(runs: Sequence[MeasuredRun], predictions: Sequence[Prediction]) -> PlanOrder:
    measured = np.array([run.measured_step_time for run in runs])
    predicted = np.array([made.step_time for made in predictions])
    best, chosen = int(measured.argmin()), int(predicted.argmin())
    return PlanOrder(
        key=str(runs[0].job),
        n=len(runs),
        spearman=spearman(measured, predicted),
        kendall=kendall(measured, predicted),
        regret=round(float(measured[chosen] / measured[best] - 1), 6),
        best_measured_id=runs[best].id,
        chosen_id=runs[chosen].id,
    )


def spearman(one: Column, other: Column) -> Scalar | None:
    """Correlation of ranks, ties sharing their mean rank; None where either column is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 4.0, 3.0]))
    0.8
    """
    return _correlation(_ranks(one), _ranks(other))


def kendall(one: Column, other: Column) -> Scalar | None:
    """Kendall's tau-b: pairs in the same order less those in the other, over the pairs that are not tied in either.

    >>> kendall(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 4.0, 3.0]))
    0.666667
    """
    first, second = (np.sign(column[:, None] - column[None, :]) for column in (one, other))
    norm = np.sqrt((first**2).sum() * (second**2).sum())
    return round(float((first * second).sum() / norm), 6) if norm else None


def _ranks(values: Column) -> Column:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[index]


def _correlation(one: Column, other: Column) -> Scalar | None:
    one, other = one - one.mean(), other - other.mean()
    norm = np.sqrt((one**2).sum() * (other**2).sum())
    return round(float((one * other).sum() / norm), 6) if norm else None
