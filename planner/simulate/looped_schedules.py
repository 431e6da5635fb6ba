"""Schedules whose stages go round the ranks: stage s is on rank s mod p.

p ranks, m micro-batches, v chunks (stages a rank). All are written from the idea of the source named; tests hold each
to what torch.distributed.pipelining (2.13) does where it has the same schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from planner.simulate.actions import Action, Kind, Order, check_counts


def gpipe(ranks: int, microbatches: int) -> Order:
    """All forwards, then all backwards. Source: Huang et al. 2019 (GPipe, arXiv 1811.06965)."""
    both = (Kind.FORWARD, Kind.BACKWARD)
    return _looped(
        ranks, microbatches, 1, lambda rank: (Action(kind, rank, i) for kind in both for i in range(microbatches))
    )


def one_f_one_b(ranks: int, microbatches: int) -> Order:
    """1F1B: a rank is ahead by one forward for each rank behind it, then does a forward and a backward by turns.

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2. torch refuses m < p; here all forwards come first
    on the ranks that have no more, as in Megatron-LM.
    """
    return _looped(ranks, microbatches, 1, lambda rank: _depth_first(rank, ranks, microbatches, ahead=ranks - 1 - rank))


def interleaved(ranks: int, microbatches: int, chunks: int = 2) -> Order:
    """Interleaved 1F1B: groups of micro-batches go through all chunks of a rank before the next group comes.

    Groups are of `group_size`. A rank is ahead by a group for each chunk but the last, and by two forwards for each
    rank behind it. Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; warm-up as in Megatron-LM's
    core/pipeline_parallel/schedules.py and in torch.
    """
    return _looped(
        ranks,
        microbatches,
        chunks,
        lambda rank: _depth_first(rank, ranks, microbatches, chunks, ahead=2 * (ranks - 1 - rank)),
    )


def looped_bfs(ranks: int, microbatches: int, chunks: int = 2) -> Order:
    """Breadth first: all micro-batches go through a chunk before the next chunk starts; backwards last in, first out.

    Source: Lamy-Poirier 2022 (arXiv 2211.05953).
    """
    return _looped(ranks, microbatches, chunks, lambda rank: _breadth_first(rank, ranks, microbatches, chunks))


def zb_h1(ranks: int, microbatches: int) -> Order:
    """Zero bubble H1: 1F1B whose gradients of weights wait, on rank r for r more backwards.

    Source: Qi et al. 2024 (arXiv 2401.10241), section 3.
    """
    return interleaved_zero_bubble(ranks, microbatches, 1)


def interleaved_zero_bubble(ranks: int, microbatches: int, chunks: int = 2) -> Order:
    """The same with several chunks: interleaved, but ahead by only one forward for each rank behind.

    Source: the order that torch calls ZB1P, after Qi et al. 2024 (arXiv 2401.10241). Groups are of `group_size`.
    """

    def program(rank: int) -> Iterator[Action]:
        order = _depth_first(rank, ranks, microbatches, chunks, ahead=ranks - 1 - rank)
        return _weights_apart(order, delay=rank)

    return _looped(ranks, microbatches, chunks, program)


def group_size(ranks: int, microbatches: int) -> int:
    """Micro-batches that go through a chunk in a row: the fewest, at least p, that leave no group of fewer than p.

    Just p where m is a multiple of it, and m where that is less than p. In a shorter group a micro-batch comes back
    to the first rank too late, and the usual warm-up then even deadlocks for some v > 2 (p = 4, m = 9), which is why
    Megatron-LM refuses it. Megatron takes multiples of p, and this size as microbatch_group_size_per_vp_stage for
    all other m above p. torch takes m only where m // p equal groups are possible; their size is the same.

    >>> [group_size(4, m) for m in (3, 8, 9, 10, 14)]
    [3, 4, 5, 5, 5]
    """
    sizes = (size for size in range(ranks, microbatches) if microbatches % size == 0 or microbatches % size >= ranks)
    return next(sizes, microbatches)


def _looped(ranks: int, microbatches: int, chunks: int, program: Callable[[int], Iterable[Action]]) -> Order:
    """The order in which each rank follows its `program`."""
    check_counts(ranks, microbatches, chunks)
    return Order(
        tuple(tuple(program(rank)) for rank in range(ranks)), tuple(stage % ranks for stage in range(ranks * chunks))
    )


def _depth_first(rank: int, ranks: int, microbatches: int, chunks: int = 1, *, ahead: int) -> list[Action]:
    """Forwards and backwards by turns, forwards `ahead`, and one group more for each chunk but the last."""
    size = group_size(ranks, microbatches)
    groups = [range(first, min(first + size, microbatches)) for first in range(0, microbatches, size)]
    stages = range(rank, ranks * chunks, ranks)
    forwards = [Action(Kind.FORWARD, stage, i) for group in groups for stage in stages for i in group]
    backwards = [Action(Kind.BACKWARD, stage, i) for group in groups for stage in reversed(stages) for i in group]
    warm_up = min((chunks - 1) * size + ahead, len(forwards))
    turns = [action for pair in zip(forwards[warm_up:], backwards, strict=False) for action in pair]
    return forwards[:warm_up] + turns + backwards[len(forwards) - warm_up :]


def _breadth_first(rank: int, ranks: int, microbatches: int, chunks: int) -> Iterator[Action]:
    forwards = [(stage, i) for stage in range(rank, ranks * chunks, ranks) for i in range(microbatches)]
    yield from (Action(Kind.FORWARD, *place) for place in forwards)
    yield from (Action(Kind.BACKWARD, *place) for place in reversed(forwards))


def _weights_apart(actions: Iterable[Action], *, delay: int) -> Iterator[Action]:
    """Backwards in two parts, gradients of weights `delay` backwards behind those of inputs."""
    waiting: deque[Action] = deque()
    for action in actions:
        if action.kind is Kind.FORWARD:
            yield action
            continue
        yield action._replace(kind=Kind.INPUT)
        waiting.append(action._replace(kind=Kind.WEIGHT))
        if len(waiting) > delay:
            yield waiting.popleft()
    yield from waiting
