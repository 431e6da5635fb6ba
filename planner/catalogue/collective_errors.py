"""How far predictions of collectives were from measurements that they had not seen, by level and size."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.catalogue.names import FOLDER
from planner.quantities import Bytes, Scalar
from planner.spec.toml_file import read_toml

DATASHEET, DEFAULT, CALIBRATED = "datasheet", "class default", "calibrated"
LEVELS = (DATASHEET, DEFAULT, CALIBRATED)
"""What a prediction rests on: the nearest class where something had to be guessed or nothing was measured; the class'
measurements at other sites; the table's own measurements at other sizes."""
RANGES: tuple[tuple[str, Bytes, Bytes], ...] = (
    ("below 1 MiB", 0.0, 2.0**20),
    ("1 to 64 MiB", 2.0**20, 2.0**26),
    ("64 MiB and more", 2.0**26, float("inf")),
)


def spread(level: str, kind: str, size: Bytes) -> Scalar:
    """Half the width of the 80 % interval, in the logarithm of time: that of the kind where enough is known of it."""
    number = next(index for index, (_, low, high) in enumerate(RANGES) if low <= size < high)
    levels = _errors()[level]
    return float(levels.get(kind, levels["any"])[number])


@cache
def _errors() -> dict[str, dict[str, Any]]:
    return read_toml(FOLDER / "collective_errors.toml")
