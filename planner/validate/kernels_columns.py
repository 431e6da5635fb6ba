"""Tables of timed kernels: their columns, and reading them as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.errors import FileFormatError
from planner.quantities import Column, to_base
from planner.validate.csv_rows import csv_rows, number

EMPTY = ("", "-", "nan", "na", "n/a", "null", "none", "unknown")
"""What a cell that says nothing looks like."""
TIME = "time_us"

UNGATED = ((2048, 5120), (8192, 5120), (2688, 1856))
"""(hidden, intermediate) of expert blocks without a gate: with one, their three weight matrices would have to be read
at up to 1.35 times the memory's datasheet rate, on every accelerator that was timed. Nemotron 3 has such blocks."""


def up_width(hidden: Column, intermediate: Column) -> Column:
    """Outputs of an expert's first product: gate and up together, or up alone where the block is known to have no gate.

    >>> up_width(np.array([4096.0, 2048.0]), np.array([14336.0, 5120.0])).tolist()
    [28672.0, 5120.0]
    """
    ungated = np.any([(hidden == h) & (intermediate == f) for h, f in UNGATED], axis=0)
    return np.where(ungated, 1.0, 2.0) * intermediate


@dataclass(frozen=True)
class Schema:
    """Columns of one kind of table: words and whole numbers that it has to have, and words with their defaults."""

    words: tuple[str, ...]
    counts: tuple[str, ...]
    others: Mapping[str, str]


SCHEMAS = {
    "gemm": Schema(("gpu", "dtype"), ("m", "n", "k"), {"library": ""}),
    "attention": Schema(
        ("gpu",),
        ("batch", "seq_len", "heads", "kv_heads", "head_dim"),
        {"library": "", "kernel": "", "causal": "True", "direction": "forward"},
    ),
    "moe": Schema(
        ("gpu", "dtype"), ("tokens", "hidden", "intermediate", "topk", "experts", "ep"), {"library": ""}
    ),
    "nccl": Schema(("gpu", "collective"), ("n_ranks", "elements"), {"dtype": "bf16", "nccl": ""}),
}  # fmt: skip
"""Kind of kernel -> the columns of its tables; all also have a time in microseconds, which may be blank or absent."""


@dataclass(frozen=True, eq=False)
class KernelRows:
    """The rows of a table as columns: `words` and `counts` by column name; `measured` is 0 where nothing was.

    A count is 0 where the cell is blank.
    """

    kind: str
    words: Mapping[str, Column]
    counts: Mapping[str, Column]
    measured: Column

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.measured)

    def combinations(self, *names: str) -> list[tuple[tuple[str, ...], Column]]:
        """Distinct combinations of some words, each with the indices of its rows, in the order of the table."""
        found: dict[tuple[str, ...], list[int]] = {}
        for row, words in enumerate(zip(*(self.words[name].tolist() for name in names), strict=True)):
            found.setdefault(words, []).append(row)
        return [(words, np.array(rows)) for words, rows in found.items()]


def read_kernels(kind: str, path: Path) -> KernelRows:
    """Every row of a CSV of timed kernels, in order.

    Raises FileFormatError, naming file, line and column, where the file cannot be read, lacks a required column, or
    holds something else than a number where one belongs.
    """
    schema = SCHEMAS[kind]
    lines = list(csv_rows(path, (*schema.words, *schema.counts), of=f" of a table of {kind} kernels"))
    words = {name: "" for name in schema.words} | dict(schema.others)
    return KernelRows(
        kind,
        words={name: np.array([cells.get(name) or usual for _, cells in lines]) for name, usual in words.items()},
        counts={name: _counts(lines, name) for name in schema.counts},
        measured=_numbers(lines, TIME) * to_base(1.0, "us"),
    )


def _counts(lines: Sequence[tuple[str, Mapping[str, str]]], name: str) -> Column:
    values = _numbers(lines, name)
    broken = np.flatnonzero(values != np.floor(values))
    if len(broken):
        where, cells = lines[broken[0]]
        raise FileFormatError(f"{name} should be a whole number, not {cells[name]!r:.60}", where=where)
    return values


def _numbers(lines: Sequence[tuple[str, Mapping[str, str]]], name: str) -> Column:
    """A column's numbers, 0 where a cell is blank or the column absent."""
    values = np.zeros(len(lines))
    for row, (where, cells) in enumerate(lines):
        text = cells.get(name, "")
        try:
            values[row] = number(text, EMPTY)
        except ValueError as error:
            raise FileFormatError(f"{name} should be {error}, not {text!r:.60}", where=where) from error
    return values
