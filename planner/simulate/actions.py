"""What a pipeline does in one step: every rank's forwards and backwards in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from planner.errors import SpecError


class Kind(StrEnum):
    """What is done with a micro-batch on a stage; the letters are those of torch.distributed.pipelining."""

    FORWARD = "F"
    BACKWARD = "B"
    """Gradients of inputs and weights together: all of a backward."""
    INPUT = "I"
    """The part of a backward that the stage before waits for: gradients of inputs."""
    WEIGHT = "W"
    """The rest of it, which nobody waits for: gradients of weights."""


WAYS = ("FB", "FIW")
"""What a stage may do with a micro-batch, in this order."""

MOST_PASSES = 4_000_000
"""Forwards of a step beyond which nothing is laid out: gigabytes of actions, and surely a slip of the keyboard."""


class Action(NamedTuple):
    """One pass of a micro-batch through a stage; stages are numbered as the data flows, both count from 0.

    `paired` says that it starts together with the action before it on its rank, and the next one when both have
    ended: a forward and a backward that run side by side (DualPipe), each communicating while the other computes.
    """

    kind: Kind
    stage: int
    microbatch: int
    paired: bool = False

    def __str__(self) -> str:
        """As torch writes it: `3F12` is the forward of micro-batch 12 on stage 3."""
        return f"{self.stage}{self.kind}{self.microbatch}"


@dataclass(frozen=True)
class Order:
    """The actions of each rank in the order in which it does them, and the rank of each stage.

    Complete by construction: raises SpecError where a stage does not do what it should with each micro-batch, or an
    action is on another rank than its stage. Ranks may still wait for each other for ever, which shows when the order
    is played.
    """

    actions: tuple[tuple[Action, ...], ...]
    rank_of: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_ranks(self)
        _check_microbatches(self)
        for rank, actions in enumerate(self.actions):
            _check_pairs(rank, actions)

    @property
    def num_ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.actions)

    @property
    def num_stages(self) -> int:
        """Stages on all ranks together."""
        return len(self.rank_of)

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of the step."""
        return 1 + max((action.microbatch for actions in self.actions for action in actions), default=-1)


def check_counts(ranks: int, microbatches: int, chunks: int) -> None:
    """Raise SpecError unless a schedule of so many ranks, micro-batches and stages a rank can be laid out."""
    for count, thing in ((ranks, "ranks"), (microbatches, "micro-batches"), (chunks, "stages a rank")):
        if count < 1:
            raise SpecError(f"a schedule of {count} {thing}; it needs at least 1")
    if ranks * chunks * max(ranks, microbatches) > MOST_PASSES:
        raise SpecError(f"{microbatches} micro-batches on {ranks} x {chunks} stages; over {MOST_PASSES} forwards")


def _check_ranks(order: Order) -> None:
    """Every rank has a stage, and every action is on the rank of its stage."""
    if set(order.rank_of) != set(range(order.num_ranks)):
        raise SpecError(f"stages on ranks {sorted(set(order.rank_of))} of {order.num_ranks}; every rank needs a stage")
    for rank, actions in enumerate(order.actions):
        for action in actions:
            if action.microbatch < 0 or not 0 <= action.stage < order.num_stages:
                raise SpecError(f"rank {rank} does {action}; there are stages 0 to {order.num_stages - 1}")
            if order.rank_of[action.stage] != rank:
                owner = order.rank_of[action.stage]
                raise SpecError(f"rank {rank} does {action}, but stage {action.stage} is on rank {owner}")


def _check_microbatches(order: Order) -> None:
    """Every stage does every micro-batch once, in one of the ways that there are."""
    done: dict[tuple[int, int], str] = {}
    for actions in order.actions:
        for action in actions:
            place = (action.stage, action.microbatch)
            done[place] = done.get(place, "") + action.kind
    if not done:
        raise SpecError("a schedule without actions; each stage needs a forward and a backward of each micro-batch")
    num_microbatches = order.num_microbatches
    for stage, microbatch in ((stage, each) for stage in range(order.num_stages) for each in range(num_microbatches)):
        way = done.get((stage, microbatch), "")
        if way not in WAYS:
            said, ways = ", ".join(way) or "nothing", " or ".join(WAYS)
            raise SpecError(f"stage {stage} does {said} with micro-batch {microbatch}; right is {ways} in this order")


def _check_pairs(rank: int, actions: tuple[Action, ...]) -> None:
    """Only a forward and another's backward start together, two at a time."""
    for before, action in zip((None, *actions), actions, strict=False):
        if action.paired and (before is None or before.paired or not _can_pair(before, action)):
            said = f"{before}{' of another pair' * before.paired}" if before else "nothing"
            raise SpecError(f"rank {rank} starts {action} together with {said}; right is a forward and a backward")


def _can_pair(one: Action, other: Action) -> bool:
    """One of two is a forward, and not that of the other."""
    places = (one.stage, one.microbatch), (other.stage, other.microbatch)
    return (one.kind is Kind.FORWARD) != (other.kind is Kind.FORWARD) and places[0] != places[1]
