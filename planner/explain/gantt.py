"""A step as a drawing of characters: a row for each pipeline rank, time from left to right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
from rich.text import Text

from planner.quantities import Column, Count, Scalar, Seconds, format_seconds
from planner.simulate.actions import Kind
from planner.simulate.simulation import SENDS, Simulation
from planner.simulate.step import Label
from planner.simulate.tasks import COMPUTE


@dataclass(frozen=True)
class Mark:
    """Characters for one thing that a rank does, what they mean, and in which colour they stand.

    A pass takes the character at the last digit of its micro-batch's number where there are ten.
    """

    glyphs: str
    words: str
    style: str
    kinds: tuple[Kind, ...] = ()


OTHER = Mark("#", "optimizer and the rest", "magenta")
EXPOSED = Mark("~", "waits for a transfer", "red")
IDLE = Mark(".", "idle", "dim")
MIXED = Mark("=", "forward and backward in turn", "cyan")
REST = (MIXED, EXPOSED, IDLE)
NUMBERED = (
    Mark("0123456789", "forward (last digit of micro-batch)", "green", (Kind.FORWARD,)),
    Mark("abcdefghij", "backward (a for 0)", "bold blue", (Kind.BACKWARD, Kind.INPUT)),
    Mark("ABCDEFGHIJ", "gradients of weights (A for 0)", "yellow", (Kind.WEIGHT,)),
    OTHER,
)
"""Marks of what a rank computes."""
PLAIN = (
    Mark("F", "forward", "green", (Kind.FORWARD,)),
    Mark("B", "backward", "bold blue", (Kind.BACKWARD, Kind.INPUT)),
    Mark("W", "gradients of weights", "yellow", (Kind.WEIGHT,)),
    OTHER,
)
"""The same where a cell is longer than a pass."""
BOTH: Scalar = 0.2
"""Share of a cell's compute from which on neither forward nor backward stands for all of it."""
NARROWEST = 40
MOST_ROWS = 32


def gantt(simulation: Simulation, width: Count, *, most_rows: Count = MOST_ROWS) -> Text:
    """The step in lines of `width` columns (40 at least), with a scale, a legend and colours.

    Each character shows whether a rank computed, waited for a transfer or was idle for most of the time, and what it
    computed most. Of more than `most_rows` ranks some are drawn, evenly spaced.
    """
    ranks = _drawn(simulation.order.num_ranks, most_rows)
    margin = len(f"rank {ranks[-1]} ")
    cells = max(width, NARROWEST) - margin
    length = (simulation.makespan or 1.0) / cells
    marks = NUMBERED if _legible(simulation, length) else PLAIN
    rows = _rows(simulation, ranks, cells, marks)
    drawing = Text(no_wrap=True).append(" " * margin + _scale(simulation.makespan, cells) + "\n", "dim")
    for rank, row in zip(ranks, rows, strict=True):
        drawing.append(f"rank {rank}".ljust(margin))
        for style, part in groupby(row, partial(_style, marks=marks)):
            drawing.append("".join(part), style)
        drawing.append("\n")
    notes = [*_legend(rows, marks), f"a character is {format_seconds(length)}"]
    if len(ranks) < simulation.order.num_ranks:
        notes.append(f"{len(ranks)} of {simulation.order.num_ranks} ranks, evenly spaced")
    return drawing.append(_wrapped(notes, margin + cells), "dim")


