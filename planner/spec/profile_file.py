"""Reads and writes efficiency profiles as JSON (machine-written; times in seconds)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError
from planner.spec.json_files import read_json, table_from_json, table_to_json, write_json
from planner.spec.profile import LEVELS, CollectiveFit, MatmulTiles, Profile
from planner.tables import Table

SCHEMA_VERSION = 1
GEMM_AXES = ("m", "n", "k")
ATTENTION_AXES = ("head_dim", "seq_len", "sequences_x_heads", "queries_per_key")
GROUPED_AXES = ("tokens_per_expert", "intermediate_size", "experts", "sharing_ranks")
"""Of these two, a table may leave out the last axes, on which it then does not depend; two stay."""
TIMES = (
    "launch_time", "tp_launch_time", "pp_launch_time", "fsdp_launch_time", "recompute_launch_time",
    "update_launch_time",
    "kernel_overhead", "attention_overhead", "fixed_time",
)  # fmt: skip
FACTORS = (
    "compute_scale", "attention_scale", "attention_backward_efficiency", "elementwise_scale", "memory_efficiency",
)  # fmt: skip
"""Numbers that something is multiplied or divided by: never zero."""
ERRORS = ("error", "plan_error", "memory_error")
NUMBERS = (*FACTORS, "overlap_penalty", *ERRORS)
SMALLEST, LARGEST = 1e-6, 1e3
"""Of factors and errors, and of times in seconds; beyond them nothing was measured."""
FIT_TIMES = ("start", "step_latency", "hop_latency")
TEXTS = ("sources", "notes")
OWN_KEYS = ("origins", "machine", "measurements")
"""What a calibration keeps beside the profile that it fitted; not read here."""


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile so that `read_profile` gives it back (shares to 4 digits); whole or not at all."""
    tables: dict[str, Any] = {
        "gemm": {name: table_to_json(table, GEMM_AXES) for name, table in profile.gemm.items()},
        "attention": {
            name: table_to_json(table, ATTENTION_AXES[: len(table.axes)]) for name, table in profile.attention.items()
        },
    }
    if profile.grouped_matmul:
        names = GROUPED_AXES[: len(profile.grouped_matmul.axes)]
        tables["grouped_matmul"] = table_to_json(profile.grouped_matmul, names)
    if profile.matmul_tiles:
        tables["matmul_tiles"] = {name: asdict(tiles) for name, tiles in profile.matmul_tiles.items()}
    head = {"schema_version": SCHEMA_VERSION} | {name: getattr(profile, name) for name in _HEAD}
    numbers = {name: float(getattr(profile, name)) for name in NUMBERS}
    times = {f"{name}_s": float(getattr(profile, name)) for name in TIMES}
    texts = {name: list(getattr(profile, name)) for name in TEXTS}
    fits = [_fit_to_json(link, collective, fit) for (link, collective), fit in profile.collectives.items()]
    write_json(path, head | numbers | times | texts | tables | {"collectives": fits})


def read_profile(path: Path) -> Profile:
    """The profile in a JSON file; what the file leaves out has the default of `Profile`.

    Raises FileFormatError, naming file and key, where the file is no profile or a value is out of range.
    """
    data = read_json(path, schema_version=SCHEMA_VERSION, hint="it is no efficiency profile")
    known = {*_HEAD, *NUMBERS, *(f"{name}_s" for name in TIMES), *TEXTS, *_TABLES, *OWN_KEYS}
    unknown = set(data) - {"schema_version", *known}
    if unknown:
        raise FileFormatError(f"unknown key {', '.join(sorted(unknown))}", where=str(path))
    given: dict[str, Any] = {name: _text(data, name, path) for name in _HEAD}
    if given["level"] not in LEVELS:
        raise FileFormatError(f"level should be one of {', '.join(LEVELS)}, not {given['level']!r}", where=str(path))
    for key in (*NUMBERS, *(f"{name}_s" for name in TIMES)):
        if key in data:
            given[key.removesuffix("_s")] = _number(data[key], f"{path}: {key}", zero=key not in (*FACTORS, *ERRORS))
    given |= {name: tuple(map(str, _list(data, name, path))) for name in TEXTS if name in data}
    if "grouped_matmul" in data:
        given["grouped_matmul"] = _table(data["grouped_matmul"], GROUPED_AXES, "grouped_matmul", path)
    if "matmul_tiles" in data:
        given["matmul_tiles"] = _tiles(data["matmul_tiles"], f"{path}: matmul_tiles")
    return Profile(
        **given,
        gemm=_tables(data, "gemm", GEMM_AXES, path),
        attention=_tables(data, "attention", ATTENTION_AXES, path),
        collectives=dict(_fit_from_json(entry, path) for entry in _list(data, "collectives", path)),
    )


