"""A table of timed kernels scored: one prediction per row, and errors by accelerator, precision and kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.quantities import Column
from planner.validate.kernels import KernelTimes, kernel_times
from planner.validate.kernels_columns import KernelRows, read_kernels
from planner.validate.scores import Score, score

DIVISIONS = {
    "gemm": ("gpu", "dtype"),
    "attention": ("gpu", "kernel"),
    "moe": ("gpu", "dtype"),
    "nccl": ("gpu", "collective"),
}
"""Kind -> the words that scores are also given by."""
NAMES = {"gpu": "accelerator", "dtype": "precision", "kernel": "kernel", "collective": "collective"}


@dataclass(frozen=True, eq=False)
class KernelsReport:
    """All rows of a table in its order, what was predicted of them, and their scores."""

    rows: KernelRows
    made: KernelTimes

    def score(self, chosen: Column | None = None) -> Score:
        """Errors over all rows, or some."""
        mask = np.ones(len(self.rows), dtype=bool) if chosen is None else chosen
        return score(self.rows.measured[mask], self.made.time[mask])

    def divided(self) -> dict[str, dict[str, Score]]:
        """Scores by accelerator, then by precision, kernel or collective."""
        words = self.rows.words
        return {
            NAMES[name]: {value: self.score(words[name] == value) for value in sorted(set(words[name].tolist()))}
            for name in DIVISIONS[self.rows.kind]
        }

    def as_dict(self) -> dict[str, Any]:
        """The whole report as JSON."""
        by = {f"by_{name}": {value: _figures(one) for value, one in found.items()}
              for name, found in self.divided().items()}  # fmt: skip
        summary = {
            "rows": len(self.rows),
            "predicted": int((self.made.time > 0).sum()),
            "overall": _figures(self.score()),
            **by,
        }
        return {"schema_version": 1, "kind": self.rows.kind, "rows": self._rows(), "summary": summary}

    def _rows(self) -> list[dict[str, Any]]:
        """What identifies each row, with its prediction."""
        rows, made = self.rows, self.made
        columns: Mapping[str, list[Any]] = {
            **{name: column.tolist() for name, column in rows.words.items()},
            **{name: [int(count) for count in column.tolist()] for name, column in rows.counts.items()},
            "predicted_time_s": [time or None for time in made.time.tolist()],
            "measured_time_s": [time or None for time in rows.measured.tolist()],
            "level": [level or None for level in made.level.tolist()],
            "reason": [reason or None for reason in made.reason.tolist()],
        }
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def kernels_report(kind: str, path: Path) -> KernelsReport:
    """The rows of a table of timed kernels with their predictions, scored where something was measured.

    `kind` is a key of `SCHEMAS`. Raises FileFormatError where the table cannot be read.
    """
    rows = read_kernels(kind, path)
    return KernelsReport(rows, kernel_times(rows))


def _figures(one: Score) -> dict[str, Any]:
    figures = {"median": one.median, "p90": one.p90, "max": one.maximum, "bias": one.bias}
    return {"n": one.n} | {name: value if one.n else None for name, value in figures.items()}
