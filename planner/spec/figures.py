"""Figures as data files state them: value, unit, scope, source and date, converted to base units once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import SpecError, unknown_name
from planner.quantities import UNITS, to_base
from planner.spec.accelerator import Source

KEYS = ("value", "unit", "scope", "source", "read")
TIMES = ("s", "ms", "us", "ns", "h", "d")
BOTH_DIRECTIONS = "both directions together"
EXAMPLES = {"B": "80 GiB", "B/s": "400 Gb/s", "FLOP/s": "989 TFLOP/s", "s": "5 us", "W": "700 W", "1": "132"}
"""Base unit -> a figure that the reader takes, for its error messages."""
RANGES = {
    "B": (1.0, 1e18),
    "B/s": (1.0, 1e18),
    "FLOP/s": (1.0, 1e24),
    "s": (1e-12, 1e6),
    "W": (1e-3, 1e9),
    "1": (1.0, 1e9),
}
"""Base unit -> what a figure may be; beyond lie slips of the pen, which would end as infinite times."""


@dataclass(frozen=True)
class Figure:
    """A figure in base units, with where it comes from."""

    value: float
    source: Source


def at(where: str, key: str) -> str:
    """The place of a key, for messages: file, then the path of keys.

    >>> at(at("my.toml", "node"), "link_bandwidth")
    'my.toml: node.link_bandwidth'
    """
    return f"{where}{'.' if ': ' in where else ': '}{key}"


def read_figure(entry: Any, base: str, *, where: str, origin: str = "") -> Figure:
    """A positive figure in base unit `base` ("B", "B/s", "FLOP/s", "s", "W", "1").

    `entry` is a table of value, unit, scope, source and read (the date), or text such as "400 Gb/s"; a count may be a
    bare number. A scope of "both directions together" is halved, one of "of N devices" divided by N. `origin` is the
    source of a figure that names none. Raises SpecError for anything that is not one positive, finite figure of that
    kind.
    """
    table = entry if isinstance(entry, Mapping) else _from_text(entry, base, where=where)
    check_keys(table, KEYS, where=where)
    if "value" not in table:
        raise SpecError(f"has no value; write {EXAMPLES[base]!r}", where=where)
    unit = _unit(table.get("unit", "1" if base == "1" else ""), base, where=where)
    value = to_base(positive_number(table["value"], where=where), unit, where=where)
    low, high = RANGES[base]
    if not low <= value <= high:
        raise SpecError(f"must be {low:g} to {high:g} {base}, not {value:g}".replace(" 1,", ","), where=where)
    texts = {key: str(table.get(key, "")) for key in ("scope", "source", "read")}
    source = Source(source=texts["source"] or origin, read=texts["read"], scope=texts["scope"])
    return Figure(value / _shares(texts["scope"]), source)


def positive_number(value: Any, *, where: str, zero: bool = False, most: float = math.inf) -> float:
    """`value` as a float.

    Raises SpecError unless it is a finite number above zero (or zero, where allowed), `most` at the most.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"must be a number, not {_shown(value)}", where=where)
    number = math.inf if isinstance(value, int) and abs(value) > 1e300 else float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise SpecError(f"must be {'zero or ' if zero else ''}positive and finite, not {number:g}", where=where)
    if number > most:
        raise SpecError(f"must be at most {most:g}, not {number:g}", where=where)
    return number


def read_figures(
    entries: Mapping[str, Any], kinds: Mapping[str, str], *, where: str, origin: str = ""
) -> tuple[dict[str, float], dict[str, Source]]:
    """Values and sources, by key, of the figures that `entries` has among `kinds` (key -> base unit)."""
    found = {
        key: read_figure(entries[key], base, where=at(where, key), origin=origin)
        for key, base in kinds.items()
        if key in entries
    }
    return {key: figure.value for key, figure in found.items()}, {key: figure.source for key, figure in found.items()}


