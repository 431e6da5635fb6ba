"""What a whole training run takes: days, GPU-hours, money."""

from __future__ import annotations

from dataclasses import dataclass

from planner.quantities import Count, PerSecond, Scalar, Seconds, Usd, UsdPerSecond
from planner.rows import Rows

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0


def run_time(tokens: Count, tokens_per_s: PerSecond) -> Seconds:
    """Time to train on so many tokens without a pause.

    T = tokens / tokens_per_s

    Source: definition. Holds for steady state: no failures, no evaluation, no checkpoint writing.

    >>> run_time(tokens=1e12, tokens_per_s=1e6) / SECONDS_PER_DAY
    11.574074074074074
    """
    return tokens / tokens_per_s


def device_time(time: Seconds, world_size: Count) -> Seconds:
    """Accelerator time of a run: what is paid for.

    T_dev = T world_size

    Source: definition; an idle accelerator of the job is paid for as well.

    >>> device_time(time=3600.0, world_size=16) / SECONDS_PER_HOUR
    16.0
    """
    return time * world_size


def run_cost(time: Seconds, world_size: Count, price: UsdPerSecond) -> Usd:
    """Rent of all accelerators for a run; `price` is one accelerator's.

    C = T world_size price

    Source: definition. Storage, network traffic and staff are not in it.

    >>> round(float(run_cost(time=7200.0, world_size=8, price=2.5 / 3600)), 6)
    40.0
    """
    return time * world_size * price


def cost_per_million_tokens(tokens_per_s_per_gpu: PerSecond, price: UsdPerSecond) -> Usd:
    """Rent for one million tokens.

    C = 10^6 price / tokens_per_s_per_gpu

    Source: definition.

    >>> round(float(cost_per_million_tokens(tokens_per_s_per_gpu=1e4, price=2.5 / 3600)), 6)
    0.069444
    """
    return 1e6 * price / tokens_per_s_per_gpu


@dataclass(frozen=True, eq=False)
class RunCost(Rows):
    """A whole run: `time` from start to end, `device_time` of all accelerators together, `usd` as (low, high)."""

    tokens: Scalar
    time: Seconds
    device_time: Seconds
    usd_low: Usd
    usd_high: Usd

    @property
    def days(self) -> Scalar:
        """From start to end, in days."""
        return self.time / SECONDS_PER_DAY

    @property
    def gpu_hours(self) -> Scalar:
        """Paid accelerator hours."""
        return self.device_time / SECONDS_PER_HOUR


def cost_of_run(
    tokens: Count, tokens_per_s: PerSecond, world_size: Count, price: tuple[UsdPerSecond, UsdPerSecond]
) -> RunCost:
    """Time and money to train on `tokens` at a steady speed; `price` is one accelerator's range (low, high)."""
    time = run_time(tokens, tokens_per_s)
    low, high = (run_cost(time, world_size, each) for each in price)
    return RunCost(tokens, time, device_time(time, world_size), low, high)
