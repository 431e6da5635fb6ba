"""What a launch is made of: a trainer's program, and a launcher that starts it on every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from planner.spec.plan_file import PlanFile

Files = Mapping[str, str]
"""Path relative to the folder emitted into -> text."""


@dataclass(frozen=True)
class Variable:
    """An environment variable, with the reason that stands beside it as a comment."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Program:
    """What runs on every node. `words` are the program and its arguments as plain text, not quoted for a shell.

    `starter` is what makes one process per accelerator of them: "torchrun" or "accelerate". `requirements` are what pip
    has to install.
    """

    words: tuple[str, ...]
    starter: str = "torchrun"
    environment: tuple[Variable, ...] = ()
    requirements: tuple[str, ...] = ()


def nothing(_contents: PlanFile) -> Iterator[str]:
    """No reason to refuse a plan."""
    return iter(())


@dataclass(frozen=True)
class Trainer:
    """A training framework that plans are written for.

    `stack` is the catalogue's stack whose rules say which plans it can express; `refusals` yields, in words, what else
    of a question it cannot express. `written_for` is the version of the framework that the files are for.
    """

    name: str
    stack: str
    written_for: str
    files: Callable[[PlanFile], Files]
    program: Callable[[PlanFile], Program]
    refusals: Callable[[PlanFile], Iterator[str]] = nothing


@dataclass(frozen=True)
class Launcher:
    """What starts a program on every node of a cluster."""

    name: str
    written_for: str
    files: Callable[[PlanFile, Program], Files]
