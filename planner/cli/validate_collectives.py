"""What `planner validate --collectives` prints."""

from __future__ import annotations

from pathlib import Path

from planner.catalogue.collective_errors import RANGES
from planner.cli.printing import Heading, note, print_json, say, table
from planner.validate.collectives_report import ClassScore, CollectivesReport, collectives_report


def validate_collectives(path: Path, *, calibrate: bool, as_json: bool) -> None:
    """Score a table of collectives."""
    report = collectives_report(path, calibrate=calibrate)
    if as_json:
        return print_json(report.as_dict())
    return _print_scores(report)


def _print_scores(report: CollectivesReport) -> None:
    predicted = [row for row in report.rows if row.time is not None]
    measured = sum(1 for row in predicted if row.measured)
    say(
        f"{len(predicted)} of {len(report.rows)} rows predicted, {measured} of them measured"
        + (f"; {100 * report.coverage:.0f} % of these lie within their 80 % interval." if measured else ".")
    )
    for reason in sorted({row.stated.reason for row in report.rows if row.stated.reason}):
        note(f"not predicted: {reason}")
    if not report.scores:
        return
    say()
    columns = (
        [Heading(f"{name}\nrows", 2) for name, _, _ in RANGES],
        [Heading(f"{name}\nerror (%)") for name, _, _ in RANGES],
    )
    pairs = [heading for pair in zip(*columns, strict=True) for heading in pair]
    table([Heading("level", left=True), Heading("class", left=True), *pairs], [_cells(one) for one in report.scores])
    say("Error in time: median / 90th percentile.")


def _cells(one: ClassScore) -> list[str]:
    cells = [
        cell
        for score in one.scores
        for cell in (
            str(score.n) if score.n else "",
            f"{100 * score.median:.1f} / {100 * score.p90:.0f}" if score.n else "",
        )
    ]
    return [one.level, one.name, *cells]
