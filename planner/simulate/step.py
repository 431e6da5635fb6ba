"""The tasks of one step: every action of a schedule as segments of blocks, with what they send and hold."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from planner.quantities import Seconds
from planner.simulate.actions import Action, Kind, Order
from planner.simulate.tasks import COMPUTE, Tasks
from planner.spec.durations import Block, Durations, Segment

GATHER, REDUCE, SEND_FORWARD, SEND_BACKWARD = "gather", "reduce", "send forward", "send backward"
DATA_PARALLEL, PIPELINE = "dp", "pp"
"""Names of these axes in `Durations.links`."""
IN_FLIGHT = "in flight"
"""What counts micro-batches among the items that are held."""
RESERVE = "reserve"
"""What the allocator keeps of the device without handing it out."""
WEIGHTS = (Kind.BACKWARD, Kind.WEIGHT)
"""Actions that end with the gradients of weights."""
After = tuple[int, ...]
"""Tasks to wait for."""


class Label(NamedTuple):
    """What a task is: the name of its segment, of the block, and the action that it belongs to."""

    name: str
    block: str = ""
    action: Action | None = None

    def __str__(self) -> str:
        return " ".join(str(part) for part in (self.action or "", self.block, self.name) if part)


class Holding(NamedTuple):
    """A change of what a rank holds, when a task starts or (`at_end`) ends; bytes, or micro-batches in flight."""

    task: int
    at_end: bool
    item: str
    amount: float


@dataclass(frozen=True, eq=False)
class Step:
    """The tasks of a step and what they hold; the last task of each rank is its optimizer's."""

    tasks: Tasks
    holdings: list[Holding]


def step(durations: Durations, order: Order) -> Step:
    """The tasks of one optimizer step of every rank."""
    made = Step(Tasks(), [])
    ranks = [_Rank(rank, durations, order, made) for rank in range(order.num_ranks)]
    for rank in ranks:
        rank.schedule()
    for rank in ranks:
        rank.optimizer()
    return made


