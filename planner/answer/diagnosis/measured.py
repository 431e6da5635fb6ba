"""What was measured of a training run, beside what was to be expected of its plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log
from pathlib import Path

from planner.answer.diagnosis.records import Asked, Case, Comparison, Taken
from planner.answer.ranked_plan import RankedPlan
from planner.dumps.run_records import TrainingLog
from planner.errors import SpecError
from planner.estimate.interval import memory_interval
from planner.quantities import GIB, format_seconds, to_base

SPEED, MEMORY = "speed", "memory"
GIVEN = Path("the command line")
NUMBER = r"((?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d*)?|\.\d+)"
"""A number with commas between thousands only: 26,5 is none, and not 265."""
RATE = re.compile(NUMBER + r"\s*([KkMm]?)\s*(?:/\s*(gpu|total|all))?", re.ASCII | re.IGNORECASE)
SIZE = re.compile(NUMBER + r"\s*([KMGT]i?B)?", re.ASCII)
FACTORS = {"": 1.0, "k": 1e3, "m": 1e6}


def speed(case: Case) -> tuple[Comparison | None, list[str]]:
    """Tokens per second beside those of the plan, and what to know of them; None where either is not known."""
    notes: list[str] = []
    if case.plan is None:
        return _own_prediction(case), notes
    found = _given_rate(case.asked, case.plan, notes) or next(_logged_rates(case, case.plan, notes), None)
    if found is None:
        return None, notes
    (total, source), plan = found, case.plan
    expected, interval = float(plan.speed.tokens_per_s), plan.interval
    return (
        Comparison(
            what=SPEED,
            unit="tokens/s",
            measured=total,
            expected=expected,
            low=expected * plan.step_time / float(interval.high),
            high=expected * plan.step_time / float(interval.low),
            basis=f"{plan.words} on {plan.question.cluster.name}, {plan.question.profile.level}",
            source=source,
        ),
        notes,
    )


def _given_rate(asked: Asked, plan: RankedPlan, notes: list[str]) -> tuple[float, str] | None:
    """--measured-tps as tokens/s of all GPUs; a bare number is of one GPU or of all, whichever lies nearer."""
    if asked.measured_tps is None:
        return None
    found = RATE.fullmatch(asked.measured_tps.strip())
    value = float(found[1].replace(",", "").replace("_", "")) * FACTORS[found[2].lower()] if found else 0.0
    if found is None or not value:
        said = f"should be tokens per second, as 14288, 14288/total or 1786/gpu, not {asked.measured_tps!r}"
        raise SpecError(said, where="--measured-tps")
    world, expected = plan.question.cluster.world_size, float(plan.speed.tokens_per_s)
    per_gpu = (found[3] or "").lower() == "gpu"
    if not found[3] and world > 1:
        per_gpu = abs(log(value * world / expected)) < abs(log(value / expected))
        other = "total" if per_gpu else "gpu"
        notes.append(
            f"{value:,.0f} tokens/s is taken as that of {'one GPU' if per_gpu else f'all {world} GPUs'}, which is "
            f"nearer to what was expected; write {asked.measured_tps}/{other} if it is not"
        )
    return value * (world if per_gpu else 1), "--measured-tps"


def _logged_rates(case: Case, plan: RankedPlan, notes: list[str]) -> Iterator[tuple[float, str]]:
    """Tokens/s of all GPUs by each log, and where it was read."""
    for file, log_ in case.logs:
        for quantity in ("tokens_per_s", "tokens_per_s_per_gpu", "step_time", "samples_per_s", "flops_per_gpu", "mfu"):
            value = log_.typical(quantity)
            if value is None:
                continue
            total = _total(quantity, value, log_, plan, notes)
            yield total, f"{file.path}: {_said(quantity, value, len(log_.steady(quantity)))}"
            break


def _total(quantity: str, value: float, log_: TrainingLog, plan: RankedPlan, notes: list[str]) -> float:
    """A speed of any kind as tokens/s of all GPUs."""
    asked, world = plan.question, plan.question.cluster.world_size
    expected, tokens = float(plan.speed.tokens_per_s), asked.workload.tokens_per_step
    if log_.world_size and log_.world_size != world:
        notes.append(f"the log is of {log_.world_size} processes, {asked.cluster.name} has {world} GPUs")
    if quantity == "step_time":
        batch = log_.global_batch_size
        if batch and batch != asked.workload.global_batch_size:
            notes.append(f"the log's steps are of {batch} sequences, the plan's of {asked.workload.global_batch_size}")
            tokens = batch * asked.workload.seq_len
        return tokens / value
    if quantity == "mfu":
        return expected * value / float(plan.speed.mfu)
    peak = float(asked.cluster.accelerator.peak_flops(asked.workload.precision))
    return {
        "tokens_per_s": value,
        "tokens_per_s_per_gpu": value * world,
        "samples_per_s": value * asked.workload.seq_len,
        "flops_per_gpu": expected * value / peak / float(plan.speed.mfu),
    }[quantity]


def _said(quantity: str, value: float, number: int) -> str:
    """A figure as the log gives it."""
    words = {
        "tokens_per_s": f"{value:,.0f} tokens/s",
        "tokens_per_s_per_gpu": f"{value:,.0f} tokens/s per GPU",
        "step_time": f"{format_seconds(value)} per step",
        "samples_per_s": f"{value:,.3g} samples/s",
        "flops_per_gpu": f"{value / 1e12:,.0f} TFLOP/s per GPU",
        "mfu": f"MFU {value:.1%}",
    }[quantity]
    return words if number == 1 else f"{words} (median of {number} after warm-up)"


def readings(case: Case) -> dict[str, tuple[float, str, str]]:
    """What the logs say, compared or not: quantity -> value, unit, and where it was read."""
    found: dict[str, tuple[float, str, str]] = {}
    for file, log_ in case.logs:
        for quantity in log_.readings:
            value = log_.typical(quantity)
            if value is not None:
                scale, unit = UNITS.get(quantity, (1.0, quantity.removesuffix("_per_s") + "/s"))
                found.setdefault(quantity, (value / scale, unit, str(file.path)))
    return found


UNITS = {
    "tokens_per_s_per_gpu": (1.0, "tokens/s per GPU"),
    "step_time": (1.0, "s"),
    "flops_per_gpu": (1e12, "TFLOP/s per GPU"),
    "mfu": (0.01, "%"),
    "allocated": (GIB, "GiB"),
    "reserved": (GIB, "GiB"),
    "device": (GIB, "GiB"),
}
"""Quantity -> the unit that it is shown in, and its size; all others are per second."""


def _own_prediction(case: Case) -> Comparison | None:
    """The speed of a run of the planner's own trainer beside the prediction in its record."""
    for file, log_ in case.logs:
        told, value = log_.predicted, log_.typical("tokens_per_s")
        if value and told.get("tokens_per_s") and told.get("step_time_s"):
            expected, step = told["tokens_per_s"], told["step_time_s"]
            low, high = told.get("step_time_low_s", step), told.get("step_time_high_s", step)
            return Comparison(
                what=SPEED,
                unit="tokens/s",
                measured=value,
                expected=expected,
                low=expected * step / max(high, step),
                high=expected * step / min(low, step) if low else expected,
                basis="the prediction in the run's record",
                source=f"{file.path}: {_said('tokens_per_s', value, len(log_.steady('tokens_per_s')))}",
            )
    return None


