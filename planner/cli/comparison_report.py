"""Sides side by side and what-ifs, printed for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from planner.answer.compared.comparison import Comparison
from planner.answer.compared.figures import NOTHING, PLAN, Line
from planner.cli.printing import Heading, say, table


def print_comparison(found: Comparison) -> None:
    """The answer, the lines that differ, what accounts for the differences, and what is the same in one line."""
    say(found.sentence)
    say()
    if not found.same:
        two = len(found.sides) == 2
        labels = [Heading(side.label, 1) for side in found.sides]
        table([Heading("", 1, left=True), *labels, *([Heading("change", 2)] if two else [])], _rows(found, two=two))
        say()
    for title, text in found.remarks:
        say(f"{title}: {text}", indent="  ")
    if found.equal:
        say(f"the same: {'; '.join(_folded(line) for line in found.equal if _worth_saying(line))}", indent="  ")
    say()


def _rows(found: Comparison, *, two: bool) -> list[list[str]]:
    return [
        [line.name, *(figure.text for figure in line.figures), *([line.change] if two else [])]
        for line in found.differences
    ]


def _worth_saying(line: Line) -> bool:
    """Whether what is the same is anything: an absent figure and a degree of 1 are not."""
    figure = line.figures[0]
    return figure.text != NOTHING and not (line.section == PLAN and figure.value == 1)


def _folded(line: Line) -> str:
    return f"{line.name} {line.figures[0].text}"


def command_of(sides: Sequence[str], asked: Mapping[str, Any], what_if: str | None) -> str:
    """The command line as it was given; each --fix once more."""
    fixed = [word for each in asked.get("fix") or () for word in ("--fix", each)]
    chosen = {name: value for name, value in asked.items() if name != "fix" and value is not None}
    options = [word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    last = [] if what_if is None else ["--what-if", what_if]
    return shlex.join(["planner", "compare", *sides, *options, *fixed, *last])
