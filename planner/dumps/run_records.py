"""What is read of a training run from what it prints: speeds, memory, and the lines that say what went wrong."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

QUANTITIES = {
    "tokens_per_s": "tokens/s of all GPUs",
    "tokens_per_s_per_gpu": "tokens/s of one GPU",
    "samples_per_s": "sequences/s of all GPUs",
    "step_time": "seconds of an optimizer step",
    "flops_per_gpu": "FLOP/s of one GPU",
    "mfu": "model FLOPs utilisation, as a share",
    "allocated": "bytes that the framework's tensors take at the peak",
    "reserved": "bytes that the framework's allocator holds at the peak",
    "device": "bytes that the device reports as used",
}
"""Every quantity of a log, in base units."""
MEMORY = ("device", "reserved", "allocated")
LONGEST_WARM_UP = 10


@dataclass(frozen=True)
class Reading:
    """One figure of a log: the step that it belongs to, where that is told, and the line."""

    value: float
    step: int | None = None
    line: int = 0


@dataclass(frozen=True)
class TrainingLog:
    """The figures of a trainer's log, by quantity (a key of QUANTITIES), in the order of the log.

    `predicted` is what the planner's own trainer wrote beside its summary; `device` the accelerator's name.
    """

    trainer: str
    readings: Mapping[str, tuple[Reading, ...]]
    world_size: int | None = None
    global_batch_size: int | None = None
    device: str = ""
    predicted: Mapping[str, float] = field(default_factory=dict)

    def steady(self, quantity: str) -> tuple[float, ...]:
        """The figures of a quantity after warm-up: half of a short log, at most ten steps, are left out."""
        readings = self.readings.get(quantity, ())
        steps = sorted({reading.step for reading in readings if reading.step is not None})
        if len(steps) < 2:
            return tuple(reading.value for reading in readings[warm_up(len(readings)) :])
        first = steps[warm_up(len(steps))]
        return tuple(reading.value for reading in readings if reading.step is not None and reading.step >= first)

    def typical(self, quantity: str) -> float | None:
        """The median of a speed after warm-up, the largest of a memory; None where the log has none."""
        if quantity in MEMORY:
            return max((reading.value for reading in self.readings.get(quantity, ())), default=None)
        values = self.steady(quantity)
        return statistics.median(values) if values else None


def warm_up(steps: int) -> int:
    """How many of so many steps are taken for warm-up: compilation, allocation, the first reading of data.

    >>> warm_up(1), warm_up(3), warm_up(20), warm_up(500)
    (0, 1, 3, 10)
    """
    return min(steps // 2, max(3, steps // 10), LONGEST_WARM_UP)


@dataclass(frozen=True)
class Sign:
    """A line that says what went wrong, or how a run is set up: a key of `signs.KINDS`, and the figures in it.

    `rank` is the rank that says so, where the line tells.
    """

    kind: str
    line: int
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
