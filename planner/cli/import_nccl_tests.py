"""`planner import nccl-tests`: the tables of nccl-tests and rccl-tests logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option
from planner.cli.printing import Heading, note, print_json, say, table

if TYPE_CHECKING:
    from planner.dumps.records import CollectiveTable

SMALL = 64 * 1024
"""Bytes up to which a time is latency."""
HEADINGS = (
    Heading("log", left=True),
    Heading("line", 3),
    Heading("collective", left=True),
    Heading("ranks"),
    Heading("nodes", 2),
    Heading("sizes", 2),
    Heading("best bus\n(GB/s)"),
    Heading("at", 2),
    Heading("latency\n(us)"),
    Heading("GPU", 3, left=True),
    Heading("NCCL", 3, left=True),
)


@click.command("nccl-tests", short_help="Print the tables of nccl-tests logs, and write them as CSV.")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LOG...")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write every row as CSV.")
@click.option("--force", is_flag=True, help="Replace the file of --csv.")
@json_option
def nccl_tests(logs: tuple[Path, ...], csv_file: Path | None, force: bool, as_json: bool) -> None:
    """Print all tables that nccl-tests or rccl-tests left in each LOG.

    Collective and number of ranks are checked against the figures; what was inferred or corrected is said on stderr.
    """
    from planner.answer.dumps import nccl_tables, write_csv

    found = nccl_tables(logs)
    written = write_csv(found, csv_file, force=force) if csv_file else None
    if as_json:
        return print_json(found.as_dict())
    for reason in found.failed:
        note(f"note: {reason}")
    for path, each in found.tables:
        for remark in each.notes:
            note(f"note: {path}, line {each.line}: {remark}")
    table(HEADINGS, [_row(path, each) for path, each in found.tables])
    if written:
        rows = sum(len(each.samples) for _, each in found.tables)
        say(f"Wrote {rows:,} rows to {written}.")
    return None


def _row(path: str, each: CollectiveTable) -> list[str]:
    from planner.dumps.words import size_words

    best = max(each.samples, key=lambda sample: sample.busbw)
    small = [sample.time for sample in each.samples if sample.size <= SMALL]
    return [
        Path(path).name,
        str(each.line),
        each.collective or "unknown",
        str(each.ranks or "?"),
        str(each.nodes or "?"),
        str(len(each.samples)),
        f"{best.busbw / 1e9:,.1f}",
        size_words(best.size),
        f"{min(small) * 1e6:.1f}" if small else "-",
        each.gpu,
        each.version,
    ]
