"""An accelerator from a TOML table; the schema is documented in docs/cluster.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import SpecError
from planner.quantities import BytesPerSecond, format_bytes
from planner.spec.accelerator import Accelerator, Source
from planner.spec.figures import (
    at,
    check_complete,
    check_keys,
    flag,
    positive_number,
    read_figure,
    read_figures,
    table,
    text,
)
from planner.spec.lookup import NamedAccelerator
from planner.spec.workload import PRECISIONS

USABLE_SHARE = 0.985
"""Usable over nominal memory where a file states the nominal alone: frameworks report 0.980 (RTX 5090) to 0.991 (H200)
of it on parts that keep no error correction in the same memory, and 0.92 on those that do (L4, A10G, L40S)."""
MOST_USD_PER_HOUR = 1e6
PCIE_RATES = {3: 8e9, 4: 16e9, 5: 32e9}
"""Generation -> transfers per second and lane (PCI Express base specifications 3.0, 4.0 and 5.0)."""
FIGURES = {
    "memory": "B",
    "usable_memory": "B",
    "memory_bandwidth": "B/s",
    "pcie_bandwidth": "B/s",
    "power": "W",
    "multiprocessors": "1",
}
TEXTS = ("vendor", "architecture", "notes")
KEYS = (*FIGURES, *TEXTS, "peak", "pcie_generation", "usd_per_hour", "runs_on_host")
REQUIRED = ("memory", "memory_bandwidth", "peak", "multiprocessors", "pcie_bandwidth")


def read_accelerator(
    entries: Mapping[str, Any], *, where: str, name: str, base: Accelerator | None = None, origin: str = ""
) -> Accelerator:
    """An accelerator from its table; with `base`, what the table does not say stays as it is there.

    `origin` is the source of figures that name none. Raises SpecError.
    """
    check_keys(entries, KEYS, where=where)
    figures, sources = read_figures(entries, FIGURES, where=where, origin=origin)
    given: dict[str, Any] = dict(figures)
    if "multiprocessors" in given:
        given["multiprocessors"] = round(given["multiprocessors"])
    if "peak" in entries:
        given["peak"], found = _peaks(entries["peak"], where=at(where, "peak"), origin=origin)
        sources |= found
    if "pcie_generation" in entries and "pcie_bandwidth" not in entries:
        given["pcie_bandwidth"] = pcie_bandwidth(entries["pcie_generation"], where=at(where, "pcie_generation"))
        sources["pcie_bandwidth"] = Source(f"PCI Express {entries['pcie_generation']}.0, 16 lanes, 128b/130b encoding")
    if "memory" in given and "usable_memory" not in given:
        given["usable_memory"] = USABLE_SHARE * given["memory"]
        sources["usable_memory"] = Source(scope=f"derived: {USABLE_SHARE} of the nominal memory")
    given |= {key: text(entries[key], where=at(where, key)) for key in TEXTS if key in entries}
    if "runs_on_host" in entries:
        given["runs_on_host"] = flag(entries["runs_on_host"], where=at(where, "runs_on_host"))
    given |= read_prices(entries, "usd_per_hour", sources, where=where)
    if base is not None:
        return _checked(replace(base, name=name, **given, sources={**base.sources, **sources}), where=where)
    check_complete(given, REQUIRED, where=where)
    made = Accelerator(**{"name": name, "vendor": "", "architecture": "", "sources": sources} | given)
    return _checked(made, where=where)


def _checked(made: Accelerator, *, where: str) -> Accelerator:
    """The accelerator, if it has the memory that it lets be used. Raises SpecError otherwise."""
    if made.usable_memory > made.memory:
        sizes = (format_bytes(float(size)) for size in (made.usable_memory, made.memory))
        raise SpecError("usable memory of {} is more than the memory of {}".format(*sizes), where=where)
    return made


def accelerator_entry(
    entry: Any, lookup: NamedAccelerator, *, where: str, start: Accelerator | None = None, origin: str = ""
) -> Accelerator:
    """An accelerator by name, or from a table, which may name another to start from as `base`.

    Without `base`, a table starts from `start`. Raises SpecError.
    """
    if isinstance(entry, str):
        return lookup(entry, where=where)
    entries = dict(table(entry, where=where))
    if "base" in entries:
        start = lookup(text(entries.pop("base"), where=at(where, "base")), where=at(where, "base"))
    name = text(entries.pop("name", start.name if start else "accelerator"), where=at(where, "name"))
    return read_accelerator(entries, where=where, name=name, base=start, origin=origin)


def read_prices(entries: Mapping[str, Any], key: str, sources: dict[str, Source], *, where: str) -> dict[str, Any]:
    """The price range in USD per hour under `key`, and its date; its source is added to `sources`.

    A price is a number, a pair [low, high], or a table of low, high, date, source, read and scope. Raises SpecError.
    """
    if key not in entries:
        return {}
    entry, where = entries[key], at(where, key)
    if isinstance(entry, int | float):
        entry = [entry, entry]
    if isinstance(entry, list) and len(entry) == 2:
        entry = {"low": entry[0], "high": entry[1], "source": "given by the user"}
    if not isinstance(entry, Mapping):
        raise SpecError("must be a number, a pair [low, high], or a table of low and high", where=where)
    prices = entry
    check_keys(prices, ("low", "high", "unit", "date", "source", "read", "scope"), where=where)
    check_complete(prices, ("low", "high"), where=where)
    if prices.get("unit", "USD/h") != "USD/h":
        raise SpecError(f"must be in USD/h, not {prices['unit']!r}", where=where)
    low, high = (positive_number(prices[end], where=at(where, end), most=MOST_USD_PER_HOUR) for end in ("low", "high"))
    if low > high:
        raise SpecError(f"low {low:g} is above high {high:g}", where=where)
    sources[key] = Source(**{name: str(prices.get(name, "")) for name in ("source", "read", "scope")})
    return {key: (low, high), "price_date": str(prices.get("date", ""))}


def pcie_bandwidth(generation: Any, *, where: str = "") -> BytesPerSecond:
    """One direction of 16 lanes, after 128b/130b encoding. Raises SpecError for an unknown generation.

    >>> round(pcie_bandwidth(4) / 1e9, 1)
    31.5
    """
    if not isinstance(generation, int) or generation not in PCIE_RATES:
        raise SpecError(f"must be one of {', '.join(map(str, PCIE_RATES))}, not {generation!r}", where=where)
    return 16 * PCIE_RATES[generation] * (128 / 130) / 8


def _peaks(entry: Any, *, where: str, origin: str) -> tuple[dict[str, float], dict[str, Source]]:
    """Peaks by precision. The table's unit, scope, source and date hold for every precision given as a number."""
    entries = table(entry, where=where)
    shared = {key: entries[key] for key in ("unit", "scope", "source", "read") if key in entries}
    check_keys(entries, (*PRECISIONS, *shared), where=where)
    found = {}
    for key in (precision for precision in PRECISIONS if precision in entries):
        value = entries[key]
        bare = isinstance(value, int | float) and "unit" in shared
        found[key] = read_figure(
            {"value": value} | shared if bare else value, "FLOP/s", where=at(where, key), origin=origin
        )
    if not found:
        raise SpecError(f"names no precision; known: {', '.join(PRECISIONS)}", where=where)
    return {key: f.value for key, f in found.items()}, {f"peak.{key}": f.source for key, f in found.items()}
