"""What a launch is made of: a trainer's program, a launcher that starts it on every node, and the two together."""

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
    has to install. `elastic` are arguments that let the replicas follow the number of processes, and `try_out` those
    of a short run on CPUs; each is empty where the program has no such thing.
    """

    words: tuple[str, ...]
    starter: str = "torchrun"
    environment: tuple[Variable, ...] = ()
    requirements: tuple[str, ...] = ()
    elastic: tuple[str, ...] = ()
    try_out: tuple[str, ...] = ()


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
class Job:
    """A program for the nodes of a plan's cluster, before it has a launcher.

    `words` is the plan as a phrase; `files` are the trainer's, plan.json among them.
    """

    contents: PlanFile
    words: str
    trainer: Trainer
    program: Program
    files: Files

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.contents.cluster.num_nodes

    @property
    def gpus_per_node(self) -> int:
        """Processes of a node."""
        return self.contents.cluster.node.gpus_per_node

    @property
    def world_size(self) -> int:
        """Processes in all."""
        return int(self.contents.plan.world_size)


def no_remarks(_job: Job) -> Iterator[str]:
    """Nothing to refuse, or to say."""
    return iter(())


@dataclass(frozen=True)
class Launcher:
    """What starts a program on every node of a cluster.

    `start` is the one command that starts the files of a folder (named as a shell takes it); `refusals` and `notes`
    yield, in words, what it cannot start and what the person who starts it has to know.
    """

    name: str
    written_for: str
    files: Callable[[Job], Files]
    start: Callable[[Job, str], str]
    refusals: Callable[[Job], Iterator[str]] = no_remarks
    notes: Callable[[Job], Iterator[str]] = no_remarks
