"""Matrices of `nvidia-smi topo` and of the tools that copy its form: rows and columns of devices, a word in each cell.

Headers may be missing, lack a column or carry a prefix; rows may be cut. Where a row marks its own device with X, the
place of that X says which column is whose, whatever the header says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.dumps.text import lines
from planner.errors import FileFormatError

MOST_DEVICES = 512
AFFINITY = re.compile(r"(CPU|NUMA|Node)\s+Affinity|(GPU)\s+NUMA\s+ID", re.IGNORECASE)
_WORD = re.compile(r"X|[A-Z]{1,6}\d{0,3}", re.ASCII)
"""A cell: X, NV18, PIX, SYS, MX, OK, ..."""
_KNOWN = re.compile(r"X|NVL?\d{0,2}|PIX|PXB|PHB|NODE|SYS|SOC|MX\d?|XGMI|C2C|NA|OK|NS|CNS|GNS|TNS|DR|U", re.ASCII)
_LABEL = re.compile(r"(?:GPU|NIC|CPU)\d{1,4}|[a-z][\w.-]{0,40}\d[\w.-]{0,20}", re.ASCII)
"""A device: GPU0, NIC3, mlx5_0, roceo12399, mlx5_bond_0."""
_FIRST = re.compile(r"GPU\d{1,4}", re.ASCII)


@dataclass
class Matrix:
    """A matrix as it is being read. `tails` holds what stands right of the cells of each row: affinities."""

    line: int
    devices: list[str]
    affinities: list[str]
    rows: dict[str, list[str]] = field(default_factory=dict)
    tails: dict[str, list[str]] = field(default_factory=dict)
    about: str = ""
    """The last command line before it."""
    _known: dict[str, int] = field(default_factory=dict)

    def cell(self, one: str, other: str) -> str:
        """The word of a pair of devices, from either's row; empty where no row has it."""
        return self._from_row(one, other) or self._from_row(other, one)

    def _from_row(self, row: str, column: str) -> str:
        words, place = self.rows.get(row, ()), self._places().get(column)
        return words[place] if place is not None and place < len(words) else ""

    def _places(self) -> Mapping[str, int]:
        if len(self._known) != len(self.rows):
            self._known = {**{label: i for i, label in enumerate(self.devices)}, **_marked(self.rows)}
        return self._known


def _marked(rows: Mapping[str, list[str]]) -> dict[str, int]:
    """Device -> column, where its row has exactly one X."""
    return {label: words.index("X") for label, words in rows.items() if words.count("X") == 1}


def matrices(text: str) -> list[Matrix]:
    """Every matrix of a text, in order. Raises FileFormatError for one of absurdly many devices."""
    found: list[Matrix] = []
    about = ""
    for number, line in lines(text):
        if "topo" in line and "GPU" not in line:
            about = line
        if header := _header(line, number):
            found.append(header)
            header.about = about
        elif row := _row(line):
            _add(found, *row, number=number)
    return [matrix for matrix in found if matrix.rows]


def _header(line: str, number: int) -> Matrix | None:
    """An empty matrix with the columns that a header names, or None."""
    if "GPU" not in line:
        return None
    cut = AFFINITY.search(line)
    labels = _after_prefix((line[: cut.start()] if cut else line).split())
    if not labels or (len(labels) < 2 and cut is None) or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    if len(labels) > MOST_DEVICES:
        raise FileFormatError(f"line {number}: a matrix of {len(labels):,} devices; at most {MOST_DEVICES} are read")
    columns = [(found[1] or "GPU NUMA ID").upper() for found in AFFINITY.finditer(line)]
    return Matrix(number, list(dict.fromkeys(labels)), columns)


def _after_prefix(words: list[str]) -> list[str]:
    """The words from the first accelerator on: what stands before is a log's prefix."""
    bare = [word.rpartition(":")[2] for word in words]
    first = next((i for i, word in enumerate(bare) if _FIRST.fullmatch(word)), len(words))
    return bare[first:]


def _row(line: str) -> tuple[str, list[str], list[str]] | None:
    """Device, cells and tail of a row, or None."""
    words = line.split(maxsplit=MOST_DEVICES + 16)
    for i in range(min(len(words) - 1, 8)):
        if _WORD.fullmatch(words[i + 1]) and _is_label(words[i]):
            cells = _leading(words[i + 1 :])
            return words[i].rpartition(":")[2], cells, words[i + 1 + len(cells) :]
    return None


def _is_label(word: str) -> bool:
    return _LABEL.fullmatch(word.rpartition(":")[2]) is not None


def _leading(words: list[str]) -> list[str]:
    count = next((i for i, word in enumerate(words) if not _WORD.fullmatch(word)), len(words))
    return words[:count]


def _add(found: list[Matrix], label: str, cells: list[str], tail: list[str], *, number: int) -> None:
    """Put a row into the last matrix; a device that it has already begins another one."""
    if not _belongs(label, cells):
        return
    if not found:
        found.append(Matrix(number, [], []))
    if label in found[-1].rows:
        if found[-1].rows[label] == cells:
            return
        found.append(Matrix(number, found[-1].devices, found[-1].affinities, about=found[-1].about))
    if len(found[-1].rows) < MOST_DEVICES:
        found[-1].rows[label], found[-1].tails[label] = cells, tail


def _belongs(label: str, cells: list[str]) -> bool:
    """Whether a line that looks like a row is one: its device is marked, or its words are those of a matrix."""
    words = _FIRST.match(label) is not None and len(cells) > 1 and all(_KNOWN.fullmatch(cell) for cell in cells)
    return "X" in cells or words


def labels_of(matrix: Matrix) -> Iterator[str]:
    """Devices in the order of their columns, then those that only have rows."""
    yield from dict.fromkeys([*matrix.devices, *matrix.rows])
