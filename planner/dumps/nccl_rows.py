"""One row of an nccl-tests table, whatever its columns: found by its type word, checked by algbw = size / time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.dumps.nccl_graph import MARKERS
from planner.dumps.records import Sample
from planner.dumps.text import figure, whole_number

TYPES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int", "int32", "uint32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
"""Type of an element as nccl-tests and rccl-tests print it -> its bytes."""
NO_FIGURE = ("N/A", "inf", "nan", "-nan", "-1")
MOST_WORDS = 40


@dataclass
class Row:
    """A row while it is read: log lines may cut it into several pieces."""

    line: int
    size: int
    count: int
    dtype: str
    op: str = ""
    words: list[str] = field(default_factory=list)

    @property
    def scale(self) -> float | None:
        """Bytes of the row over bytes of its elements: the number of ranks where a rank has a part of all."""
        return self.size / (self.count * TYPES[self.dtype]) if self.count else None

    @property
    def root(self) -> int | None:
        """The column of that name, where the row has one."""
        start = self._start()
        if not start:
            return None
        return -1 if self.words[0] == "-1" else whole_number(self.words[0])

    def _start(self) -> int | None:
        """Where the out-of-place figures begin: at once, or behind the root."""
        return next((i for i in (0, 1) if self._adds_up(i)), None)

    def _inside(self, start: int) -> int | None:
        """Where the in-place figures begin."""
        return next((i for i in range(start + 3, min(start + 10, len(self.words) - 2)) if self._adds_up(i)), None)

    def _adds_up(self, place: int) -> bool:
        words = self.words[place : place + 3]
        return _add_up(self.size, words) or _add_up(self.size * self._others, words)

    @property
    def _others(self) -> float:
        """The share of the other ranks in the bytes, where each rank has a part of all; else nothing."""
        scale = self.scale or 0.0
        return (scale - 1) / scale if scale >= 2 else 0.0

    @property
    def old(self) -> bool:
        """Whether algbw can only be what versions up to 2019 printed as such: busbw."""
        start = self._start()
        return start is not None and not _add_up(self.size, self.words[start : start + 3])

    def sample(self, *, old: bool = False) -> Sample | None:
        """The figures, or None where no three of them are a time with its bandwidths.

        In an `old` table algbw is computed anew, as size over time.
        """
        start = self._start()
        if start is None:
            return None
        inside = self._inside(start)
        empty = (None, None, None, None)
        return Sample(self.size, *self._half(start, old), *(empty if inside is None else self._half(inside, old)))

    def _half(self, place: int, old: bool) -> tuple[float, float, float, float | None]:
        """Time, bandwidths and number of wrong results that begin at a word."""
        time, algbw, busbw = _figures(self.words[place : place + 3])
        algbw = self.size / time / 1e3 if old else algbw
        return time * 1e-6, algbw * 1e9, busbw * 1e9, figure("".join(self.words[place + 3 : place + 4]))

    @property
    def complete(self) -> bool:
        """Whether both halves are there."""
        start = self._start()
        return start is not None and self._inside(start) is not None

    @property
    def in_place_unchecked(self) -> bool:
        """Whether only the out-of-place half was checked: collectives without an in-place form print N/A there."""
        return self.words[-1:] == ["N/A"] and self.words.count("N/A") == 1


def head_of(words: Sequence[str], line: int) -> Row | None:
    """The row that begins in a line's words: size, count and a type word, whatever stands before."""
    place = next((i for i, word in enumerate(words[:MOST_WORDS]) if i >= 2 and word in TYPES), None)
    if place is None:
        return None
    size, count = (whole_number(word.rpartition(":")[2]) for word in words[place - 2 : place])
    if size is None or count is None:
        return None
    rest = list(words[place + 1 : place + MOST_WORDS])
    op = rest.pop(0) if rest and rest[0].isalpha() else ""
    return Row(line, size, count, words[place], op, rest)


def is_continuation(words: Sequence[str]) -> bool:
    """Whether a line holds nothing but figures: the rest of a row that log lines cut."""
    return 0 < len(words) <= MOST_WORDS and all(word in NO_FIGURE or figure(word) is not None for word in words)


def without_log(line: str) -> tuple[str, str]:
    """What of a line is nccl-tests', and what a log line glued to it says.

    >>> without_log("  1024  256  float  sum  -1node001:13:15 [0] NCCL INFO Channel 00")
    ('1024 256 float sum -1', 'Channel 00')
    """
    for marker in MARKERS:
        before, found, said = line.partition(marker)
        if found:
            return " ".join(_without_printer(before.split())), said
    return line, ""


def _without_printer(words: list[str]) -> list[str]:
    """Drop `host:process:thread [device]` from the end, but not a figure that it is glued to."""
    if words and words[-1].startswith("["):
        words = words[:-1]
    if not words or ":" not in words[-1]:
        return words
    host = words[-1].partition(":")[0]
    glued = next((value for value in ("-1", "N/A", "0") if host.startswith(value) and len(words) > 2), "")
    return [*words[:-1], *([glued] if glued else [])]


def _figures(words: Sequence[str]) -> tuple[float, ...]:
    return tuple(figure(word) or 0.0 for word in words)


def _add_up(size: float, words: Sequence[str]) -> bool:
    """Whether three words are a time in us, an algbw that is size / time, and a busbw of up to twice that."""
    if len(words) < 3 or any(figure(word) is None for word in words):
        return False
    time, algbw, busbw = _figures(words)
    if not time or not size:
        return False
    slack, off = _half_unit(words[0]), _half_unit(words[1])
    lowest, highest = size / (time + slack) / 1e3, size / max(time - slack, 1e-3) / 1e3
    return lowest - off <= algbw <= highest + off and busbw <= 2 * algbw + 3 * off


def _half_unit(word: str) -> float:
    """How far a printed figure may be from the true one: a little over half of its last digit's unit.

    >>> round(_half_unit("12.34"), 6), _half_unit("1.5e+03") > 50
    (0.006, True)
    """
    if "e" in word.lower():
        return 0.06 * (figure(word) or 0.0)
    return 0.6 * 10.0 ** -len(word.partition(".")[2])
