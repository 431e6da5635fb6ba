"""The formula behind a function, read from its docstring: equation, source, and what it computes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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

    The equation is the paragraph of lines that hold ` = ` and stand between the summary and the source; the source
    is the paragraph that begins `Source:`. Raises ValueError when either is missing.

    >>> from planner.economics.cost_of_run import run_time
    >>> formula(run_time).equation
    'T = tokens / tokens_per_s'
    """
    paragraphs = [part for part in re.split(r"\n\s*\n", inspect.getdoc(function) or "") if part.strip()]
    sources = [part for part in paragraphs if part.startswith("Source:")]
    if not sources:
        raise ValueError(f"{function.__name__} names no source")
    before = paragraphs[1 : paragraphs.index(sources[0])]
    equations = [part for part in before if _EQUATION.match(part)]
    if not equations:
        raise ValueError(f"{function.__name__} states no equation")
    return Formula(
        name=f"{function.__module__}.{function.__name__}",
        summary=_one_line(paragraphs[0]),
        equation=_one_line(equations[0], joint="; "),
        source=_one_line(sources[0].removeprefix("Source:")),
    )


def _one_line(text: str, joint: str = " ") -> str:
    """Lines as one; a line that continues the one above (it holds no equation of its own) is joined by a space."""
    joined = ""
    for line in (each.strip() for each in text.strip().splitlines()):
        joined += (joint if joined and _EQUATION.match(line) else " " if joined else "") + line
    return joined
