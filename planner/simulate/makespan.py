"""How long a schedule takes where nothing but its order and its sends makes ranks wait: `simulate` without detail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.quantities import Seconds
from planner.simulate.actions import Action, Kind, Order
from planner.simulate.play import Deadlock

KINDS = tuple(Kind)
NOTHING = -1


@dataclass(frozen=True, eq=False)
class Program:
    """An order made ready to be played many times.

    Each rank's actions as (number of kind and stage, tensor needed, tensor given, stream that sends it): tensors are
    numbered, and -1 where there is none; what stays on the rank is sent by none.
    """

    actions: tuple[tuple[tuple[int, int, int, int], ...], ...]
    num_stages: int
    num_tensors: int

    @classmethod
    def of(cls, order: Order) -> Program:
        """The program of an order."""
        stages, microbatches = order.num_stages, order.num_microbatches
        ranks = tuple(
            tuple(_row(action, order.rank_of, microbatches) for action in actions) for actions in order.actions
        )
        return cls(ranks, stages, 2 * stages * microbatches)


def makespan(program: Program, seconds: Mapping[Kind, Sequence[Seconds]], *, send: Seconds = 0.0) -> Seconds:
    """Duration of all actions, each stage's `seconds` by kind; sends of one direction leave a rank one by one.

    What is paired runs one after the other. Raises Deadlock where ranks wait for each other.
    """
    durations = [seconds[kind][stage] for kind in KINDS for stage in range(program.num_stages)]
    ranks = len(program.actions)
    arrived: list[Seconds | None] = [None] * program.num_tensors
    waiting, sent = [NOTHING] * program.num_tensors, [0.0] * (2 * ranks)
    clock, places, ready = [0.0] * ranks, [0] * ranks, list(range(ranks))
    while ready:
        rank = ready.pop()
        actions, place, now = program.actions[rank], places[rank], clock[rank]
        while place < len(actions):
            what, needed, given, stream = actions[place]
            if needed != NOTHING:
                arrival = arrived[needed]
                if arrival is None:
                    waiting[needed] = rank
                    break
                now = max(now, arrival)
            now += durations[what]
            place += 1
            if given == NOTHING:
                continue
            moment = now
            if stream != NOTHING:
                moment = sent[stream] = max(now, sent[stream]) + send
            arrived[given] = moment
            if waiting[given] != NOTHING:
                ready.append(waiting[given])
        clock[rank], places[rank] = now, place
    if any(place < len(actions) for place, actions in zip(places, program.actions, strict=True)):
        raise Deadlock("ranks wait for each other")
    return max(clock)


def _row(action: Action, rank_of: Sequence[int], microbatches: int) -> tuple[int, int, int, int]:
    stages = len(rank_of)
    what = KINDS.index(action.kind) * stages + action.stage
    if action.kind is Kind.WEIGHT:
        return what, NOTHING, NOTHING, NOTHING
    forward = action.kind is Kind.FORWARD
    first, last, way = (0, stages - 1, 1) if forward else (stages - 1, 0, -1)
    # Tensors are numbered by direction, by the stage that needs them, and by micro-batch.
    own = (forward * stages + action.stage) * microbatches + action.microbatch
    needed = NOTHING if action.stage == first else own
    if action.stage == last:
        return what, needed, NOTHING, NOTHING
    rank, target = rank_of[action.stage], action.stage + way
    stream = NOTHING if rank_of[target] == rank else 2 * rank + forward
    return what, needed, own + way * microbatches, stream