class _Rank:
    """One rank's program: tasks are added in the order in which its streams run them.

    `joined` is what comes next on the rank waits for, `passes` holds the last tasks of each pass that needs weights.
    """

    def __init__(self, rank: int, durations: Durations, order: Order, made: Step) -> None:
        self.rank, self.durations, self.order = rank, durations, order
        self.tasks, self.holdings = made.tasks, made.holdings
        self.joined: After = ()
        self.passes: list[After] = []
        self.begun: set[tuple[Kind, int]] = set()
        self.last = {action.stage: action for action in order.actions[rank] if action.kind in WEIGHTS}
        self.last_stage = order.num_stages - 1

    def schedule(self) -> None:
        """Everything up to the last gradients."""
        for stage in sorted(self.last):
            for place, block in enumerate(self.durations.stages[stage]):
                self._transfer(GATHER, block.gather_once, Label(GATHER, block.name), key=(GATHER, stage, place))
        for together in pairs(self.order.actions[self.rank]):
            self._side_by_side(together)
        if not self.durations.overlap_gradients:
            for stage in sorted(self.last, reverse=True):
                for block in reversed(self.durations.stages[stage]):
                    self._transfer(REDUCE, block.reduce_once, Label(REDUCE, block.name), after=self.joined)
        ready = (*self.joined, *self.tasks.last(self.rank, REDUCE))
        self.tasks.add(self.rank, REDUCE, 0.0, Label("gradients"), after=ready, key=("gradients", self.rank))

    def optimizer(self) -> None:
        """The optimizer's step, which the norm of all ranks' gradients precedes, and what else a step takes."""
        table = self.durations
        everyone = [self.tasks.promise(("gradients", rank)) for rank in range(self.order.num_ranks)]
        seconds, working = (each[self.rank] if each else 0.0 for each in (table.optimizer, table.optimizer_bytes))
        task = self.tasks.add(self.rank, COMPUTE, seconds, Label("optimizer"), after=everyone)
        self.holdings += [Holding(task, False, "optimizer", working), Holding(task, True, "optimizer", -working)]
        self.tasks.add(self.rank, COMPUTE, table.fixed, Label("fixed"))

    def _side_by_side(self, together: Sequence[Action]) -> None:
        """One action, or two whose segments take turns: the transfers of each run beside the compute of the other."""
        ends: list[int] = []
        for _ in zip_longest(*[self._action(action, ends) for action in together]):
            pass
        self.joined = tuple(ends)

    def _action(self, action: Action, ends: list[int]) -> Generator[None]:
        """An action's passes over the blocks of its stage, a yield after each segment."""
        joined = (*self.joined, *self._arrival(action))
        blocks = list(enumerate(self.durations.stages[action.stage]))
        for place, block in blocks if action.kind is Kind.FORWARD else reversed(blocks):
            joined = yield from self._pass(action, place, block, joined)
        self._deliver(action, joined)
        self.begun.add((action.kind, action.stage))
        ends.extend(joined)

    def _pass(self, action: Action, place: int, block: Block, joined: After) -> Generator[None, None, After]:
        """One pass over a block; returns what to wait for then."""
        joined = (*joined, *self._weights(action, place, block, joined))
        first: After = ()
        for segment in _segments(action.kind, block):
            joined = self._segment(segment, Label(segment.name, block.name, action), joined)
            first = first or joined
            yield
        if action.kind is not Kind.WEIGHT:
            self.passes.append(joined)
        last = max(joined, key=self.tasks.seconds.__getitem__)
        if action.kind in WEIGHTS:
            self._reduce(action, block, joined, last)
        self._hold(action, place, block, first[0], last)
        return joined

    def _hold(self, action: Action, place: int, block: Block, first: int, last: int) -> None:
        """Note what a pass takes when its first task starts, and gives back when its last ends."""
        again = any((kind, action.stage) in self.begun for kind in WEIGHTS)
        for at_end, item, amount in _held(action.kind, block, place == 0, again):
            self.holdings.append(Holding(last if at_end else first, at_end, item, amount))

    def _segment(self, segment: Segment, label: Label, after: After) -> After:
        """Compute and the transfer beside it."""
        made: After = ()
        if segment.compute or not segment.transfer:
            made = (self.tasks.add(self.rank, COMPUTE, segment.compute, label, after=after),)
        if segment.transfer:
            beside = segment.compute > 0
            made += self._transfer(segment.axis, segment.transfer, label, after=after, hinders=beside)
        return made

    def _transfer(
        self,
        stream: str,
        seconds: Seconds,
        label: Label,
        *,
        after: After = (),
        hinders: bool = True,
        key: object = None,
    ) -> After:
        """A transfer on its own stream; none where it takes no time."""
        if not seconds:
            return ()
        link = self.durations.links.get(DATA_PARALLEL if stream in (GATHER, REDUCE) else stream, "")
        return (self.tasks.add(self.rank, stream, seconds, label, after=after, link=link, hinders=hinders, key=key),)

    def _weights(self, action: Action, place: int, block: Block, joined: After) -> After:
        """What a pass waits for until its weights are there: gathered `prefetch` passes ahead, or after `joined`."""
        if action.kind is Kind.WEIGHT:
            return ()
        once: After = ()
        if block.gather_once and (Kind.FORWARD, action.stage) not in self.begun:
            once = (self.tasks.promise((GATHER, action.stage, place)),)
        seconds = block.gather if action.kind is Kind.FORWARD else block.gather_again
        after = self._passes_before(self.durations.prefetch) if block.ahead else joined
        gathered = self._transfer(GATHER, seconds, Label(GATHER, block.name, action), after=after)
        self.holdings += [Holding(task, False, "gather_buffers", block.gathered) for task in gathered]
        return once + gathered

    def _passes_before(self, ahead: int) -> After:
        """The end of the pass that is so many before the one that runs when the next begins to be prepared."""
        return self.passes[-1 - ahead] if len(self.passes) > ahead else ()

    def _reduce(self, action: Action, block: Block, after: After, last: int) -> None:
        """Gradients on their way while backward goes on; `last` is the task of a pass that ends last."""
        seconds = block.reduce
        if self.durations.overlap_gradients and action == self.last[action.stage]:
            seconds = seconds + block.reduce_once
        reduced = self._transfer(REDUCE, seconds, Label(REDUCE, block.name, action), after=after)
        until = reduced[-1] if reduced else last
        if block.reducing:
            self.holdings.append(Holding(last, False, "gather_buffers", block.reducing))
            self.holdings.append(Holding(until, True, "gather_buffers", -block.reducing))

    def _arrival(self, action: Action) -> After:
        """The tensor that an action works on: of the stage before (forward), or of the one behind (backward)."""
        if action.kind is Kind.WEIGHT or action.stage == (0 if action.kind is Kind.FORWARD else self.last_stage):
            return ()
        return (self.tasks.promise(_result(action, of=action.stage - _direction(action))),)

    def _deliver(self, action: Action, after: After) -> None:
        """Send an action's result to the stage that needs it next."""
        target = action.stage + _direction(action)
        if action.kind is Kind.WEIGHT or not 0 <= target <= self.last_stage:
            return
        away = self.order.rank_of[target] != self.rank
        stream = SEND_FORWARD if action.kind is Kind.FORWARD else SEND_BACKWARD
        self.tasks.add(
            self.rank,
            stream if away else "",
            self.durations.send * away,
            Label("send", action=action),
            after=after,
            link=self.durations.links.get(PIPELINE, "") if away else "",
            key=_result(action, of=action.stage),
        )


