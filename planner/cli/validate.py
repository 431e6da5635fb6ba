"""`planner validate`: predictions against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option
from planner.cli.printing import Heading, note, print_json, say, table

if TYPE_CHECKING:
    from planner.validate.collectives_report import ClassScore, CollectivesReport


@click.command()
@click.option(
    "--collectives",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A CSV of measured collectives, as `planner import nccl-tests` writes.",
)
@click.option(
    "--calibrate",
    type=click.Choice(["half"], case_sensitive=False),
    help="Predict each half of a table's sizes from the other half.",
)
@json_option
def validate(collectives: Path, calibrate: str | None, as_json: bool) -> None:
    """Score predictions of collectives against a table of measured ones.

    Every row is predicted from what it states alone, measured or not; with --calibrate half from the table's
    measurements at other sizes too.
    """
    from planner.validate.collectives_report import collectives_report

    report = collectives_report(collectives, calibrate=calibrate is not None)
    if as_json:
        return print_json(report.as_dict())
    _print_scores(report)
    return None


def _print_scores(report: CollectivesReport) -> None:
    from planner.catalogue.collective_errors import RANGES

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
