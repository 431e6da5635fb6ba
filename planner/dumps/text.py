"""Text as people save it: any encoding, terminal escapes, huge lines. Nothing here raises for what a text holds."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from pathlib import Path

from planner.errors import FileFormatError

MOST_BYTES = 64 * 2**20
MOST_LINES = 3_000_000
MOST_LINE = 65_536
"""Characters of a line that are looked at: far more than a row of the widest matrix has."""
BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
"""How a file starts -> its encoding; PowerShell redirects in UTF-16."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,32}[ -/]?[@-~]|\x1b\][^\x07\x1b]{0,256}\x07?|\x1b.?|\[[0-9;]{1,12}m")


def read_text(path: Path) -> str:
    """The text of a file, without terminal escapes. Raises FileFormatError where it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > MOST_BYTES:
        raise FileFormatError(
            f"has more than {MOST_BYTES // 2**20} MiB: keep the lines of the tables or of one rank", where=str(path)
        )
    text = plain_text(data.decode(BYTE_ORDER_MARKS.get(data[:2], "") or _encoding(data), errors="replace"))
    if text.count("\n") > MOST_LINES:
        raise FileFormatError(f"has more than {MOST_LINES:,} lines: keep those of the tables", where=str(path))
    return text


def _encoding(data: bytes) -> str:
    return BYTE_ORDER_MARKS.get(data[:3], "utf-8")


def plain_text(text: str) -> str:
    r"""Text without terminal escapes, NULs and carriage returns.

    >>> plain_text("\x1b[4mGPU0\x1b[0m\tX\r\n")
    'GPU0\tX\n'
    """
    if "\x1b" in text or "m" in text:
        text = _ESCAPE.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").replace("\xa0", " ")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank, cut where it is absurdly long."""
    for number, line in enumerate(io.StringIO(text), start=1):
        if not line.isspace():
            yield number, line[:MOST_LINE].rstrip()


def whole_number(text: str | None, *, most: int = 10**15) -> int | None:
    """A whole number, or None where the text is none or is beyond `most`.

    >>> whole_number("42"), whole_number("9" * 5000), whole_number("N/A")
    (42, None, None)
    """
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 18:
        return None
    number = int(text)
    return number if number <= most else None


def figure(text: str | None) -> float | None:
    """A finite number of zero or more, or None.

    >>> figure("12.5"), figure("6e-08"), figure("1e999"), figure("N/A"), figure("-1")
    (12.5, 6e-08, None, None, None)
    """
    if text is None or not re.fullmatch(r"\d{1,18}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?", text, re.ASCII):
        return None
    number = float(text)
    return number if math.isfinite(number) else None
