"""What stands at the top of every launch file: what it is for, and what to expect of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.emit.job import Job
from planner.emit.quoting import comment
from planner.quantities import GIB, counted, format_bytes, format_seconds

LEVELS = {
    "calibrated": "calibrated on this hardware and software",
    "transferred": "transferred: measured on this accelerator, under other software",
    "datasheet": "datasheet: nothing was measured on this hardware and software",
}
UNKNOWN_LEVEL = "none: the plan.json holds no prediction"


def header(job: Job, written_for: str) -> list[str]:
    """The comment lines that open a file which was written for a launcher of some version."""
    facts = {
        "written by": f"planner {job.contents.planner_version} for {written_for} and {job.trainer.written_for}",
        "model": job.contents.model.name,
        "cluster": f"{job.contents.cluster.name}: {size_words(job)}",
        "plan": job.words,
        **dict(expected(job.contents.prediction)),
        "question": job.contents.command,
    }
    return [line for name, text in facts.items() if text for line in comment(f"{name}: {text}")]


def size_words(job: Job) -> str:
    """How many accelerators, and how they are spread."""
    each = f"{job.gpus_per_node} x {job.contents.cluster.accelerator.name}"
    return f"{counted(job.world_size, 'GPU')}, {counted(job.nodes, 'node')} of {each}"


def expected(prediction: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Step time, speed, memory and how sure they are, as far as the plan.json states them."""
    figures = {name: value for name, value in prediction.items() if isinstance(value, int | float)}
    if "step_time_s" in figures:
        yield "expected step", f"{format_seconds(figures['step_time_s'])}{_interval(prediction)}"
    if "tokens_per_s" in figures:
        yield "expected speed", f"{figures['tokens_per_s']:,.0f} tokens/s in total"
    if "peak_memory_gib" in figures:
        usable = figures.get("usable_memory_gib")
        of = f" of {format_bytes(usable * GIB)} usable" if usable else ""
        yield "expected memory", f"peak of {format_bytes(figures['peak_memory_gib'] * GIB)} per GPU{of}"
    level = str(prediction.get("level", ""))
    yield "calibration", LEVELS.get(level, level) or UNKNOWN_LEVEL


def _interval(prediction: Mapping[str, Any]) -> str:
    match prediction.get("step_time_interval_s"):
        case [int() | float() as low, int() | float() as high]:
            return f" ({format_seconds(low)} to {format_seconds(high)} with 80 % probability)"
    return ""