def memory(case: Case) -> Comparison | None:
    """Peak memory of a GPU beside the plan's: what the device reports, or what the allocator holds or hands out."""
    plan = case.plan
    found = _given_size(case.asked) or _logged_size(case)
    if plan is None or found is None:
        return None
    size, kind, source = found
    use = plan.memory
    reserved = plan.peak - float(use.context) - float(use.communication_buffers)
    expected = {"device": plan.peak, "reserved": reserved, "allocated": float(use.allocated)}[kind]
    interval = memory_interval(expected, plan.question.profile)
    return Comparison(
        what=MEMORY,
        unit="GiB",
        measured=size / GIB,
        expected=expected / GIB,
        low=float(interval.low) / GIB,
        high=float(interval.high) / GIB,
        basis={
            "device": "peak of a GPU, all included",
            "reserved": "what the allocator holds",
            "allocated": "what tensors take",
        }[kind],
        source=source,
        less_is_better=True,
    )


def _given_size(asked: Asked) -> tuple[float, str, str] | None:
    if asked.measured_mem is None:
        return None
    found = SIZE.fullmatch(asked.measured_mem.strip())
    value = to_base(float(found[1].replace(",", "").replace("_", "")), found[2] or "GiB") if found else 0.0
    if not value:
        said = f"should be the peak of a GPU, as 26.5GiB or 28.4GB, not {asked.measured_mem!r}"
        raise SpecError(said, where="--measured-mem")
    return value, "device", "--measured-mem"


def _logged_size(case: Case) -> tuple[float, str, str] | None:
    for kind in ("device", "reserved", "allocated"):
        sizes = [(size, file) for file, log_ in case.logs if not on_host(file) and (size := log_.typical(kind))]
        if sizes:
            size, file = max(sizes, key=lambda each: each[0])
            return size, kind, str(file.path)
    return None


def on_host(file: Taken) -> bool:
    """Whether a run was on a host's processor: the memory that it reports is then the process'."""
    device = file.log.device.lower() if file.log else ""
    return bool(device) and (device in ("cpu", "x86_64", "aarch64", "arm64", "arm") or "cpu" in device)
