"""How sure an estimate is: intervals, ties and the chance that a plan fits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import erf, hypot, inf, sqrt

import numpy as np

from planner.quantities import Bytes, Column, Number, Scalar, Seconds
from planner.spec.profile import Profile

WIDTH = 1.2816
"""Standard deviations on each side that hold 80 % of a normal distribution."""
TIE = 0.8
"""Two plans tie while the chance that one is faster is below this."""
TIGHT, FULL = 0.85, 0.95
"""Shares of usable memory from which a plan is tight, and from which it does not fit: near-full allocators retry, and
runs were measured 10 to 25 % slower there."""


class Verdict(IntEnum):
    """Whether a plan's peak memory fits."""

    FITS = 0
    TIGHT = 1
    DOES_NOT_FIT = 2


@dataclass(frozen=True)
class Interval:
    """80 % interval of a positive quantity. Scalars or columns."""

    low: Number
    high: Number


def step_time_interval(step_time: Seconds, profile: Profile) -> Interval:
    """80 % interval of the measured step time, from the profile's residuals (log-normal)."""
    return _log_normal(step_time, profile.error)


def memory_interval(peak: Bytes, profile: Profile, *, usable: Bytes = inf, spread: Scalar = 0.0) -> Interval:
    """80 % interval of the measured peak memory, with the profile's error or at least `spread`.

    One-sided near full memory: a run that was measured took no more than is `usable`.
    """
    wide = _log_normal(peak, max(profile.memory_error, spread))
    return Interval(np.minimum(wide.low, usable), np.minimum(wide.high, usable))


def _log_normal(value: Number, error: Scalar) -> Interval:
    return Interval(value * np.exp(-WIDTH * error), value * np.exp(WIDTH * error))


def verdict(peak: Bytes, usable: Bytes) -> Column:
    """`Verdict` codes: tight from 85 % of usable memory, too much from 95 %."""
    share = np.asarray(peak / usable)
    return (share > TIGHT).astype(np.int8) + (share > FULL)


def outcome(peak: Bytes, required: Bytes, usable: Bytes) -> Column:
    """`Verdict` codes of a run that somebody has started: it fails where it lacks what its allocator cannot give back.

    A plan to be recommended needs more room (`verdict`).
    """
    return (np.asarray(peak / usable) > TIGHT).astype(np.int8) + (np.asarray(required / usable) > 1)


def p_fits(peak: float, usable: Bytes, profile: Profile) -> float:
    """Chance that the measured peak stays within usable memory."""
    return _normal(np.log(usable / peak) / profile.memory_error)


def p_faster(step_time: float, other: float, profile: Profile, elsewhere: Profile | None = None) -> float:
    """Chance that the first plan is measured faster than the other, from the error that they do not share.

    Each plan's own error is normal in the logarithm with the profile's `plan_error`; the difference has sqrt(2) of it.
    The other plan's profile is given where it runs `elsewhere` (other hardware or software): then they share none.
    """
    spread = sqrt(2) * profile.plan_error if elsewhere is None else hypot(profile.error, elsewhere.error)
    return _normal(np.log(other / step_time) / spread)


def tie(step_time: float, other: float, profile: Profile) -> bool:
    """Whether the two plans cannot be told apart."""
    chance = p_faster(step_time, other, profile)
    return max(chance, 1 - chance) < TIE


def _normal(deviations: Number) -> float:
    """Share of a normal distribution below so many standard deviations."""
    return 0.5 * (1 + erf(float(deviations) / sqrt(2)))
