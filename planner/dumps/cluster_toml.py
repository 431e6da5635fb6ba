"""A cluster TOML (docs/cluster.md) of nodes that a dump describes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from planner.dumps.node import HostNode


def cluster_toml(host: HostNode, *, nodes: int = 1) -> str:
    """The text of a file that describes `nodes` such hosts; `read_cluster` makes the same node of it."""
    remarks = [*(f"told: {text}" for text in host.told), *(f"assumed: {text}" for text in host.assumed)]
    plain = {key: value for key, value in host.entries.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in host.entries.items() if isinstance(value, Mapping)}
    lines = [*(f"# {_one_line(text)}" for text in remarks), f"nodes = {nodes}", "", "[node]"]
    lines += [f"{key} = {_value(value)}" for key, value in plain.items()]
    lines += [f"{key} = {_value(value)}" for key, value in tables.items()]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", " ", text)


def _value(value: Any) -> str:
    r"""A value as TOML writes it.

    >>> _value({"value": 50.0, "unit": "GB/s"}), _value(True), _value('a"b')
    ('{ value = 50.0, unit = "GB/s" }', 'true', '"a\\"b"')
    """
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key, re.ASCII) else json.dumps(key)
