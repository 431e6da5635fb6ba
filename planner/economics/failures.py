"""Failures of a whole job, and what they leave of its time."""

from __future__ import annotations

import numpy as np

from planner.quantities import Count, Scalar, Seconds, UsdPerSecond

LARGEST_EXPONENT = 600.0
"""Beyond it nothing is left of the time, and an exponential would underflow."""


def device_mtbf(time: Seconds, world_size: Count, failures: Count) -> Seconds:
    """Mean time between failures of one accelerator with its share of all that can fail, from a run's record.

    m = T world_size / failures

    Source: definition; for failures that come at random and each stop the job.

    >>> device_mtbf(time=54 * 24.0, world_size=16384, failures=419).__round__()
    50677
    """
    return time * world_size / failures


def job_mtbf(device_mtbf: Seconds, world_size: Count) -> Seconds:
    """Mean time between failures of a job, which any of its accelerators stops.

    M = m / world_size

    Source: failures that come independently of each other at a constant rate, as Kokolis et al. 2024 (arXiv
    2410.21680) take it of jobs of many sizes.

    >>> job_mtbf(device_mtbf=50000.0, world_size=1000)
    50.0
    """
    return device_mtbf / world_size


def joint_mtbf(first: Seconds, second: Seconds) -> Seconds:
    """Mean time between events of two kinds, such as failures and preemptions.

    1/M = 1/M_1 + 1/M_2

    Source: rates of independent Poisson processes add.

    >>> joint_mtbf(30.0, 60.0)
    20.0
    """
    return first * second / (first + second)


def goodput(interval: Seconds, *, write: Seconds, restart: Seconds, mtbf: Seconds) -> Scalar:
    """Share of the time that goes into work which lasts.

    g = (tau / M) exp(-(R + tau + C) / M) / (1 - exp(-(tau + C) / M))

    Failures may strike during work, checkpoint and restart. Source: Daly 2006 (FGCS 22(3)), whose whole time is
    T/g. Exact for exponential times between failures, a run of many intervals and a constant restart.

    >>> round(float(goodput(360.0, write=18.0, restart=36.0, mtbf=3600.0)), 4)
    0.8943
    """
    until_saved = np.minimum((interval + write) / mtbf, LARGEST_EXPONENT)
    until_working = np.minimum(restart / mtbf, LARGEST_EXPONENT - until_saved)
    return interval / mtbf * np.exp(-until_working - until_saved) / -np.expm1(-until_saved)


def useful_price(price: UsdPerSecond, goodput: Scalar) -> UsdPerSecond:
    """What a unit of time that lasts costs, when only a share of the time paid for does.

    c = price / g

    Source: definition.

    >>> useful_price(price=2.0, goodput=0.8)
    2.5
    """
    return price / goodput
