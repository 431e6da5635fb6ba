"""Printing for people: sentences, tables that stay legible when narrow, notes on stderr, and JSON."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

UNLIMITED = 10_000
"""Columns of an output that nobody looks at through a window: a pipe or a file."""
GAP = 2
"""Blanks between columns."""


@dataclass(frozen=True)
class Heading:
    """A table's column: title with unit, and how long it is kept when the window narrows (1 longest)."""

    title: str
    priority: int = 1
    left: bool = False


def window_width() -> int:
    """Columns to print in: COLUMNS if set, the terminal's, or no limit into a pipe or file."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED


def say(text: str = "", *, indent: str = "") -> None:
    """A sentence on stdout, wrapped to the window; later lines are indented by `indent`."""
    click.echo(textwrap.fill(text, window_width(), subsequent_indent=indent, break_on_hyphens=False) if text else "")


def whole_line(text: str) -> None:
    """A line on stdout that stays in one piece, such as a command to copy."""
    click.echo(text)


def note(text: str) -> None:
    """A remark on stderr."""
    click.echo(text, err=True)


def table(headings: Sequence[Heading], rows: Iterable[Sequence[str]], *, best: bool = False) -> None:
    """A table with as many columns as the window holds, or a list of rows when the most important do not fit.

    Columns without any text are left out.

    `best` sets off the first row where colour is allowed (a terminal without NO_COLOR).
    """
    lines = [list(row) for row in rows]
    filled = [i for i in range(len(headings)) if any(row[i] for row in lines)] or list(range(len(headings)))
    headings, lines = [headings[i] for i in filled], [[row[i] for i in filled] for row in lines]
    width = window_width()
    kept = _columns_that_fit(headings, lines, width)
    if any(heading.priority == 1 and i not in kept for i, heading in enumerate(headings)):
        return _list(headings, lines, width)
    _rich_table([headings[i] for i in kept], [[row[i] for i in kept] for row in lines], best=best)
    left_out = [heading.title.replace("\n", " ") for i, heading in enumerate(headings) if i not in kept]
    if left_out:
        say(f"(left out for want of width: {', '.join(left_out)})", indent=" ")
    return None


def _columns_that_fit(headings: Sequence[Heading], lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """Indices of the columns that fit side by side, the most important (and leftmost) taken first.

    Where some of equal importance do not fit, none of the less important is taken.
    """
    needs = [
        max([len(part) for part in heading.title.split("\n")] + [len(row[i]) for row in lines]) + GAP
        for i, heading in enumerate(headings)
    ]
    kept: list[int] = []
    for priority in sorted({heading.priority for heading in headings}):
        wanted = [i for i, heading in enumerate(headings) if heading.priority == priority]
        for i in wanted:
            if sum(needs[each] for each in kept) + needs[i] - GAP <= width:
                kept.append(i)
        if not set(wanted) <= set(kept):
            break
    return sorted(kept)


def _list(headings: Sequence[Heading], lines: Sequence[Sequence[str]], width: int) -> None:
    """Each row as `title: value` lines."""
    for row in lines:
        for i, (heading, value) in enumerate(zip(headings, row, strict=True)):
            if value:
                text = f"{'' if i == 0 else '  '}{heading.title.replace(chr(10), ' ')}: {value}"
                click.echo(textwrap.fill(text, max(width, 20), subsequent_indent="    "))


def _rich_table(headings: Sequence[Heading], lines: Sequence[Sequence[str]], *, best: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(width=window_width(), color_system=colours, highlight=False)
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for heading in headings:
        grid.add_column(
            Text(heading.title), justify="left" if heading.left else "right", vertical="bottom", no_wrap=True
        )
    for number, row in enumerate(lines):
        grid.add_row(*(Text(cell) for cell in row), style="green" if best and number == 0 else None)
    with console.capture() as captured:
        console.print(grid)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_json(data: Mapping[str, Any]) -> None:
    """Data as JSON on stdout; what is not a finite number becomes null."""
    click.echo(json.dumps(plain(data), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """Value as JSON types: NumPy numbers and columns too; infinities and NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
