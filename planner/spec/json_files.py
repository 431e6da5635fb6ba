"""JSON files that machines write: numbers in rows, replaced whole or not at all."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError
from planner.tables import Table


def read_json(path: Path, *, schema_version: int, hint: str = "the planner did not write it") -> dict[str, Any]:
    """The object in a JSON file; `hint` says what was expected where another program wrote it.

    Raises FileFormatError where the file cannot be read, is no JSON object, or has another schema version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except RecursionError as error:
        raise FileFormatError("is nested too deeply", where=str(path)) from error
    except ValueError as error:
        raise FileFormatError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise FileFormatError("should hold a JSON object", where=str(path))
    if "schema_version" not in data:
        raise FileFormatError(f"has no schema_version: {hint}", where=str(path))
    if data["schema_version"] != schema_version:
        found = data["schema_version"]
        raise FileFormatError(f"schema_version should be {schema_version}, not {found!r}", where=str(path))
    return data


def json_text(data: Mapping[str, Any]) -> str:
    """`data` as JSON, a row of numbers on one line."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    # A line break tells an array's end from a bracket within a string, which has none.
    return re.sub(r"\[\n\s*([^\[\]{}]+?)\n\s*\]", lambda found: f"[{_one_line(found[1])}]", text) + "\n"


def _one_line(text: str) -> str:
    return re.sub(r"\n\s*", " ", text)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write `data` so that a reader sees the old file or the new one, never a part."""
    text = json_text(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def table_to_json(table: Table, names: tuple[str, ...], *, digits: int = 4) -> dict[str, Any]:
    """A table as named axes and its values in row-major order, rounded.

    >>> table_to_json(Table.of([[1, 2]], [0.5, 0.25]), ("m",))
    {'axes': {'m': [1.0, 2.0]}, 'values': [0.5, 0.25]}
    """
    axes = {name: axis.tolist() for name, axis in zip(names, table.axes, strict=True)}
    return {"axes": axes, "values": [round(value, digits) for value in table.values.ravel().tolist()]}


def table_from_json(data: Mapping[str, Any]) -> Table:
    """The inverse of `table_to_json`. Raises KeyError, TypeError or ValueError where `data` is no such table."""
    axes = list(data["axes"].values())
    if any(len(axis) < 2 or sorted(set(axis)) != axis or axis[0] <= 0 for axis in axes):
        raise ValueError("a table's axes need at least two positive, ascending values")
    return Table.of(axes, data["values"])
