"""A schedule of one's own as text: the CSV of actions that torch.distributed.pipelining reads and writes.

A line is a rank, a cell an action: stage, `F`, `B`, `I` or `W`, micro-batch. Cells are done from left to right; an
empty one is left out, since when an action starts follows from what it waits for. A forward and a backward that start
together are one cell, as in `(0F1;3B0)OVERLAP_F_B`. Communication, which torch writes into its other form (`0SEND_F1`,
`2UNSHARD`), is left out too: it follows from the order of the rest. `#` starts a comment and blank lines are no rank;
torch knows neither, so none is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from planner.errors import FileFormatError, SpecError
from planner.simulate.actions import Action, Kind, Order

ACTION = re.compile(r"([0-9]{1,7})([FBIW])([0-9]{1,7})")
TOGETHER = re.compile(r"\(([^;]*);([^;]*)\)\s*OVERLAP_F_B")
COMMUNICATION = re.compile(r"[0-9]+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)[0-9]*")


def read_order(path: Path) -> Order:
    """The order in a file. Raises FileFormatError where it cannot be read or is none."""
    try:
        return parse_order(path.read_text(encoding="utf-8-sig"), where=str(path))
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise FileFormatError("is not UTF-8 text", where=str(path)) from error


def parse_order(text: str, *, where: str = "schedule") -> Order:
    r"""The order that `text` says; a stage is on the rank whose line names it.

    Raises FileFormatError, with line and cell where one is at fault, if this is no complete schedule.

    >>> parse_order("0F0, 0F1,, 0B0, 0B1\n 1F0, 1B0, 1F1, 1B1  # the last stage").rank_of
    (0, 1)
    """
    actions: list[tuple[Action, ...]] = []
    rank_of: dict[int, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.partition("#")[0]
        if cells.strip():
            place = f"{where}, line {number}"
            actions.append(tuple(_actions(cells, rank_of, rank=len(actions), place=place)))
    missing = next((stage for stage in range(len(rank_of)) if stage not in rank_of), None)
    if missing is not None:
        raise FileFormatError(f"stage {missing} is missing; stages count from 0 to {max(rank_of)}", where=where)
    try:
        return Order(tuple(actions), tuple(rank_of[stage] for stage in range(len(rank_of))))
    except SpecError as error:
        raise FileFormatError(str(error), where=where) from error


def order_text(order: Order) -> str:
    """The inverse of `parse_order`, which torch reads too."""
    return "".join(f"{','.join(_cells(actions))}\n" for actions in order.actions)


def _actions(line: str, rank_of: dict[int, int], *, rank: int, place: str) -> Iterator[Action]:
    """The actions of a line; notes in `rank_of` which stages they are on."""
    for number, cell in enumerate(line.split(","), 1):
        for action in _cell(cell.strip(), where=f"{place}, cell {number}"):
            if rank_of.setdefault(action.stage, rank) != rank:
                raise FileFormatError(
                    f"{action} on rank {rank}, but stage {action.stage} is on rank {rank_of[action.stage]}",
                    where=f"{place}, cell {number}",
                )
            yield action


def _cell(cell: str, *, where: str) -> tuple[Action, ...]:
    """The action of a cell, the two of it, or none."""
    if not cell or COMMUNICATION.fullmatch(cell):
        return ()
    together = TOGETHER.fullmatch(cell)
    found = [ACTION.fullmatch(part.strip()) for part in (together.groups() if together else (cell,))]
    actions = [Action(Kind(each[2]), int(each[1]), int(each[3])) for each in found if each]
    if len(actions) < len(found):
        raise FileFormatError(
            f"{cell[:40]!r} is no action; right is stage, F, B, I or W, micro-batch, as 3F0, or (0F1;3B0)OVERLAP_F_B",
            where=where,
        )
    return (actions[0], *(action._replace(paired=True) for action in actions[1:]))


def _cells(actions: tuple[Action, ...]) -> list[str]:
    cells: list[str] = []
    for action in actions:
        if action.paired:
            cells[-1] = f"({cells[-1]};{action})OVERLAP_F_B"
        else:
            cells.append(str(action))
    return cells
