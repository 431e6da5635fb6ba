"""Records of `spec` as plain JSON values, and back: driven by the fields' type hints, so nothing is listed twice."""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import IntEnum
from functools import cache
from itertools import groupby
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from planner.errors import FileFormatError
from planner.spec.figures import at
from planner.spec.model import Layer
from planner.spec.plan import PLAN_KINDS, PLAN_SWITCHES, Plan

T = TypeVar("T")

LARGEST_NUMBER = 1e24
"""Nothing that a record counts or measures is larger, nor negative."""
MOST_LAYERS = 10_000
"""More than this in a file is a mistake, not a model."""


def to_plain(value: Any) -> Any:
    """A record as dicts, lists, numbers and strings. Equal neighbours in a tuple of layers become one with a count."""
    if isinstance(value, Plan):
        return plan_to_plain(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {_key(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], Layer):
        return [{"count": len(list(run)), "layer": to_plain(layer)} for layer, run in groupby(value)]
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def plan_to_plain(plan: Plan) -> dict[str, Any]:
    """One plan with its kinds by name: `{"tp": 8, ..., "sharding": "zero3", ...}`."""
    plain: dict[str, Any] = {name: int(value) for name, value in plan.as_dict().items()}
    plain |= {name: kind(plain[name]).name.lower() for name, kind in PLAN_KINDS.items()}
    return plain | {name: bool(plain[name]) for name in PLAN_SWITCHES}


def from_plain(kind: type[T], data: Any, *, where: str = "") -> T:
    """The record of type `kind` that `to_plain` wrote. Raises FileFormatError naming the key at fault."""
    decoded: T = _decode(kind, data, where)
    return decoded


def content_hash(record: Any) -> str:
    """Twelve hexadecimal digits that change whenever any value of the record does."""
    text = json.dumps(to_plain(record), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _key(key: Any) -> str:
    return "/".join(str(part) for part in key) if isinstance(key, tuple) else str(key)


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        return _number(float, data, where)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(hint), data, where)
    if origin is tuple:
        return _decode_tuple(get_args(hint), data, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key_hint, value_hint = get_args(hint)
        items = _expect(data, dict, where).items()
        return {_decode_key(key_hint, key): _decode(value_hint, each, at(where, key)) for key, each in items}
    if hint is Plan:
        return _decode_record(Plan, _plan_codes(_expect(data, dict, where), where), where)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return _code(hint, data, where)
    return _decode_record(hint, data, where) if is_dataclass(hint) else _decode_value(hint, data, where)


def _decode_value(hint: Any, data: Any, where: str) -> Any:
    if hint in (int, float):
        return _number(hint, data, where)
    return _expect(data, hint, where) if isinstance(hint, type) else data


def _decode_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    """Optional records and numbers-or-columns: None where it may be, else the first option."""
    if data is None and type(None) in options:
        return None
    return _decode(options[0], data, where)


def _decode_tuple(hints: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    values = _expect(data, list, where)
    if hints[0] is Layer:
        return tuple(layer for i, run in enumerate(values) for layer in _decode_run(run, f"{where}[{i}]"))
    each = hints[:1] * len(values) if len(hints) == 2 and hints[1] is Ellipsis else hints
    if len(each) != len(values):
        raise FileFormatError(f"needs {len(each)} values, has {len(values)}", where=where)
    return tuple(
        _decode(hint, value, f"{where}[{i}]") for i, (hint, value) in enumerate(zip(each, values, strict=True))
    )


def _decode_run(data: Any, where: str) -> list[Layer]:
    """Equal layers in a row."""
    run = _expect(data, dict, where)
    count = _number(int, run.get("count"), at(where, "count"))
    if not 1 <= count <= MOST_LAYERS:
        raise FileFormatError(f"must be 1 to {MOST_LAYERS:,}, not {count}", where=at(where, "count"))
    return [_decode(Layer, run.get("layer"), at(where, "layer"))] * count


def _decode_record(kind: Any, data: Any, where: str) -> Any:
    known = {field.name: field for field in fields(kind)}
    given = _expect(data, dict, where)
    unknown = [name for name in given if name not in known]
    missing = [name for name, field in known.items() if name not in given and _required(field)]
    if unknown or missing:
        what = f"unknown key {unknown[0]!r}" if unknown else f"missing key {missing[0]!r}"
        raise FileFormatError(f"{what} in a {kind.__name__}", where=where)
    hints = _hints(kind)
    return kind(**{name: _decode(hints[name], value, at(where, name)) for name, value in given.items()})


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _decode_key(hint: Any, text: str) -> Any:
    if get_origin(hint) is not tuple:
        return text
    return tuple(part(value) for part, value in zip(get_args(hint), text.split("/"), strict=True))


def _plan_codes(data: dict[str, Any], where: str) -> dict[str, Any]:
    codes = {name: int(_code(kind, data[name], at(where, name))) for name, kind in PLAN_KINDS.items() if name in data}
    switches = {name: int(_expect(data[name], bool, at(where, name))) for name in PLAN_SWITCHES if name in data}
    return data | codes | switches


def _code(kind: type[IntEnum], data: Any, where: str) -> IntEnum:
    names = [member.name.lower() for member in kind]
    if data not in names:
        raise FileFormatError(f"unknown {kind.__name__} {data!r}; known: {', '.join(names)}", where=where)
    return kind[data.upper()]


def _number(kind: Any, data: Any, where: str) -> Any:
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise FileFormatError(f"must be {_NUMBER_NAMES[kind]}, not {data!r}", where=where)
    if not 0 <= data < LARGEST_NUMBER or kind(data) != data:
        raise FileFormatError(
            f"must be {_NUMBER_NAMES[kind]} from 0 to {LARGEST_NUMBER:g}, not {data!r:.30}", where=where
        )
    return kind(data)


def _expect(data: Any, kind: Any, where: str) -> Any:
    if not isinstance(data, kind):
        raise FileFormatError(f"must be {_JSON_NAMES.get(kind, kind.__name__)}, not {data!r}", where=where)
    return data


_NUMBER_NAMES = {int: "a whole number", float: "a number"}
_JSON_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
