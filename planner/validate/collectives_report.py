"""A table of collectives scored: one prediction per row, and errors by level, class and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalogue.collective_errors import CALIBRATED, DATASHEET, DEFAULT, LEVELS, RANGES, spread
from planner.estimate.interval import Interval
from planner.quantities import Column, Seconds
from planner.validate.collectives import Calls, class_times, datasheet_times, kind_of_row, level_of
from planner.validate.collectives_calibration import calibrated
from planner.validate.collectives_columns import StatedCall, read_collectives
from planner.validate.scores import Score, score

ROUGH_SHARE = 0.25
"""Of the change of a calibration between two measured sizes, what a size between them may be off."""


@dataclass(frozen=True)
class PredictedCall:
    """What one row comes to: None where `stated.reason` says why not; `measured` is 0 where nothing was measured."""

    stated: StatedCall
    kind: str
    level: str
    time: Seconds | None
    interval: Interval | None
    measured: Seconds

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
        known = self.interval
        return {
            "source_id": self.stated.source_id,
            "collective": self.stated.collective,
            "n_ranks": self.stated.n_ranks,
            "n_nodes": self.stated.n_nodes,
            "size_bytes": int(self.stated.size),
            "class": self.kind,
            "predicted_time_s": self.time,
            "interval_s": [known.low, known.high] if known else None,
            "measured_time_s": self.measured or None,
            "level": self.level if self.time else None,
            "reason": self.stated.reason or None,
        }


@dataclass(frozen=True)
class ClassScore:
    """Errors of a class' rows at one level, one score per range of sizes."""

    level: str
    name: str
    scores: tuple[Score, ...]

    def as_dict(self) -> dict[str, Any]:
        """The scores as JSON has them: of each range the rows, the median and the 90th percentile in percent."""
        return {
            "class": self.name,
            "sizes": {name: _figures(one) for (name, _, _), one in zip(RANGES, self.scores, strict=True)},
        }


@dataclass(frozen=True)
class CollectivesReport:
    """All rows in the order of the table, and their scores by level, over all and by class."""

    rows: tuple[PredictedCall, ...]
    scores: tuple[ClassScore, ...]
    coverage: float
    """Share of the measured rows within their interval."""

    def as_dict(self) -> dict[str, Any]:
        """The whole report as JSON."""
        levels = {
            level: [one.as_dict() for one in self.scores if one.level == level]
            for level in LEVELS
            if any(one.level == level for one in self.scores)
        }
        measured = sum(1 for row in self.rows if row.measured and row.time)
        summary = {
            "rows": len(self.rows),
            "predicted": sum(row.time is not None for row in self.rows),
            "measured": measured,
            "within_interval": self.coverage if measured else None,
            "levels": levels,
        }
        return {"schema_version": 1, "rows": [row.as_dict() for row in self.rows], "summary": summary}


def collectives_report(path: Path, *, calibrate: bool = False) -> CollectivesReport:
    """The rows of a table of collectives with their predictions, scored where something was measured.

    `calibrate`: from the table's own measurements at other sizes where there are any. Raises FileFormatError where the
    table cannot be read.
    """
    table = read_collectives(path)
    calls = Calls.of(table.stated)
    measured = np.array(table.times, dtype=float)
    times = {DATASHEET: datasheet_times(calls), DEFAULT: class_times(calls)}
    levels = np.array([level_of(row, wires) for row, wires in zip(calls.stated, calls.machines, strict=True)])
    chosen, roughness = times[DEFAULT], np.zeros(len(measured))
    if calibrate:
        own = calibrated(calls, times[DEFAULT], table.times)
        chosen, roughness, levels = own.times, own.roughness, np.where(own.found, CALIBRATED, levels)
        times[CALIBRATED] = np.where(own.found, own.times, 0.0)
    kinds = ["" if row.reason else kind_of_row(row) for row in calls.stated]
    found = zip(calls.stated, kinds, levels.tolist(), chosen.tolist(), table.times, strict=True)
    rows = [
        _row(PredictedCall(*each[:3], each[3], None, each[4]), rough)
        for each, rough in zip(found, roughness, strict=True)
    ]
    classes = np.array([f"{kind} {row.name}" for kind, row in zip(kinds, calls.stated, strict=True)])
    scores = [one for level, found in times.items() for one in _scores(level, classes, calls.size, measured, found)]
    inside = [row.interval.low <= row.measured <= row.interval.high for row in rows if row.interval and row.measured]
    return CollectivesReport(tuple(rows), tuple(scores), float(np.mean(inside)) if inside else 0.0)


def _row(one: PredictedCall, roughness: float) -> PredictedCall:
    """The row with its interval, or without a time where it cannot be predicted."""
    if one.stated.reason or not one.time:
        return replace(one, time=None)
    width = np.hypot(spread(one.level, one.kind, one.stated.size), ROUGH_SHARE * roughness)
    return replace(one, interval=Interval(float(one.time * np.exp(-width)), float(one.time * np.exp(width))))


def _scores(level: str, classes: Column, sizes: Column, measured: Column, times: Column) -> list[ClassScore]:
    """Scores over all rows, then by class where anything was measured."""
    names = sorted(set(classes[(measured > 0) & (times > 0)].tolist()))
    every = np.ones(len(sizes), dtype=bool)
    masks = [("all", every), *((name, classes == name) for name in names)] if names else []
    return [ClassScore(level, name, _by_size(mask, sizes, measured, times)) for name, mask in masks]


def _by_size(mask: Column, sizes: Column, measured: Column, times: Column) -> tuple[Score, ...]:
    ranges = [mask & (sizes >= low) & (sizes < high) for _, low, high in RANGES]
    return tuple(score(measured[each], times[each]) for each in ranges)


def _figures(one: Score) -> dict[str, Any]:
    if not one.n:
        return {"rows": 0, "median_error_percent": None, "p90_error_percent": None}
    return {
        "rows": one.n,
        "median_error_percent": round(100 * one.median, 2),
        "p90_error_percent": round(100 * one.p90, 2),
    }


def overall(report: CollectivesReport, level: str) -> Sequence[Score]:
    """The scores over all rows at a level, by range of sizes; empty where nothing was measured."""
    return next((one.scores for one in report.scores if one.level == level and one.name == "all"), ())
