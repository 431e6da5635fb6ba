"""Python source of calls and values, laid out as ruff does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WIDTH = 120


@dataclass(frozen=True)
class Name:
    """A name or an expression that is text of a program, not data."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call with keyword arguments."""

    function: str
    arguments: Mapping[str, Any]


def call(function: str, **arguments: Any) -> Call:
    """A call; arguments that are None are left out."""
    return Call(function, {name: value for name, value in arguments.items() if value is not None})


def source(value: Any, indent: int = 0, before: int = 0) -> str:
    r"""A value as source; `indent` is that of its last line, and `before` what stands before it on its first.

    >>> print(source(call("f", a=1, b="x\"; import os", c=call("g", d=True, e="text"))))
    f(a=1, b='x"; import os', c=g(d=True, e="text"))
    """
    if not isinstance(value, Call):
        return value.text if isinstance(value, Name) else _literal(value)
    flat = ", ".join(f"{name}={source(each)}" for name, each in value.arguments.items())
    line = f"{value.function}({flat})"
    if before + len(line) + 1 <= WIDTH and "\n" not in line:
        return line
    lines = [argument(name, each, indent + 4) for name, each in value.arguments.items()]
    return "\n".join([f"{value.function}(", *lines, f"{' ' * indent})"])


def argument(name: str, value: Any, indent: int) -> str:
    """One argument on a line of its own."""
    start = f"{' ' * indent}{name}="
    return f"{start}{source(value, indent, len(start))},"


def arguments(values: Mapping[str, Any], indent: int) -> str:
    """Arguments on lines of their own."""
    return "\n".join(argument(name, value, indent) for name, value in values.items())


def _literal(value: Any) -> str:
    """A value as Python reads it back; texts in double quotes where these need no escapes."""
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and not set('"\\') & set(text) else text