def pairs(actions: Sequence[Action]) -> list[list[Action]]:
    """Actions in order, each alone or with the one that starts together with it."""
    grouped: list[list[Action]] = []
    for action in actions:
        if action.paired:
            grouped[-1].append(action)
        else:
            grouped.append([action])
    return grouped


def _direction(action: Action) -> int:
    return 1 if action.kind is Kind.FORWARD else -1


def _result(action: Action, *, of: int) -> tuple[int, int, int]:
    """Key of what a stage hands on of a micro-batch: activations or their gradients."""
    return (_direction(action), of, action.microbatch)


@lru_cache(maxsize=4096)
def _segments(kind: Kind, block: Block) -> tuple[Segment, ...]:
    """What a pass over a block runs: at least one segment, if an empty one."""
    by_kind = {
        Kind.FORWARD: block.forward,
        Kind.BACKWARD: block.backward + block.weight,
        Kind.INPUT: block.backward,
        Kind.WEIGHT: block.weight,
    }
    return tuple(each for each in by_kind[kind] if each.compute or each.transfer) or (Segment("nothing"),)


@lru_cache(maxsize=4096)
def _held(kind: Kind, block: Block, first: bool, again: bool) -> list[tuple[bool, str, float]]:
    """What a pass over a block takes and gives back: whether at its end, item, bytes.

    `first` says that it is the first block of its stage, `again` that the stage has had gradients of weights before. A
    micro-batch is in flight from its forward's start to the end of its gradients of weights.
    """
    changes = []
    until_forward = block.gathered * (block.gather > 0) * (block.gather_again > 0)
    until_backward = block.gathered * (block.gather > 0 or block.gather_again > 0)
    if kind is Kind.FORWARD:
        changes += [
            (False, IN_FLIGHT, 1.0 * first),
            (False, "activations", block.kept),
            (False, "logits", block.logits),
        ]
        changes.append((True, "gather_buffers", -until_forward))
    if kind in (Kind.BACKWARD, Kind.INPUT):
        changes += [(False, "activations", block.working), (True, "activations", -block.working)]
        changes += [(True, "logits", -block.logits), (True, "gather_buffers", -until_backward)]
    if kind in WEIGHTS:
        left = block.gradients * (not again)
        changes += [(True, "gradients", left), (True, RESERVE, -left)]
        changes += [(True, "activations", -block.kept), (True, IN_FLIGHT, -1.0 * first)]
    return [change for change in changes if change[2]]
