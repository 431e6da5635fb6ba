"""The accuracy table of the README: `python -m planner.validate.table FILE.csv` prints it as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.errors import PlannerError
from planner.quantities import Column
from planner.validate.baseline import constant_utilization_time
from planner.validate.predict import Prediction, predict
from planner.validate.runs import MeasuredRun, read_runs
from planner.validate.scores import Score, cross_rescaled, rescaled, score

HEADER = """\
| source | runs | step time, as predicted | with one factor | constant utilisation with one factor | memory readings | \
peak memory |
|---|---:|---:|---:|---:|---:|---:|"""
CAPTION = (
    "Absolute relative error, median / 90th percentile, of the runs that state their configuration in full and did not "
    "run out of memory. The factor, one per accelerator and stack, is the median of measured / predicted over one half "
    "of the rows (by a hash of the row's name), applied to the other half, and the reverse. Constant utilisation is "
    "6 N D at one share of peak per accelerator and stack."
)
UNTUNED = ("nanotron",)
"""Stacks whose published timings are single iterations of untuned code, left out of the last line."""


@dataclass(frozen=True)
class ScoredRuns:
    """The rows that are scored, column by column; 0 where there is no measurement or prediction."""

    ids: list[str]
    sources: list[str]
    stacks: list[str]
    measured: Column
    predicted: Column
    rescaled: Column
    constant: Column
    measured_memory: Column
    predicted_memory: Column

    def scores(self, rows: Column) -> dict[str, Score]:
        """Scores of the rows in a mask, by kind of prediction."""
        pairs = {
            "predicted": (self.measured, self.predicted),
            "rescaled": (self.measured, self.rescaled),
            "constant": (self.measured, self.constant),
            "memory": (self.measured_memory, self.predicted_memory),
        }
        return {name: score(measured[rows], predicted[rows]) for name, (measured, predicted) in pairs.items()}

    def of_source(self, source: str) -> Column:
        """Mask of a source's rows."""
        return np.array([each == source for each in self.sources])

    def tuned(self) -> Column:
        """Mask of the rows whose stack is not among `UNTUNED`."""
        return np.array([each not in UNTUNED for each in self.stacks])


def scored(runs: Sequence[MeasuredRun], predictions: Sequence[Prediction], *, held_out: bool = True) -> ScoredRuns:
    """Runs that state everything and did not run out of memory, with their predictions in three ways.

    `held_out`: factors are fitted to the half of the rows that they are not applied to; else to all rows.
    """
    kept = [(run, made) for run, made in zip(runs, predictions, strict=True) if run.complete and not run.oom]
    ids = [run.id for run, _ in kept]
    groups = [(run.accelerator, run.stack) for run, _ in kept]
    measured = _column(kept, lambda run, made: run.measured_step_time)
    predicted = _column(kept, lambda run, made: made.step_time)
    constant = _column(kept, lambda run, made: 0.0 if made.skipped else constant_utilization_time(run))

    def factored(times: Column) -> Column:
        if held_out:
            return cross_rescaled(measured, times, groups, ids)
        return rescaled(measured, times, groups, np.ones(len(ids), dtype=bool))

    return ScoredRuns(
        ids=ids,
        sources=[run.source_id for run, _ in kept],
        stacks=[run.stack for run, _ in kept],
        measured=measured,
        predicted=predicted,
        rescaled=factored(predicted),
        constant=factored(constant),
        measured_memory=_column(kept, lambda run, made: run.measured_memory),
        predicted_memory=_column(kept, lambda run, made: made.memory),
    )


def _column(kept: Sequence[tuple[MeasuredRun, Prediction]], pick: Callable[[MeasuredRun, Prediction], float]) -> Column:
    return np.array([pick(run, made) for run, made in kept], dtype=float)


def markdown(rows: ScoredRuns) -> str:
    """The table by source, most runs first, over all, and over all but the untuned stacks."""
    by_source = {source: rows.scores(rows.of_source(source)) for source in sorted(set(rows.sources))}
    lines = [_line(*item) for item in sorted(by_source.items(), key=lambda item: -item[1]["predicted"].n)]
    everything = _line("all", rows.scores(np.ones(len(rows.ids), dtype=bool)))
    tuned = _line(f"all but {', '.join(UNTUNED)}", rows.scores(rows.tuned()))
    return "\n".join([CAPTION, "", HEADER, *filter(None, lines), everything, tuned])


def _line(name: str, scores: dict[str, Score]) -> str:
    """One line of the table; empty where nothing was measured."""
    time, memory = scores["predicted"], scores["memory"]
    if not time.n and not memory.n:
        return ""
    cells = [_figures(scores[kind]) for kind in ("predicted", "rescaled", "constant")]
    return f"| {name} | {time.n or ''} | {' | '.join(cells)} | {memory.n or ''} | {_figures(memory)} |"


def _figures(one: Score) -> str:
    return f"{100 * one.median:.1f} / {100 * one.p90:.0f} %" if one.n else ""


def main(arguments: Sequence[str]) -> int:
    """Print the table of a file; the exit code is that of the failure, if any."""
    if len(arguments) != 1:
        print("usage: python -m planner.validate.table FILE.csv", file=sys.stderr)
        return 2
    try:
        runs = read_runs(Path(arguments[0]))
        print(markdown(scored(runs, predict(runs))))
    except PlannerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
