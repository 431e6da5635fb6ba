"""The rows of a CSV, with what is wrong of the file in one line."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from planner.errors import FileFormatError

MOST = 256 * 2**20
"""Characters of a table; what is longer, or never ends, is none."""


def csv_rows(path: Path, required: Iterable[str], *, of: str = "") -> Iterator[tuple[str, Mapping[str, str]]]:
    """Each row's place in the file and its cells by column, blanks around them dropped, columns in any case.

    Raises FileFormatError where the file cannot be read, has rows of another length than its header, a column twice, or
    none that is required; `of` says, after a blank, what these are columns of.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read(MOST + 1)
        if len(text) > MOST:
            raise FileFormatError(f"is longer than {MOST // 2**20} million characters", where=str(path))
        with io.StringIO(text, newline="") as lines:
            reader = csv.reader(lines, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            _check_header(header, required, where=str(path), of=of)
            for cells in reader:
                where = f"{path}: line {reader.line_num}"
                if cells and len(cells) != len(header):
                    raise FileFormatError(f"has {len(cells)} cells, but the header {len(header)}", where=where)
                if cells:
                    yield where, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise FileFormatError("is not UTF-8 text", where=str(path)) from error
    except csv.Error as error:
        raise FileFormatError(f"is not CSV: {error}", where=str(path)) from error


def _check_header(header: list[str], required: Iterable[str], *, where: str, of: str) -> None:
    missing = [name for name in required if name not in header]
    if missing:
        raise FileFormatError(f"lacks the columns {', '.join(missing)}{of}", where=where)
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise FileFormatError(f"has the column {twice[0]} twice", where=where)


def number(text: str, empty: Collection[str]) -> float:
    """A cell's number, 0 for one of the texts that state nothing. Raises ValueError saying what it should be.

    >>> number("1e3", ("n/a",)), number("N/A", ("n/a",))
    (1000.0, 0.0)
    """
    if text.lower() in empty:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError("a number, zero or more")
    return value
