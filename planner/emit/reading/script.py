"""Constants at the top of a training script that the planner wrote, read without running it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.emit.reading.settings import text_of

SCRIPT = "train.py"


def constants(path: Path) -> dict[str, Any]:
    """Names in capitals that a Python file gives values, texts where these are names; none where there is no file."""
    try:
        tree = ast.parse(text_of(path)) if path.is_file() else ast.Module(body=[], type_ignores=[])
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found[node.targets[0].id] = _value(node.value)
    return found


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return ast.unparse(node)


def job_of(script: Mapping[str, Any]) -> dict[str, Any]:
    """What the constants say of the job."""
    job: dict[str, Any] = {}
    if isinstance(script.get("SEQ_LEN"), int):
        job["seq_len"] = script["SEQ_LEN"]
    if script.get("ATTENTION") == "eager":
        job["attention"] = "math"
    return job