def _drawn(num_ranks: Count, most: Count) -> list[int]:
    """Ranks to draw: all, or so many, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, num_ranks - 1, min(num_ranks, max(most, 2)))})


def _legible(simulation: Simulation, length: Seconds) -> bool:
    """Whether a pass takes a cell or more, on average."""
    passes = sum(len(actions) for actions in simulation.order.actions)
    return sum(rank.busy for rank in simulation.ranks) >= length * passes


def _rows(simulation: Simulation, ranks: Sequence[int], cells: Count, marks: Sequence[Mark]) -> list[str]:
    """A character for each cell of each rank."""
    tasks, (start, end) = simulation.step.tasks, (simulation.played.start, simulation.played.end)
    owner, streams = np.array(tasks.rank), np.array(tasks.stream)
    sent = np.isin(streams, SENDS)
    codes = np.where(streams == COMPUTE, _codes(tasks.label, marks), -1)
    length = (simulation.makespan or 1.0) / cells
    rows = []
    for rank in ranks:
        mine = np.flatnonzero((owner == rank) & ~sent)
        computed = np.zeros((sum(len(mark.glyphs) for mark in marks), cells))
        for code in set(codes[mine].tolist()) - {-1}:
            chosen = mine[codes[mine] == code]
            computed[code] = _in_cells(start[chosen], end[chosen], cells, length)
        rows.append(_row(computed, _in_cells(start[mine], end[mine], cells, length), length, marks))
    return rows


def _row(computed: Column, active: Column, length: Seconds, marks: Sequence[Mark]) -> str:
    """Characters from the seconds of each cell: by what is computed, and all that a rank is at work."""
    busy = computed.sum(axis=0)
    glyphs = np.array(list("".join(mark.glyphs for mark in marks)))[computed.argmax(axis=0)]
    if marks is PLAIN:
        forward = computed[0]
        glyphs = np.where((forward >= BOTH * busy) & (forward <= (1 - BOTH) * busy), MIXED.glyphs, glyphs)
    state = np.argmax([busy, active - busy, length - active], axis=0)
    return "".join(np.choose(state, [glyphs, EXPOSED.glyphs, IDLE.glyphs]))


def _codes(labels: Sequence[object], marks: Sequence[Mark]) -> list[int]:
    """The place of each task's character among those of all marks."""
    glyphs = {kind: mark.glyphs for mark in marks for kind in mark.kinds}
    place = {glyph: number for number, glyph in enumerate("".join(mark.glyphs for mark in marks))}
    codes = []
    for label in labels:
        action = label.action if isinstance(label, Label) else None
        said = glyphs[action.kind] if action else OTHER.glyphs
        codes.append(place[said[action.microbatch % len(said) if action else 0]])
    return codes


def _in_cells(start: Column, end: Column, cells: Count, length: Seconds) -> Column:
    """Seconds of each cell that the union of intervals covers."""
    by_start = np.argsort(start, kind="stable")
    start, latest = start[by_start], np.maximum.accumulate(end[by_start])
    # An interval adds what reaches beyond all before it.
    begins = np.maximum(start, np.concatenate([[0.0], latest[:-1]]))
    times = np.stack([begins, np.maximum(latest, begins)], axis=1).ravel()
    covered = np.cumsum(np.diff(times, prepend=0.0) * (np.arange(len(times)) % 2))
    edges = np.arange(cells + 1) * length
    return np.diff(np.interp(edges, np.append(0.0, times), np.append(0.0, covered)))


def _style(glyph: str, marks: Sequence[Mark]) -> str:
    return next(mark.style for mark in (*marks, *REST) if glyph in mark.glyphs)


def _scale(makespan: Seconds, cells: Count) -> str:
    """The step's start, middle and end above the cells."""
    middle, end = f"|{format_seconds(makespan / 2)}", f"{format_seconds(makespan)}|"
    return f"{'|0'.ljust(cells // 2)}{middle.ljust(cells - cells // 2 - len(end))}{end}"


def _legend(rows: Sequence[str], marks: Sequence[Mark]) -> list[str]:
    """What the characters mean that occur."""
    used = set("".join(rows))
    named = ((mark, mark.glyphs) for mark in (*marks, *REST) if used & set(mark.glyphs))
    return [f"{glyphs if len(glyphs) == 1 else f'{glyphs[0]}-{glyphs[-1]}'} {mark.words}" for mark, glyphs in named]


def _wrapped(notes: Sequence[str], width: Count) -> str:
    """Notes in lines, none broken that fits into one."""
    kept_together = "; ".join(note.replace(" ", "\N{NO-BREAK SPACE}") for note in notes)
    return textwrap.fill(kept_together, width, break_on_hyphens=False).replace("\N{NO-BREAK SPACE}", " ")
