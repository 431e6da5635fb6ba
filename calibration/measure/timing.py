"""Timing: warm-up, clocks of host and device, and repeats until the median is known well enough or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from statistics import median, quantiles
from typing import Any

import torch

from calibration.measure.ranks import Ranks
from calibration.measurements import Measured
from planner.quantities import Bytes, Count, Scalar, Seconds

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Operation = Callable[[], Any]
Clock = Callable[[Operation, int], list[float]]
"""From an operation and a number of calls to the seconds of each."""

PRECISION: Scalar = 0.02
"""Half of the 95 % interval of the median over the median at which there are repeats enough."""
CAP: Seconds = 1.0
"""Time after which one measurement ends, however far its repeats lie apart."""
WARM_UP: Seconds = 0.05
"""Clocks rise and libraries choose their kernels in the first calls."""
FEWEST: Count = 5
LARGEST_BATCH: Count = 100
"""Calls between two looks at the clock of the whole measurement."""
RANDOM_ELEMENTS = 1 << 20
"""Random values that a tensor repeats: drawing them all takes longer than most measurements."""
LARGEST_CACHE: Bytes = 32 * 2**20
"""Of a cache that is larger (hosts of many virtual machines) a rank has but a part."""
HEAD_START_CYCLES = 100_000
"""Device cycles per call, some 60 us, that the host is ahead by, so that the device does not wait for launches."""


def host_times(operation: Operation, count: int) -> list[Seconds]:
    """By the host's clock, call by call: what a CPU computes, or what makes the host wait for the device."""
    stamps = [time.perf_counter()]
    for _ in range(count):
        operation()
        stamps.append(time.perf_counter())
    return _gaps(stamps)


def launch_times(operation: Operation, count: int) -> list[Seconds]:
    """By the host's clock, with an empty queue before each call: what it takes to launch, not to compute."""
    seconds = []
    for _ in range(count):
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        started = time.perf_counter()
        operation()
        seconds.append(time.perf_counter() - started)
    return seconds


def cuda_times(operation: Operation, count: int) -> list[Seconds]:
    """By the device's clock, between events. The device is kept busy first, so that launches lie ahead of it."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    torch.cuda._sleep(HEAD_START_CYCLES * count)
    events[0].record()
    for event in events[1:]:
        operation()
        event.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)]


def _gaps(stamps: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(stamps)]


def interval(samples: Sequence[float]) -> Scalar:
    """Half of the 95 % interval of the median over the median, by ranks (no assumption on the distribution).

    >>> interval([1.0] * 20)
    0.0
    """
    ordered, n = sorted(samples), len(samples)
    reach = 0.98 * n**0.5
    low, high = max(0, int(n / 2 - reach)), min(n - 1, int(n / 2 + reach))
    return (ordered[high] - ordered[low]) / 2 / median(ordered)


def spread(samples: Sequence[float]) -> Scalar:
    """Distance between the quartiles over the median; 0 of a single sample."""
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4)
    return (high - low) / median(samples)


@dataclass
class Bench:
    """What measurements need of the machine: tensors of random data, the clock, and the ranks that measure too."""

    ranks: Ranks
    cache: Bytes
    memory: Bytes
    cap: Seconds = CAP
    precision: Scalar = PRECISION
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator(device=self.device).manual_seed(self.ranks.rank)

    @property
    def device(self) -> torch.device:
        """Where tensors are made."""
        return self.ranks.device

    @property
    def on_cuda(self) -> bool:
        """Whether the device runs beside the host."""
        return self.device.type == "cuda"

    @property
    def clock(self) -> Clock:
        """The clock of the device."""
        return cuda_times if self.on_cuda else host_times

    def random(self, *shape: int, dtype: str = "fp32", grad: bool = False) -> torch.Tensor:
        """A tensor of random values (zeros would take less power, and with it less time)."""
        count = 1
        for size in shape:
            count *= size
        drawn = torch.randn(min(count, RANDOM_ELEMENTS), device=self.device, generator=self.generator)
        repeats = -(-count // len(drawn))
        values = drawn.to(DTYPES[dtype]).repeat(repeats)[:count].reshape(shape)
        return values.requires_grad_(grad)

    def copies(self, size: Bytes) -> int:
        """How many sets of operands of `size` bytes it takes that none is found in a cache when its turn comes."""
        return max(1, min(64, int(2 * min(self.cache, LARGEST_CACHE) // max(size, 1)) + 1))

    def turns(self, make: Callable[[], Any], size: Bytes) -> Iterator[Any]:
        """Sets of operands, each of `size` bytes, one after the other without end."""
        return cycle([make() for _ in range(self.copies(size))])

    def time(self, operation: Operation, *, clock: Clock | None = None) -> Measured:
        """The median time of an operation on the slowest rank. All ranks time it at once, equally often."""
        clock = clock or self.clock
        once = self._warmed_up(operation, clock)
        batch = int(max(1, min(LARGEST_BATCH, self.cap / 8 / once)))
        samples: list[Seconds] = []
        spent, enough = 0.0, False
        while not enough:
            started = time.perf_counter()
            samples += clock(operation, batch)
            spent += time.perf_counter() - started
            unsure = len(samples) < FEWEST or interval(samples) > self.precision
            unsure, longest = self.ranks.most(float(unsure), spent)
            enough = not unsure or longest >= self.cap
        value, far = self.ranks.most(median(samples), spread(samples))
        return Measured(value, far, len(samples))

    def _warmed_up(self, operation: Operation, clock: Clock) -> Seconds:
        """Seconds of one call, after calls that count for nothing; the same on every rank."""
        (once,) = self.ranks.most(clock(operation, 1)[0])
        calls = int(max(1, min(LARGEST_BATCH, WARM_UP / max(once, 1e-9))))
        (once,) = self.ranks.most(median(clock(operation, calls)))
        return max(once, 1e-9)
