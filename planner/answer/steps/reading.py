"""Measured runs of files: logs of trainers, records of the planner's own, traces of torch's profiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.answer.steps.records import SCHEMA_VERSION, Run, StepsAsked
from planner.answer.steps.told import Told, of_log, of_nothing, on_processor
from planner.dumps.kineto import Trace, file_text, is_trace, read_trace
from planner.dumps.kineto_steps import trace_steps
from planner.dumps.own_record import own_runs
from planner.dumps.run_records import MEMORY, Reading, TrainingLog
from planner.dumps.steps import logged_steps, steady
from planner.dumps.text import MOST_BYTES, plain_text
from planner.dumps.training_logs import read_training_log
from planner.emit.write import write_files
from planner.errors import FileFormatError
from planner.validate.columns import Stated
from planner.validate.runs import Configuration
from planner.validate.stated_row import rows_text, stated_row

NO_STEP = (
    "holds no step of a training run: no step time and no throughput that a known trainer prints, and no ProfilerStep "
    "of a profiler's trace (call profiler.step() after each step)"
)


@dataclass(frozen=True)
class ImportedSteps:
    """The runs of several files; `failed` says which files had none, and why."""

    runs: tuple[Run, ...]
    failed: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "runs": [run.as_dict() for run in self.runs],
            "failed": list(self.failed),
        }


def import_steps(paths: Sequence[Path], asked: StepsAsked | None = None) -> ImportedSteps:
    """All runs of all files. Raises FileFormatError where no file has any, SpecError for options that are wrong."""
    runs: list[Run] = []
    failed: list[str] = []
    given = of_nothing(asked or StepsAsked())
    for path in paths:
        try:
            runs += _runs(path, given)
        except FileFormatError as error:
            failed.append(str(error))
    if not runs:
        raise FileFormatError("; ".join(failed[:3]))
    return ImportedSteps(tuple(_named(runs)), tuple(failed))


def write_rows(found: ImportedSteps, path: Path, *, force: bool = False) -> Path:
    """Write the runs as a table that `planner validate` reads, whole or not at all.

    Raises SpecError where the file is there and may not be replaced.
    """
    text = rows_text([run.row for run in found.runs])
    return write_files({path.name: text}, path.parent, force=force)[0]


def _named(runs: Sequence[Run]) -> Iterator[Run]:
    """Runs whose rows have names of their own: the file's, with a number where it is not the first."""
    used: dict[str, int] = {}
    for run in runs:
        stem = Path(run.path).name.split(".")[0]
        used[stem] = used.get(stem, 0) + 1
        name = stem if used[stem] == 1 else f"{stem}-{used[stem]}"
        yield replace(run, stated=replace(run.stated, id=name))


def _runs(path: Path, given: Told) -> list[Run]:
    """The runs of a file. Raises FileFormatError, naming the file, where it has none."""
    text = file_text(path)
    if is_trace(text):
        return [_traced(path, read_trace(text), given)]
    if len(text) > MOST_BYTES:
        raise FileFormatError(
            f"is a log of more than {MOST_BYTES // 2**20} MiB: keep one rank's lines", where=str(path)
        )
    found = [run for part in own_runs(plain_text(text)) if (run := _logged(path, part, given))]
    if not found:
        raise FileFormatError(NO_STEP, where=str(path))
    return found


def _logged(path: Path, text: str, given: Told) -> Run | None:
    log = read_training_log(text)
    if log is None:
        return None
    told = of_log(path, text, log, given)
    times = logged_steps(log, text=text, sequences=told.sequences, seq_len=told.seq_len, ranks=told.ranks)
    if times is None:
        if any(log.readings.get(name) for name in ("tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s")):
            said = "tells a throughput, but not the tokens of a step: name the run's plan with --plan plan.json"
            raise FileFormatError(said, where=str(path))
        return None
    memory = {} if on_processor(log.device) else {kind: size for kind in MEMORY if (size := log.typical(kind))}
    run = Run(str(path), log.trainer, times, memory, device=log.device)
    return _joined(run, told)


def _traced(path: Path, trace: Trace, given: Told) -> Run:
    steps = trace_steps(trace)
    if steps is None:
        raise FileFormatError(NO_STEP, where=str(path))
    readings = [Reading(value, number) for number, value in zip(steps.numbers, steps.seconds, strict=True)]
    # A profiler's schedule waits and warms up before the steps that it records, unless it starts with step 0.
    times = steady(readings, basis="profiled", warm=None if steps.numbers[0] == 0 else 0)
    notes = ("the file ends before the trace does: steps after the tear are missing",) if trace.torn else ()
    run = Run(
        str(path),
        "torch's profiler",
        times,
        trace.memory or {},
        device=trace.device or ("" if steps.on_device else "cpu"),
        trace=steps,
        notes=(*notes, "profiling slows a step: times of a log without it are nearer to a run's"),
    )
    return _joined(run, of_log(path, "", TrainingLog("", {}, trace.ranks or None, device=trace.device), given))


def _joined(run: Run, told: Told) -> Run:
    """A run with what is told of its plan, and its row."""
    ranked = told.ranked
    unsaid: tuple[str, ...] = ()
    stated = Stated(
        source_id="own",
        stack=told.stack,
        seq_len=told.seq_len,
        gpu=told.gpu,
        n_gpus=told.ranks,
        global_batch=told.sequences,
    )
    if ranked:
        asked = ranked.question
        stated, unsaid = stated_row(
            "", Configuration(asked.model, asked.cluster, asked.workload, ranked.plan, asked.stack)
        )
    return replace(
        run,
        ranks=told.ranks,
        tokens_per_step=told.sequences * told.seq_len,
        ranked=ranked,
        stated=stated,
        missing=told.missing,
        notes=(*run.notes, *told.notes, *(f"not in the table: {each}" for each in unsaid)),
    )
