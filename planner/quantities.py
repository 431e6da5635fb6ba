"""Quantities: numbers (or columns of numbers) whose unit stands in the type hint.

Inside the planner everything is in base units: seconds, bytes, FLOP, tokens, USD, as float64; degrees and counts
are integers. At the edges (data files, flags) a figure carries its unit, which `to_base` converts once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, get_args

import numpy as np
from numpy.typing import NDArray

from planner.errors import SpecError

Column = NDArray[Any]
if TYPE_CHECKING:
    Number = Any
else:
    Number = float | Column
"""A scalar or a column. To the type checker anything: a union would need a cast at every broadcast, and units are
checked by a test instead (see `unit_power`)."""

Scalar = Annotated[Number, "1"]
"""A pure number: an efficiency, a share, a factor."""
Count = Annotated[Number, "1"]
"""How many: ranks, layers, heads, tokens in a shape. Tokens count as a pure number."""
Bytes = Annotated[Number, "B"]
Seconds = Annotated[Number, "s"]
BytesPerSecond = Annotated[Number, "B/s"]
Flop = Annotated[Number, "1"]
"""Floating-point operations: a count, so that FLOP = 2 x tokens x parameters needs no unit of its own."""
FlopPerSecond = Annotated[Number, "1/s"]
PerSecond = Annotated[Number, "1/s"]
Usd = Annotated[Number, "USD"]
UsdPerSecond = Annotated[Number, "USD/s"]
Watts = Annotated[Number, "W"]
Joules = Annotated[Number, "W s"]
UsdPerJoule = Annotated[Number, "USD/W s"]

GB = 1e9
GIB = 2.0**30

UNITS: dict[str, float] = {
    "1": 1.0,
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    "B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "GiB/s": 2.0**30,
    "Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8, "Tb/s": 1e12 / 8,
    "GT/s": 1e9 / 8,
    "FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "h": 3600.0, "d": 86400.0,
    "USD": 1.0, "USD/h": 1 / 3600.0, "W": 1.0, "kW": 1e3,
}  # fmt: skip
"""Unit name -> size in base units. `gbps` is missing on purpose: people mean both Gb/s and GB/s by it."""


def to_base(value: float, unit: str, *, where: str = "") -> float:
    """Convert a figure to base units.

    Raises SpecError for an unknown or ambiguous unit.

    >>> to_base(3.35, "TB/s")
    3350000000000.0
    >>> to_base(400, "Gb/s") == to_base(50, "GB/s")
    True
    """
    if unit not in UNITS:
        hint = (
            "ambiguous: write Gb/s (bits) or GB/s (bytes)" if unit.lower() == "gbps" else "known: " + ", ".join(UNITS)
        )
        raise SpecError(f"unknown unit {unit!r}; {hint}", where=where)
    return value * UNITS[unit]


def unit_power(hint: Any, base: str) -> int:
    """The power of base unit `base` ("B", "s", "USD") in an Annotated hint.

    >>> unit_power(BytesPerSecond, "s"), unit_power(BytesPerSecond, "B"), unit_power(Count, "B")
    (-1, 1, 0)
    """
    above, _, below = get_args(hint)[1].partition("/")
    return re.split(r"[ *]", above).count(base) - re.split(r"[ *]", below).count(base)


def format_bytes(size: float) -> str:
    """A size for people, in GiB or MiB.

    >>> format_bytes(16 * 2**30), format_bytes(3 * 2**20)
    ('16.0 GiB', '3.0 MiB')
    """
    if abs(size) >= 0.1 * GIB:
        return f"{size / GIB:.1f} GiB" if abs(size) < 1000 * GIB else f"{size / GIB:,.0f} GiB"
    return f"{size / 2**20:.1f} MiB" if abs(size) >= 2**20 else f"{size / 2**10:.1f} KiB"


def format_bandwidth(bandwidth: float) -> str:
    """A bandwidth for people, in GB/s (1e9 bytes).

    >>> format_bandwidth(50e9)
    '50.0 GB/s'
    """
    return f"{bandwidth / GB:,.1f} GB/s" if bandwidth >= 0.1 * GB else f"{bandwidth / 1e6:,.1f} MB/s"


def format_seconds(time: float) -> str:
    """A duration for people, with three significant digits.

    >>> format_seconds(0.0123), format_seconds(3.2), format_seconds(88.48), format_seconds(90000)
    ('12.3 ms', '3.20 s', '88.5 s', '1.04 days')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("s", 1.0)):
        if time >= size:
            return f"{three_digits(time / size)} {unit}"
    return f"{time * 1e3:.3g} ms" if time >= 1e-3 else f"{time * 1e6:.3g} us"


def three_digits(value: float) -> str:
    """A number for people, with three significant digits; whole from a thousand up.

    >>> three_digits(3.3), three_digits(0.0414), three_digits(304.2), three_digits(12345.6)
    ('3.30', '0.0414', '304', '12,346')
    """
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:,.0f}"


def format_count(count: float) -> str:
    """A large count for people.

    >>> format_count(8030261248), format_count(4096)
    ('8.03B', '4,096')
    """
    for suffix, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if abs(count) >= size:
            return f"{count / size:.2f}{suffix}"
    return f"{count:,.0f}"


def counted(number: int, thing: str) -> str:
    """How many of a thing there are, for people.

    >>> counted(1, "GPU"), counted(1024, "GPU")
    ('1 GPU', '1,024 GPUs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def divisors(number: int) -> Column:
    """All divisors, ascending.

    >>> divisors(28).tolist()
    [1, 2, 4, 7, 14, 28]
    """
    candidates = np.arange(1, int(number**0.5) + 1)
    small = candidates[number % candidates == 0]
    return np.unique(np.concatenate([small, number // small]))
