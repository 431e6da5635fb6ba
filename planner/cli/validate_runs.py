"""What `planner validate FILE` prints of a table of training runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from planner.answer.software import profiles_of
from planner.cli.printing import Heading, note, print_json, say, table
from planner.validate.report import DIVISIONS, RunsReport, Scores, runs_report
from planner.validate.scores import Score

MOST_REASONS = 5


def validate_runs(path: Path, *, profiles: tuple[str, ...], as_json: bool) -> None:
    """Score a table of runs, those on an accelerator that a named profile is of by that profile."""
    report = runs_report(path, profiles_of(profiles))
    if as_json:
        return print_json(report.as_dict())
    return _print_report(report)


def _print_report(report: RunsReport) -> None:
    everything, reasons = report.scores(), Counter(row.made.skipped for row in report.rows if row.made.skipped)
    say(_sentence(report, everything))
    for reason, count in reasons.most_common(MOST_REASONS):
        note(f"skipped {count}: {reason}")
    if len(reasons) > MOST_REASONS:
        note(f"skipped {sum(count for _, count in reasons.most_common()[MOST_REASONS:])} for other reasons: see --json")
    if not everything.time.n and not everything.memory.n:
        return
    headings = [
        Heading("step\ntimes"), Heading("error (%)"), Heading("bias (%)", 2), Heading("within\n80 % (%)", 2),
        Heading("memory\nreadings"), Heading("error (%)"), Heading("bias (%)", 2), Heading("within\n80 % (%)", 2),
    ]  # fmt: skip
    for division in DIVISIONS:
        known = {name: found for name, found in report.divided(division).items() if found.time.n or found.memory.n}
        say()
        lines = [[name or "(none)", *_cells(found)] for name, found in sorted(known.items(), key=_by_size)]
        table([Heading(division.removesuffix("_id"), left=True), *headings], lines)
    say("Error: median / 90th percentile of the absolute relative error; bias: median of the signed one.")
    _print_outcomes(report)
    _print_order(report)


def _sentence(report: RunsReport, everything: Scores) -> str:
    predicted = sum(not row.made.skipped for row in report.rows)
    parts = [f"{predicted} of {len(report.rows)} runs predicted"]
    for name, one, coverage in (
        ("step time", everything.time, everything.time_coverage),
        ("peak memory", everything.memory, everything.memory_coverage),
    ):
        if one.n:
            parts.append(
                f"{name} of {one.n} off by {100 * one.median:.1f} % in the median, {100 * one.p90:.0f} % at the "
                f"90th percentile, {100 * coverage:.0f} % within their 80 % interval"
            )
    return "; ".join(parts) + "."


def _by_size(item: tuple[str, Scores]) -> tuple[int, str]:
    return -max(item[1].time.n, item[1].memory.n), item[0]


def _cells(found: Scores) -> list[str]:
    return [*_figures(found.time, found.time_coverage), *_figures(found.memory, found.memory_coverage)]


def _figures(one: Score, coverage: float) -> list[str]:
    if not one.n:
        return [""] * 4
    error = f"{100 * one.median:.1f} / {100 * one.p90:.0f}"
    return [str(one.n), error, f"{100 * one.bias:+.1f}", f"{100 * coverage:.0f}"]


def _print_outcomes(report: RunsReport) -> None:
    outcomes = report.outcomes()
    if not any(sum(verdicts.values()) for verdicts in outcomes.values()):
        return
    verdicts = [name.replace("_", " ") for name in next(iter(outcomes.values()))]
    say()
    table(
        [Heading("memory verdict of runs that", left=True), *(Heading(name) for name in verdicts)],
        [[name.replace("_", " "), *map(str, found.values())] for name, found in outcomes.items()],
    )


def _print_order(report: RunsReport) -> None:
    """Order of plans, over groups of four and more."""
    groups = [group for group in report.groups if group.n >= 4]
    if not groups:
        return
    regrets = np.array([group.regret for group in groups])
    correlations = [group.spearman for group in groups if group.spearman is not None]
    rank = f"; rank correlation {np.median(correlations):.2f} in the median" if correlations else ""
    say()
    say(
        f"Plans of one job: in {len(groups)} groups of four runs and more the plan ranked first was "
        f"{regrets.mean():.1%} slower than the best measured in the mean, {np.percentile(regrets, 95):.1%} at the 95th "
        f"percentile{rank}."
    )