def count(value: Any, *, where: str, least: int = 1, most: int = 1_000_000) -> int:
    """`value` as an int. Raises SpecError unless it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(f"must be a whole number, not {_shown(value)}", where=where)
    if not least <= value <= most:
        shown = value if abs(value) < 10**12 else "a number of more than 12 digits"
        raise SpecError(f"must be {least} to {most:,}, not {shown}", where=where)
    return value


def text(value: Any, *, where: str) -> str:
    """`value` if it is text. Raises SpecError otherwise."""
    if not isinstance(value, str):
        raise SpecError(f"must be text, not {_shown(value)}", where=where)
    return value


def table(value: Any, *, where: str) -> Mapping[str, Any]:
    """`value` if it is a table. Raises SpecError otherwise."""
    if not isinstance(value, Mapping):
        raise SpecError(f"must be a table, not {_shown(value)}", where=where)
    return value


def flag(value: Any, *, where: str) -> bool:
    """`value` if it is true or false. Raises SpecError otherwise."""
    if not isinstance(value, bool):
        raise SpecError(f"must be true or false, not {_shown(value)}", where=where)
    return value


def one_of(value: Any, known: Iterable[str], kind: str, *, where: str) -> str:
    """`value` if it is one of the known names. Raises SpecError, with the nearest, otherwise."""
    names = list(known)
    if text(value, where=where) not in names:
        raise unknown_name(kind, value, names, where=where)
    return str(value)


def check_complete(given: Iterable[str], required: Iterable[str], *, where: str) -> None:
    """Raise SpecError naming what of `required` is not among `given`."""
    missing = [key for key in required if key not in set(given)]
    if missing:
        raise SpecError(f"lacks {', '.join(missing)}", where=where)


def check_keys(entries: Mapping[str, Any], known: Iterable[str], *, where: str) -> None:
    """Raise SpecError, with the nearest known key, if `entries` has one that nobody reads."""
    names = list(known)
    for key in entries:
        if key not in names:
            raise unknown_name("key", key, names, where=where)


def _from_text(entry: Any, base: str, *, where: str) -> dict[str, Any]:
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        if base != "1":
            raise SpecError(f"needs a unit, such as {EXAMPLES[base]!r}", where=where)
        return {"value": entry, "unit": "1"}
    found = re.fullmatch(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d{1,3})?)\s*([A-Za-z/]*)\s*", str(entry))
    if not isinstance(entry, str) or not found:
        raise SpecError(f"must be a figure with its unit, such as {EXAMPLES[base]!r}, not {_shown(entry)}", where=where)
    try:
        return {"value": float(found[1]), "unit": found[2] or ("1" if base == "1" else "")}
    except ValueError as error:
        raise SpecError(f"{found[1]!r} is not a number", where=where) from error


def _unit(unit: Any, base: str, *, where: str) -> str:
    """The unit's name, if it measures what `base` does. Raises SpecError otherwise."""
    if not unit:
        raise SpecError(f"needs a unit, such as {EXAMPLES[base]!r}", where=where)
    to_base(1.0, text(unit, where=where), where=where)
    if _base_of(unit) != base:
        known = [name for name in UNITS if _base_of(name) == base]
        raise SpecError(f"unit {unit!r} does not fit here; known: {', '.join(known)}", where=where)
    return str(unit)


def _base_of(unit: str) -> str:
    if unit == "GT/s":
        return "transfers"
    for ending, base in (("FLOP/s", "FLOP/s"), ("B/s", "B/s"), ("b/s", "B/s"), ("B", "B"), ("W", "W")):
        if unit.endswith(ending):
            return base
    return "s" if unit in TIMES else unit


def _shares(scope: str) -> float:
    """What a figure of this scope is divided by: both directions are two, a package of two dies is two devices."""
    devices = re.search(r"of (\d+) devices", scope)
    return (2.0 if BOTH_DIRECTIONS in scope else 1.0) * (max(1, int(devices[1])) if devices else 1)


def _shown(value: Any) -> str:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**12 else "a huge number"
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
