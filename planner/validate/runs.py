"""Measured runs: each row of a table as the model, cluster, workload and plan that it states, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner.errors import SpecError
from planner.quantities import GB, GIB, Bytes, Seconds
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.validate.columns import Measured, Stated, TableRow, read_table
from planner.validate.complete import SkippedRun, completed
from planner.validate.job import Job
from planner.validate.run_cluster import run_cluster
from planner.validate.run_model import run_model
from planner.validate.run_plan import run_plan, run_stack, run_workload

MEMORY_KINDS = ("allocated", "reserved", "device")
UNKNOWN_MEMORY = "reserved"
"""What a memory reading of unknown kind counts as."""


@dataclass(frozen=True)
class Configuration:
    """What was run; `plan` is a scalar record, `stack` the conventions that the row's words may have changed."""

    model: Model
    cluster: Cluster
    workload: Workload
    plan: Plan
    stack: Stack


@dataclass(frozen=True)
class MeasuredRun:
    """One row. `configuration` is None where `skipped` says why the row cannot be predicted.

    `assumed` lists what the row did not state. Measured step time (s) and peak memory (bytes, of `memory_kind`) are 0
    where there is none. `oom`: the run ran out of memory (or crashed, where the source does not tell them apart).
    """

    id: str
    source_id: str
    stack: str
    accelerator: str
    configuration: Configuration | None
    assumed: tuple[str, ...]
    skipped: str
    measured_step_time: Seconds
    measured_memory: Bytes
    memory_kind: str
    oom: bool | None
    complete: bool
    grade: str
    job: Job | None = None
    """What its plan was one answer to; None where the row cannot be predicted."""


def read_runs(path: Path) -> list[MeasuredRun]:
    """Every row of a table of measured runs, in its order.

    Raises FileFormatError, in one line, for a file that is no such table.
    """
    return [_run(row, number) for number, row in enumerate(read_table(path), start=1)]


def _run(row: TableRow, number: int) -> MeasuredRun:
    stated, measured = row.stated, row.measured
    configuration, skipped, filled = None, row.wrong, stated
    assumed: tuple[str, ...] = ()
    try:
        if not skipped:
            filled, assumed = completed(stated)
            configuration, more = configured(filled)
            assumed = (*assumed, *more)
    except (SkippedRun, SpecError) as error:
        skipped = str(error)
    return MeasuredRun(
        id=stated.id or str(number),
        source_id=stated.source_id,
        stack=filled.stack or "other",
        accelerator=configuration.cluster.accelerator.name if configuration else stated.gpu,
        configuration=configuration,
        assumed=assumed,
        skipped=skipped,
        measured_step_time=_step_time(filled, measured),
        measured_memory=measured.peak_mem_gib * GIB or measured.peak_mem_gb * GB,
        memory_kind=measured.memory_kind if measured.memory_kind in MEMORY_KINDS else UNKNOWN_MEMORY,
        oom=measured.oom,
        complete=bool(stated.complete),
        grade=stated.grade,
        job=Job.of(filled) if configuration else None,
    )


def configured(filled: Stated) -> tuple[Configuration, tuple[str, ...]]:
    """The records of a completed row, and what they assume. Raises SkippedRun or SpecError."""
    model, of_model = run_model(filled)
    cluster, of_cluster = run_cluster(filled)
    plan, workload = run_plan(filled, model), run_workload(filled)
    return Configuration(model, cluster, workload, plan, run_stack(filled)), (*of_model, *of_cluster)


def _step_time(filled: Stated, measured: Measured) -> Seconds:
    """Seconds per step; from the throughput by identity where the step is not timed."""
    if measured.step_time_s:
        return measured.step_time_s
    if measured.tokens_per_s_per_gpu and filled.n_gpus:
        return filled.global_batch * filled.seq_len / (measured.tokens_per_s_per_gpu * filled.n_gpus)
    return filled.global_batch / measured.samples_per_s if measured.samples_per_s else 0.0
