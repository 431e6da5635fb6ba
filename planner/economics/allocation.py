"""Accelerators of one pool divided among jobs: exact, by dynamic programming over (jobs, accelerators)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.quantities import Number, Seconds

Counts = Mapping[int, Number]
"""Number of accelerators that a job can run on -> what it then gets."""


def most_valuable(values: Sequence[Counts], units: int) -> tuple[int, ...]:
    """Accelerators of each job, `units` together at most, with the greatest sum of values.

    A job may get none, which is worth nothing. Of equal sums the one with fewer accelerators for earlier jobs is taken.
    Exact: the best that the first jobs can do with so many accelerators follows from the best of all but the last.

    >>> most_valuable([{1: 1.0, 2: 1.8}, {1: 1.0, 2: 1.9}], 3)
    (1, 2)
    """
    best = np.zeros(units + 1)
    chosen = []
    for options in values:
        new, count = best.copy(), np.zeros(units + 1, dtype=int)
        for number, value in sorted(options.items()):
            if number > units:
                break
            reached = np.full(units + 1, -np.inf)
            reached[number:] = best[: units + 1 - number] + value
            better = reached > new
            new[better], count[better] = reached[better], number
        best = new
        chosen.append(count)
    left, found = units, []
    for count in reversed(chosen):
        found.append(int(count[left]))
        left -= found[-1]
    return tuple(reversed(found))


def soonest_done(times: Sequence[Mapping[int, Seconds]], units: int) -> tuple[int, ...] | None:
    """Accelerators of each job with which the last job is done soonest, and then the sum of times is least.

    Every job gets some; None where there are not enough for that. Exact: the least time by which all can be done is
    found by bisection, and what is left is divided by `most_valuable`.

    >>> soonest_done([{1: 8.0, 2: 5.0, 4: 3.0}, {1: 6.0, 2: 4.0}], 4)
    (2, 2)
    """
    if not times:
        return ()
    ends = sorted({time for options in times for time in options.values()})
    if not ends or _needed(times, ends[-1]) > units:
        return None
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _needed(times, ends[middle]) <= units else (middle + 1, high)
    end = ends[low]
    # Worth more than all differences of times together, so that every job gets some.
    worth = 1.0 + len(times) * end
    within = [{number: worth - time for number, time in options.items() if time <= end} for options in times]
    return most_valuable(within, units)


def _needed(times: Sequence[Mapping[int, Seconds]], end: Seconds) -> float:
    """Accelerators with which all jobs are done in time; infinite if some never is."""
    return sum(min((n for n, time in options.items() if time <= end), default=np.inf) for options in times)
