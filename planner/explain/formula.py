"""The formula behind a function, read from its docstring: equation, source, and what it computes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

_SOURCE = re.compile(r"\bSource(?::| and validity)\s*")
_REFERENCE = re.compile(r"as (?:for )?`(\w+)`")
_SAME = re.compile(r"Equation, source and validity as for `(\w+)`")
_EQUATION = re.compile(r"\S.{0,60}? = ")


@dataclass(frozen=True)
class Formula:
    """What a cost function computes (`summary`), how (`equation`), and where that comes from (`source`)."""

    name: str
    summary: str
    equation: str
    source: str


def formula(function: Callable[..., Any]) -> Formula:
    """The formula of a cost function whose docstring follows the house rule.

    The equations are the paragraphs that open with `... = ` between the summary and the source, first sentences only;
    the source is what follows `Source:` up to the end of its paragraph. Raises ValueError when either is missing.

    >>> from planner.economics.cost_of_run import run_time
    >>> formula(run_time).equation
    'T = tokens / tokens_per_s'
    """
    text = inspect.getdoc(function) or ""
    twin = _named_after(function, _SAME.search(text))
    if twin:
        return replace(formula(twin), name=_name(function), summary=_one_line(_paragraphs(text)[0]))
    before, found, after = _split_at_source(text)
    if not found:
        raise ValueError(f"{function.__name__} names no source")
    paragraphs = _paragraphs(before)
    equations = [_one_line(part, joint="; ").split(". ")[0] for part in paragraphs[1:] if _EQUATION.match(part)]
    if not equations:
        raise ValueError(f"{function.__name__} states no equation")
    return Formula(
        name=_name(function),
        summary=_one_line(paragraphs[0]),
        equation=_plain(", ".join(equations).removesuffix(".")),
        source=_plain(_source(function, _one_line(_paragraphs(after)[0]))),
    )


def _plain(text: str) -> str:
    """A passage of a docstring for people who do not read code: without its marks and what it says to callers."""
    return re.split(r"\s+Raises\b", text)[0].replace("`", "")


def _split_at_source(text: str) -> tuple[str, str, str]:
    """What stands before and after the words that introduce the source."""
    match = _SOURCE.search(text)
    return (text[: match.start()], match.group(), text[match.end() :]) if match else (text, "", "")


def _source(function: Callable[..., Any], text: str) -> str:
    """The source in words; `as name` is looked up in the function's module."""
    other = _named_after(function, _REFERENCE.match(text))
    return formula(other).source if other else text


def _named_after(function: Callable[..., Any], reference: re.Match[str] | None) -> Callable[..., Any] | None:
    """The other function of the module that a docstring refers to."""
    other = getattr(inspect.getmodule(function), reference.group(1), None) if reference else None
    return other if other is not function else None


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__name__}"


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _one_line(text: str, joint: str = " ") -> str:
    """Lines as one; a line that continues the one above (it holds no equation of its own) is joined by a space."""
    joined = ""
    for line in (" ".join(each.split()) for each in text.strip().splitlines()):
        joined += (joint if joined and _EQUATION.match(line) else " " if joined else "") + line
    return joined
