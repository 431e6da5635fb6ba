"""A run of measurements: started on every rank, in step, within a budget of time, each result kept at once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from calibration.measure.machine import joined, left, machine
from calibration.measure.place import Place
from calibration.measure.progress import Progress
from calibration.measure.registry import measure
from calibration.measure.timing import CAP, Bench
from calibration.measurements import Measured, Measurement
from calibration.record import Record
from planner.emit.trainer.settings import Refusal
from planner.quantities import Seconds

SHORTEST_CAP: Seconds = 0.1
SETTLING: Seconds = 3.0
"""Kept of the budget for the fit at the end."""
FIT_EVERY: Seconds = 60.0
"""Between two fits, so that a long run that is killed leaves a profile too."""
GRACE: Seconds = 5.0
"""In which other processes end by themselves."""
UNTIMED = 2.5
"""What a measurement takes over the cap of its repeats: operands, warm-up."""

Fit = Callable[[Record], None]
"""Makes a profile of what was measured so far and keeps it in the record."""


@dataclass(frozen=True)
class Job:
    """What to measure and where to keep it, in so many `seconds` from when all ranks have come together."""

    device: str
    path: Path
    measurements: Sequence[Measurement]
    fit: Fit
    seconds: float
    processes: int
    quiet: bool = False


def run(job: Job) -> None:
    """Measure on all ranks: those that torchrun started, or this process and others that it starts.

    Raises FileFormatError where the file is of another machine.
    """
    if Place.told():
        return _rank(job, Place.of_torchrun(), "env://")
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/ranks"
        others = None
        if job.processes > 1:
            # They end with the process that started them, so that a kill leaves none behind.
            others = torch.multiprocessing.spawn(_spawned, (job, meeting), nprocs=job.processes - 1, join=False)
        try:
            _rank(job, Place.here(0, job.processes), meeting)
        finally:
            for other in others.processes if others else ():
                other.join(timeout=GRACE)
                other.kill()
    return None


def _spawned(number: int, job: Job, init_method: str) -> None:
    _rank(job, Place.here(number + 1, job.processes), init_method)


def _rank(job: Job, place: Place, init_method: str) -> None:
    """What one process does."""
    ranks = joined(job.device, place, init_method)
    here = machine(job.device, processes=place.world, nodes=place.nodes)
    record = Record.open(job.path, here) if ranks.first else None
    done = ranks.told(record.keys if record else None)
    left_over = [one for one in job.measurements if one.key not in done]
    deadline = time.time() + job.seconds
    cap = _cap(job.seconds, len(left_over))
    bench = Bench(ranks, cache=here.cache, memory=here.memory, cap=ranks.told(cap))
    with Progress(job, deadline, ranks, len(job.measurements), len(left_over)) as progress:
        _measure_all(bench, job, left_over, record, progress)
    left(ranks)


def _cap(seconds: Seconds, count: int) -> Seconds:
    """Seconds that the repeats of one measurement may take, so that as many as possible find time."""
    return min(CAP, max(SHORTEST_CAP, seconds / max(count, 1) / UNTIMED))


def _measure_all(
    bench: Bench, job: Job, measurements: Sequence[Measurement], record: Record | None, progress: Progress
) -> None:
    fitted = time.time()
    for measurement in measurements:
        if bench.ranks.told(time.time() > progress.deadline - SETTLING):
            break
        progress.starts(measurement)
        measured, failure = _tried(bench, measurement)
        # Ranks that can no longer agree have lost one of them: that is no failure of the measurement.
        (failed,) = bench.ranks.most(float(bool(failure)))
        if record is not None:
            record.add(measurement, None if failed else measured, failure=failure or "failed on another rank")
            if time.time() - fitted > FIT_EVERY:
                job.fit(record)
                fitted = time.time()
        progress.ends()
    if record is not None:
        job.fit(record)


def _tried(bench: Bench, measurement: Measurement) -> tuple[Measured | None, str]:
    """The result, or why there is none: memory that does not suffice, or what library or trainer do not have."""
    try:
        return measure(bench, measurement), ""
    except (RuntimeError, NotImplementedError, ValueError, Refusal) as error:
        if bench.on_cuda:
            torch.cuda.empty_cache()
        return None, " ".join(str(error).split())[:200] or type(error).__name__
