"""Schedules in the shape of a V: two stages a rank, the data flows down the ranks and up again.

Rank r of p has stages r (chunk 0) and 2p-1-r (chunk 1), so the last rank hands on to itself, and the first rank, where
the loss is, starts the backwards. A rank's program is written as a row of passes: `F0` is the next forward of chunk 0,
`F0+B1` one that starts together with the next backward of chunk 1; micro-batches follow by counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from planner.errors import SpecError
from planner.simulate.actions import Action, Kind, Order, check_counts

CHUNKS = 2


def zb_v(ranks: int, microbatches: int) -> Order:
    """ZB-V: no rank waits once it has started, if F, I and W take equally long and m is at least 2p-1.

    Each rank holds p micro-batches at most. Fewer than 2p-1 take their places in the order of 2p-1. Source: Qi et al.
    2024 (arXiv 2401.10241), section 6; the order is that of torch (2.13).
    """
    check_counts(ranks, microbatches, CHUNKS)
    full = max(microbatches, 2 * ranks - 1)
    order = (_numbered(_zb_v_program(rank, ranks, full), rank, ranks) for rank in range(ranks))
    return _v_order(tuple(tuple(each for each in actions if each.microbatch < microbatches) for actions in order))


def _zb_v_program(rank: int, ranks: int, microbatches: int) -> str:
    behind = ranks - rank
    return (
        "F0 " * (2 * behind - 1)
        + "F1 F0 " * rank
        + "F1 I1 W1 " * behind
        + "F0 I0 W0 F1 I1 W1 " * (microbatches - ranks - behind + 1)
        + "I0 W0 F1 I1 W1 " * (behind - 1)
        + "I0 I1 " * rank
        + "I0 W0 " * behind
        + "W1 " * rank
        + "W0 " * rank
    )


def dual_pipe_v(ranks: int, microbatches: int) -> Order:
    """DualPipe-V: a forward of one chunk runs beside a backward of the other, so that each hides the other's exchange.

    Source: DeepSeek-AI 2024 (arXiv 2412.19437) and its DualPipe repository; the order is that of torch (2.13). Needs
    2p micro-batches: raises SpecError for fewer.
    """
    check_counts(ranks, microbatches, CHUNKS)
    if microbatches < 2 * ranks:
        raise SpecError(f"dualpipe-v with {microbatches} micro-batches on {ranks} ranks; it needs at least {2 * ranks}")
    programs = (_dual_pipe_v_program(rank, ranks, microbatches) for rank in range(ranks))
    return _v_order(tuple(tuple(_numbered(program, rank, ranks)) for rank, program in enumerate(programs)))


def _dual_pipe_v_program(rank: int, ranks: int, microbatches: int) -> str:
    behind = ranks - 1 - rank
    main = "F0+B1 F1+B0 " * (microbatches - ranks - behind)
    if behind == 0:
        # The last rank has no other rank to wait for at its first backward: apart, it comes sooner.
        main = main.replace("+", " ", 1)
    # At the end backwards go through the chunks by turns, whole at first, then with gradients of weights put off.
    last = "10" * (rank + 1)
    whole, split = last[: rank + 1], last[rank + 1 :]
    put_off = split + "0" * behind
    return (
        "F0 " * (2 * behind)
        + "F0 F1 " * (rank + 1)
        + "I1 W1 F1 " * behind
        + main
        + "B1 F1+B0 " * behind
        + "".join(f"B{chunk} " for chunk in whole)
        + "".join(f"I{chunk} " for chunk in split)
        + "".join(f"W{chunk} I0 " for chunk in put_off[:behind])
        + "".join(f"W{chunk} " for chunk in put_off[behind:])
    )


def _v_order(actions: tuple[tuple[Action, ...], ...]) -> Order:
    ranks = range(len(actions))
    return Order(actions, (*ranks, *reversed(ranks)))


def _numbered(program: str, rank: int, ranks: int) -> Iterator[Action]:
    """The actions that a program's passes are: each the next micro-batch of its kind and chunk."""
    stages = {"0": rank, "1": 2 * ranks - 1 - rank}
    done: Counter[str] = Counter()
    for together in program.split():
        for place, step in enumerate(together.split("+")):
            kind, chunk = Kind(step[0]), step[1]
            parts = "IW" if kind is Kind.BACKWARD else kind
            yield Action(kind, stages[chunk], done[parts[0] + chunk], paired=place > 0)
            for part in parts:
                done[part + chunk] += 1