_HEAD = ("accelerator", "stack", "level")
_TABLES = ("gemm", "attention", "grouped_matmul", "matmul_tiles", "collectives")


def _fit_to_json(link: str, collective: str, fit: CollectiveFit) -> dict[str, Any]:
    values = {f"{name}_s" if name in FIT_TIMES else name: value for name, value in asdict(fit).items()}
    return {"link": link, "collective": collective} | values


def _fit_from_json(entry: Mapping[str, Any], path: Path) -> tuple[tuple[str, str], CollectiveFit]:
    where = f"{path}: collectives"
    try:
        key = (str(entry["link"]), str(entry["collective"]))
        given = {name: entry[f"{name}_s" if name in FIT_TIMES else name] for name in _FIT_FIELDS}
    except (KeyError, TypeError) as error:
        raise FileFormatError(f"an entry lacks {error}", where=where) from error
    numbers = {
        name: _number(value, f"{where}: {key[0]} {key[1]}: {name}", zero=name != "efficiency")
        for name, value in given.items()
    }
    return key, CollectiveFit(**numbers, source=str(entry.get("source", "")))


_FIT_FIELDS = tuple(field.name for field in fields(CollectiveFit) if field.name != "source")


def matmul_tiles_from_json(entry: Any) -> MatmulTiles:
    """The inverse of `dataclasses.asdict`. Raises KeyError, TypeError or ValueError where `entry` is no such thing."""
    tiles = tuple((float(rows), float(columns), float(rate)) for rows, columns, rate in entry["tiles"])
    found = MatmulTiles(tiles, float(entry["half_rate_depth"]), float(entry["wave_exponent"]))
    numbers = [value for tile in tiles for value in tile]
    if not tiles or not all(math.isfinite(value) and value > 0 for value in numbers):
        raise ValueError("tiles should be positive rows, columns and rate")
    if not 0 <= found.wave_exponent <= 1 or not 0 <= found.half_rate_depth < math.inf:
        raise ValueError("wave_exponent should lie between 0 and 1, half_rate_depth should be a depth")
    return found


def _tiles(entries: Any, where: str) -> dict[str, MatmulTiles]:
    try:
        return {str(name): matmul_tiles_from_json(entry) for name, entry in entries.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"are no tiles ({error})", where=where) from error


def _tables(data: Mapping[str, Any], key: str, axes: tuple[str, ...], path: Path) -> dict[str, Table]:
    entries = data.get(key)
    if not isinstance(entries, dict) or not entries:
        raise FileFormatError(f"{key} should hold at least one table", where=str(path))
    return {name: _table(entry, axes, f"{key}.{name}", path) for name, entry in entries.items()}


def _table(entry: Any, axes: tuple[str, ...], key: str, path: Path) -> Table:
    try:
        names = tuple(entry["axes"])
        if names != axes[: max(len(names), 2)] or (axes == GEMM_AXES and names != axes):
            raise ValueError(f"axes should be {', '.join(axes)}")
        table = table_from_json(entry)
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"is no table ({error})", where=f"{path}: {key}") from error
    if not ((table.values > 0) & (table.values <= 1)).all():
        raise FileFormatError("shares should lie between 0 and 1", where=f"{path}: {key}")
    return table


def _text(data: Mapping[str, Any], key: str, path: Path) -> str:
    if not isinstance(data.get(key), str) or not data[key]:
        raise FileFormatError(f"{key} should be a name", where=str(path))
    return str(data[key])


def _list(data: Mapping[str, Any], name: str, path: Path) -> list[Any]:
    """The list under a key; empty where there is none."""
    values = data.get(name, [])
    if not isinstance(values, list):
        raise FileFormatError(f"{name} should be a list, not {values!r:.40}", where=str(path))
    return values


def _number(value: Any, where: str, *, zero: bool) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not (0 if zero else SMALLEST) <= value <= LARGEST:
        wanted = f"{'0' if zero else f'{SMALLEST:g}'} to {LARGEST:g}"
        raise FileFormatError(f"should be a number from {wanted}, not {value!r:.40}", where=where)
    return float(value)
