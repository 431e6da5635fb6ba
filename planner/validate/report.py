"""A table of measured runs scored: one prediction per row, errors by source, accelerator and stack, order of plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.estimate.interval import Interval, Verdict
from planner.quantities import GIB, Column, Number, Scalar
from planner.validate.plan_order import PlanOrder, plan_orders
from planner.validate.predict import Prediction, ProfileOf, catalogue_profile, predict
from planner.validate.runs import MeasuredRun, read_runs
from planner.validate.scores import Score, score

DIVISIONS: dict[str, Callable[[MeasuredRun], str]] = {
    "source_id": lambda run: run.source_id,
    "accelerator": lambda run: run.accelerator,
    "stack": lambda run: run.stack,
}
"""What scores are also given by."""


@dataclass(frozen=True)
class PredictedRun:
    """A row and what was predicted of it. Measured figures count only where a run did not run out of memory."""

    run: MeasuredRun
    made: Prediction

    @property
    def measured_time(self) -> float:
        """Seconds per step that can be scored, else 0."""
        return 0.0 if self.run.oom or self.made.skipped else self.run.measured_step_time

    @property
    def measured_memory(self) -> float:
        """Peak bytes that can be scored, else 0."""
        return 0.0 if self.run.oom or self.made.skipped else self.run.measured_memory

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON has it; what is not known is null."""
        run, made, known = self.run, self.made, not self.made.skipped
        return {
            "id": run.id,
            "source_id": run.source_id,
            "predicted_step_time_s": made.step_time if known else None,
            "interval_s": _pair(made.step_time_interval, 1.0),
            "measured_step_time_s": run.measured_step_time or None,
            "predicted_peak_memory_gib": made.memory / GIB if known else None,
            "memory_interval_gib": _pair(made.memory_interval, GIB),
            "measured_peak_memory_gib": run.measured_memory / GIB or None,
            "memory_kind": run.memory_kind,
            "memory_verdict": made.verdict.name.lower() if known else None,
            "oom": run.oom,
            "level": made.level if known else None,
            "assumed": list(run.assumed),
            "skipped": made.skipped or None,
        }


@dataclass(frozen=True)
class Scores:
    """Errors of some rows: of step time and of peak memory, with the share of each that lies in its interval."""

    time: Score
    time_coverage: Scalar
    memory: Score
    memory_coverage: Scalar

    def as_dict(self) -> dict[str, Any]:
        """As JSON has them."""
        return {
            "step_time": _figures(self.time, self.time_coverage),
            "memory": _figures(self.memory, self.memory_coverage),
        }


@dataclass(frozen=True)
class RunsReport:
    """All rows in the order of the table, their scores, and how well plans of one job are ordered."""

    rows: tuple[PredictedRun, ...]
    groups: tuple[PlanOrder, ...]

    def scores(self, chosen: Callable[[PredictedRun], bool] = lambda row: True) -> Scores:
        """Scores of some rows."""
        rows = [row for row in self.rows if chosen(row)]
        time, memory = _column(rows, lambda row: row.measured_time), _column(rows, lambda row: row.measured_memory)
        return Scores(
            time=score(time, _column(rows, lambda row: row.made.step_time)),
            time_coverage=_coverage(time, [row.made.step_time_interval for row in rows]),
            memory=score(memory, _column(rows, lambda row: row.made.memory)),
            memory_coverage=_coverage(memory, [row.made.memory_interval for row in rows]),
        )

    def divided(self, division: str) -> dict[str, Scores]:
        """Scores by one of `DIVISIONS`, in the order of the table."""
        name = DIVISIONS[division]
        names = dict.fromkeys(name(row.run) for row in self.rows)
        return {each: self.scores(lambda row, each=each: name(row.run) == each) for each in names}  # type: ignore[misc]

    def outcomes(self) -> dict[str, dict[str, int]]:
        """How many runs that ran, and that ran out of memory, got each verdict."""
        known = [row for row in self.rows if not row.made.skipped]
        outcomes = {
            "ran": [row for row in known if not row.run.oom and row.run.measured_step_time],
            "out_of_memory": [row for row in known if row.run.oom],
        }
        return {
            name: {verdict.name.lower(): sum(row.made.verdict is verdict for row in rows) for verdict in Verdict}
            for name, rows in outcomes.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """The whole report as JSON."""
        by = {f"by_{name}": self.divided(name) for name in DIVISIONS}
        summary = {
            "rows": len(self.rows),
            "predicted": sum(not row.made.skipped for row in self.rows),
            "overall": self.scores().as_dict(),
            **{key: {name: each.as_dict() for name, each in found.items()} for key, found in by.items()},
            "oom": self.outcomes(),
        }
        rows, groups = [row.as_dict() for row in self.rows], [group.as_dict() for group in self.groups]
        return {"schema_version": 1, "rows": rows, "summary": summary, "groups": groups}


def runs_report(path: Path, profile_of: ProfileOf = catalogue_profile) -> RunsReport:
    """The rows of a table of runs with their predictions, scored where something was measured.

    Raises FileFormatError where the table cannot be read.
    """
    return report_of(read_runs(path), profile_of)


def report_of(runs: Sequence[MeasuredRun], profile_of: ProfileOf = catalogue_profile) -> RunsReport:
    """The same of rows that were read before."""
    predictions = predict(runs, profile_of)
    rows = tuple(PredictedRun(run, made) for run, made in zip(runs, predictions, strict=True))
    return RunsReport(rows, tuple(plan_orders(runs, predictions)))


def _pair(interval: Interval | None, unit: float) -> list[Number] | None:
    return [interval.low / unit, interval.high / unit] if interval else None


def _figures(one: Score, coverage: Scalar) -> dict[str, Any]:
    names = {"median": one.median, "mean": one.mean, "p90": one.p90, "max": one.maximum, "bias": one.bias}
    return {"n": one.n, **names, "coverage": coverage}


def _column(rows: Sequence[PredictedRun], pick: Callable[[PredictedRun], float]) -> Column:
    return np.array([pick(row) for row in rows], dtype=float)


def _coverage(measured: Column, intervals: Sequence[Interval | None]) -> Scalar:
    """Share of what was measured that lies in its interval; NaN where nothing was."""
    inside = [
        bool(known.low <= value <= known.high)
        for value, known in zip(measured, intervals, strict=True)
        if known and value > 0
    ]
    return round(float(np.mean(inside)), 6) if inside else float("nan")
