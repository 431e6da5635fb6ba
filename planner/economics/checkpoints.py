"""How long a checkpoint takes, and how often one should be written."""

from __future__ import annotations

import numpy as np

from planner.quantities import Bytes, BytesPerSecond, Scalar, Seconds


def transfer_time(size: Bytes, bandwidth: BytesPerSecond) -> Seconds:
    """Time to write a checkpoint to shared storage, or to read it back.

    t = size / bandwidth

    Source: definition; `bandwidth` is what all ranks together get from the storage.

    >>> transfer_time(size=1e12, bandwidth=100e9)
    10.0
    """
    return size / bandwidth


def young_interval(write: Seconds, mtbf: Seconds) -> Seconds:
    """Work between two checkpoints at which the least time is lost, to first order.

    tau = sqrt(2 C M)

    C is the time in which training stands still for a checkpoint, M the job's mean time between failures. Source:
    Young 1974 (A first order approximation to the optimum checkpoint interval, CACM 17(9)). Too long where C is no
    longer small against M: by 5 % at C = M / 100, by 17 % at M / 10.

    >>> float(young_interval(write=18.0, mtbf=3600.0))
    360.0
    """
    return np.sqrt(2 * write * mtbf)


def daly_interval(write: Seconds, mtbf: Seconds) -> Seconds:
    """Work between two checkpoints at which the least time is lost, to higher order.

    tau = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C    for C < 2M;  M otherwise

    Source: Daly 2006 (A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3)),
    equation 37. Within 1 % of the exact optimum up to C = M / 2, which loses a hundred-thousandth of the time; within
    6 % anywhere.

    >>> round(float(daly_interval(write=18.0, mtbf=3600.0)), 1)
    348.1
    """
    ratio = write / (2 * mtbf)
    near = np.sqrt(2 * write * mtbf) * (1 + np.sqrt(ratio) / 3 + ratio / 9) - write
    return np.where(ratio < 1, near, mtbf)


def first_order_loss(interval: Seconds, *, write: Seconds, restart: Seconds, mtbf: Seconds) -> Scalar:
    """Share of the time lost to checkpoints and failures while both are rare.

    f = C / tau + (tau / 2 + R) / M

    Checkpoints, half an interval of work done twice, and the restart. Source: Young 1974, with the restart added. Too
    large where f is not small.

    >>> first_order_loss(360.0, write=18.0, restart=36.0, mtbf=3600.0)
    0.11
    """
    return write / interval + (interval / 2 + restart) / mtbf
