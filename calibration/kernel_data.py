"""Measured kernel times as columns, and the parts that they were measured on."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.quantities import BytesPerSecond, FlopPerSecond

Columns = dict[str, Any]
"""Column name -> array, all of one length."""

SLUGS = {
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "H100-SXM5-80GB": "h100-sxm",
    "H200-SXM-141GB": "h200-sxm",
    "B200-SXM-180GB": "b200-sxm",
    "B300-SXM-288GB": "b300-sxm",
    "GB200-186GB": "gb200",
    "GB300-288GB": "gb300",
    "L40S": "l40s",
    "RTX-PRO-6000": "rtx-pro-6000",
}
"""Name in the measurements -> name in the catalogue."""


@dataclass(frozen=True)
class Part:
    """One accelerator as its datasheet has it; `peak` maps a precision to the dense one."""

    name: str
    peak: Mapping[str, FlopPerSecond]
    memory_bandwidth: BytesPerSecond
    multiprocessors: int

    @property
    def slug(self) -> str:
        """The catalogue's name."""
        return SLUGS[self.name]


UNLISTED = (Part("RTX-PRO-6000", {"bf16": 503.8e12, "fp8": 1007.6e12}, 1792e9, 188),)
"""Measured parts that accelerators.csv lacks. Dense, fp32 accumulation: hmc-tech.com, nvidia-rtx-pro-6000-blackwell."""


def read_columns(path: Path) -> Columns:
    """A CSV as arrays, of numbers where every cell is one; `time_us` becomes `time` in seconds."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: _array([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    return columns | {"time": np.asarray(columns.pop("time_us")) * 1e-6}


def read_parts(path: Path) -> list[Part]:
    """The measured parts, with what accelerators.csv says of them."""
    with path.open(newline="", encoding="utf-8") as file:
        listed = [_part(row) for row in csv.DictReader(file) if row["name"] in SLUGS]
    return listed + [part for part in UNLISTED if part.name not in {other.name for other in listed}]


def where(columns: Columns, **equal: str) -> Columns:
    """The rows whose named columns hold the given values.

    >>> where({"gpu": np.array(["A", "B"]), "time": np.array([1.0, 2.0])}, gpu="B")["time"].tolist()
    [2.0]
    """
    mask = np.ones(count(columns), dtype=bool)
    for name, value in equal.items():
        mask &= columns[name] == value
    return take(columns, mask)


def take(columns: Columns, rows: Any) -> Columns:
    """Rows by mask or index."""
    return {name: column[rows] for name, column in columns.items()}


def count(columns: Columns) -> int:
    """Number of rows."""
    return len(columns["time"])


def _array(cells: list[str]) -> Any:
    try:
        return np.array(cells, dtype=float)
    except ValueError:
        return np.array(cells)


def _part(row: Mapping[str, str]) -> Part:
    peak = {precision: float(row[f"{precision}_tflops"] or 0) * 1e12 for precision in ("bf16", "fp8")}
    return Part(
        name=row["name"],
        peak={precision: flops for precision, flops in peak.items() if flops},
        memory_bandwidth=float(row["mem_bw_gbs"]) * 1e9,
        multiprocessors=int(row["sm_count"]),
    )
