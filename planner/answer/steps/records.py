"""What is read of measured runs, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from planner.answer.ranked_plan import RankedPlan
from planner.dumps.kineto_steps import TraceSteps
from planner.dumps.steps import StepTimes
from planner.estimate.interval import Interval, memory_interval
from planner.quantities import GIB, Bytes, Count, Scalar, Seconds
from planner.validate.columns import Measured, Stated
from planner.validate.predict import of_kind

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class StepsAsked:
    """What a person says of the runs beside their files."""

    plan: Path | None = None
    model: str | None = None
    cluster: str | None = None
    stack: str | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """One run: what was measured, and the plan that it followed, None where nothing tells it.

    `memory` is the peak in bytes by kind (allocated, reserved, device). `ranks` and `tokens_per_step` are 0 where they
    are not known. `missing` says what a row of the table of runs lacks, `notes` what else to know.
    """

    path: str
    trainer: str
    times: StepTimes
    memory: Mapping[str, Bytes] = field(default_factory=dict)
    ranks: Count = 0
    tokens_per_step: Count = 0
    device: str = ""
    ranked: RankedPlan | None = None
    stated: Stated = field(default_factory=Stated)
    trace: TraceSteps | None = None
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def memory_kind(self) -> str:
        """The kind of memory that is compared: what the allocator holds before what tensors take."""
        return next((kind for kind in ("reserved", "allocated", "device") if kind in self.memory), "")

    @property
    def tokens_per_s(self) -> float:
        """Of all ranks; 0 where the tokens of a step are not known."""
        return self.tokens_per_step / self.times.median

    @property
    def predicted_step_time(self) -> Seconds | None:
        """What the planner expects of the plan."""
        return self.ranked.step_time if self.ranked else None

    @property
    def error(self) -> Scalar | None:
        """Predicted over measured step time, less one."""
        return self.ranked.step_time / self.times.median - 1 if self.ranked else None

    @property
    def predicted_memory(self) -> tuple[Bytes, Interval] | None:
        """What the planner expects of the kind of memory that was measured."""
        if self.ranked is None or not self.memory_kind:
            return None
        expected = float(of_kind(self.ranked.memory, [self.memory_kind])[0])
        return expected, memory_interval(expected, self.ranked.question.profile)

    @property
    def row(self) -> tuple[Stated, Measured]:
        """The run as a row of the table that `planner validate` reads."""
        peak = self.memory[self.memory_kind] / GIB if self.memory_kind else 0.0
        return self.stated, Measured(self.times.median, peak_mem_gib=peak, memory_kind=self.memory_kind)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        interval, memory = self.ranked.interval if self.ranked else None, self.predicted_memory
        return {
            "file": self.path,
            "trainer": self.trainer,
            "device": self.device or None,
            "ranks": self.ranks or None,
            "steps_read": self.times.steps,
            "steps_counted": len(self.times.counted),
            "warm_up_steps": self.times.warm_up,
            "left_out": [
                {"step": odd.step.step, "line": odd.step.line, "seconds": odd.step.value, "reason": odd.reason or None}
                for odd in self.times.odd
            ],
            "basis": self.times.basis,
            "step_time_s": self.times.median,
            "spread": self.times.spread,
            "tokens_per_step": self.tokens_per_step or None,
            "tokens_per_s": self.tokens_per_s or None,
            "peak_memory_gib": {kind: size / GIB for kind, size in self.memory.items()},
            "plan": self.ranked.name if self.ranked else None,
            "predicted_step_time_s": self.predicted_step_time,
            "interval_s": [interval.low, interval.high] if interval else None,
            "error": self.error,
            "predicted_peak_memory_gib": memory[0] / GIB if memory else None,
            "memory_interval_gib": [memory[1].low / GIB, memory[1].high / GIB] if memory else None,
            "trace": self.trace.as_dict() if self.trace else None,
            "row": {name: value for half in self.row for name, value in asdict(half).items() if value not in ("", 0)},
            "missing": list(self.missing),
            "notes": list(self.notes),
        }
