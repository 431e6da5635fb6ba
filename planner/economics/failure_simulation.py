"""Runs under failures played event by event, with seeded random times between them.

It shares no formula with `failures` and `checkpoints`: a failure ends a stretch of time; of that stretch the restart is
lost, whole intervals with their checkpoints last, and the rest is done again. Since every failure starts the count
anew, stretches can be played all at once.
"""

from __future__ import annotations

import numpy as np

from planner.quantities import Column, Count, Scalar, Seconds

FAILURES = 200_000
"""Failures played for a goodput: its error is then under 0.3 %, and that of the best interval about 1 %."""
RUNS = 200
"""Whole runs played for their spread."""
MOST_FAILURES_PER_RUN = 20_000
LOW, HIGH = 0.05, 0.95


def failure_gaps(mtbf: Seconds, number: int, seed: int) -> Column:
    """Times between failures, exponential with mean `mtbf`."""
    return np.random.default_rng(seed).exponential(mtbf, number)


def lasting_work(gaps: Column, interval: Seconds, *, write: Seconds, restart: Seconds) -> Column:
    """Work in each stretch between failures that a checkpoint kept."""
    return np.floor(np.maximum(gaps - restart, 0.0) / (interval + write)) * interval


def played_goodput(gaps: Column, interval: Seconds, *, write: Seconds, restart: Seconds) -> Scalar:
    """Share of all stretches that went into lasting work."""
    return float(lasting_work(gaps, interval, write=write, restart=restart).sum() / gaps.sum())


def best_played_interval(gaps: Column, *, write: Seconds, restart: Seconds, start: Seconds) -> Seconds:
    """The interval of the highest played goodput, looked for from a third of `start` to three times it.

    The optimum is flat, so that chance would decide between neighbours: a polynomial through all of them is searched.
    """
    position = np.linspace(-np.log(3), np.log(3), 41)
    played = [played_goodput(gaps, start * factor, write=write, restart=restart) for factor in np.exp(position)]
    smooth = np.polynomial.Polynomial.fit(position, played, 6)
    fine = np.linspace(position[0], position[-1], 2001)
    return float(start * np.exp(fine[np.argmax(smooth(fine))]))


def played_runs(
    work: Seconds, interval: Seconds, *, write: Seconds, restart: Seconds, mtbf: Seconds, seed: int, runs: Count = RUNS
) -> Column | None:
    """Time of whole runs of so much work, each with failures of its own; None where they are too many to play."""
    likely = work / interval * (interval + write) / mtbf
    if not likely < MOST_FAILURES_PER_RUN:
        return None
    random, number = np.random.default_rng(seed), int(2 * likely) + 50
    while number <= 4 * MOST_FAILURES_PER_RUN:
        gaps = random.exponential(mtbf, (runs, number))
        times = _finished(gaps, work, interval, write=write, restart=restart)
        if times is not None:
            return times
        number *= 2
    return None


def _finished(gaps: Column, work: Seconds, interval: Seconds, *, write: Seconds, restart: Seconds) -> Column | None:
    """When each row of stretches has done the work; None where one has not."""
    delay = np.full(gaps.shape[1], restart)
    delay[0] = 0.0
    lasting = lasting_work(gaps + restart - delay, interval, write=write, restart=restart)
    left = work - np.cumsum(lasting, axis=1) + lasting
    need = delay + left + write * np.ceil(left / interval)
    done = need <= gaps
    if not done.any(axis=1).all():
        return None
    row, last = np.arange(len(gaps)), done.argmax(axis=1)
    before = np.cumsum(gaps, axis=1) - gaps
    times: Column = before[row, last] + need[row, last]
    return times


def spread(times: Column) -> tuple[Seconds, Seconds]:
    """Between which times 9 of 10 runs end."""
    low, high = np.quantile(times, (LOW, HIGH))
    return float(low), float(high)
