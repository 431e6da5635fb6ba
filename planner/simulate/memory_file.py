"""What every rank holds over time, as JSON: only what changes, and of a long time as much as a drawing shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from planner.quantities import Column, Count
from planner.simulate.actions import Kind
from planner.simulate.memory import Timeline
from planner.simulate.simulation import Simulation
from planner.simulate.text_files import write_parts

SCHEMA_VERSION = 1
COLUMNS = 1000
"""Intervals of time of each of which the first, the last, the lowest and the highest moment are kept."""


def memory_over_time(simulation: Simulation) -> dict[str, Any]:
    """What `write_memory` writes: by rank the moments at which something changes, and bytes by item from then on."""
    return _head(simulation) | {"ranks": list(_ranks(simulation))}


def write_memory(path: Path, simulation: Simulation) -> None:
    """Write a rank on a line, compressed where the name ends in .gz. Raises FileFormatError if it cannot be written."""
    write_parts(path, _text(simulation))


def _text(simulation: Simulation) -> Iterator[str]:
    encode = json.JSONEncoder(allow_nan=False).encode
    yield encode(_head(simulation))[:-1] + ', "ranks": ['
    before = "\n"
    for rank in _ranks(simulation):
        yield before + encode(rank)
        before = ",\n"
    yield "\n]}\n"


def _head(simulation: Simulation) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "makespan_s": simulation.makespan}


def _ranks(simulation: Simulation) -> Iterator[dict[str, Any]]:
    for rank, timeline in enumerate(simulation.memory):
        changes = moments(timeline)
        kept = outline(timeline, changes, COLUMNS)
        yield {
            "rank": rank,
            "peak": _peak(timeline),
            "moments_left_out": len(changes) - len(kept),
            "time_s": timeline.seconds[kept].tolist(),
            "in_flight": timeline.in_flight[kept].tolist(),
            "items_bytes": {name: _whole(item[kept]) for name, item in timeline.items.items() if item.any()},
        }


def _peak(timeline: Timeline) -> dict[str, Any]:
    """When a rank is fullest, what made it so, and what it holds then."""
    return {
        "time_s": float(timeline.seconds[timeline.fullest]),
        "bytes": round(timeline.peak),
        "cause": cause(timeline),
        "in_flight": float(timeline.in_flight[timeline.fullest]),
        "items_bytes": {name: round(held) for name, held in timeline.at_peak().items() if held},
    }


PASSES: Mapping[Kind, str] = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT: "gradients of inputs",
    Kind.WEIGHT: "gradients of weights",
}


def cause(timeline: Timeline) -> str:
    """What made a rank fullest, in words."""
    label = timeline.causes[timeline.fullest]
    if label is None:
        return "what the step starts with"
    what = " ".join(dict.fromkeys(part for part in (label.block, label.name) if part))
    if label.action is None:
        return what
    kind, stage, microbatch, _ = label.action
    return f"{PASSES[kind]} of micro-batch {microbatch} on stage {stage}: {what}"


def moments(timeline: Timeline) -> Column:
    """Places of the changes that a reader sees: the last at each time, where it makes a difference.

    The peak is among them: what is given back at the same time comes first.
    """
    last = np.flatnonzero(np.append(np.diff(timeline.seconds) > 0, True))
    held = np.stack([timeline.in_flight, *timeline.items.values()])[:, last]
    differs = np.append(True, (np.diff(held) != 0).any(axis=0))
    return last[differs]


def outline(timeline: Timeline, chosen: Column, columns: Count) -> Column:
    """Of changes at `chosen` places those that a drawing so many columns wide shows: all, where they are few.

    The first, the last, the lowest and the highest of each interval of time draw the same line as all of them do (M4,
    Jugel et al., VLDB 2014).
    """
    if len(chosen) <= 4 * columns:
        return chosen
    times, total = timeline.seconds[chosen], timeline.total[chosen]
    edges = np.searchsorted(times, np.linspace(0.0, times[-1], columns + 1)[1:-1])
    kept = set()
    for begin, end in pairwise([0, *edges.tolist(), len(chosen)]):
        if begin < end:
            part = total[begin:end]
            kept |= {begin, begin + int(part.argmin()), begin + int(part.argmax()), end - 1}
    return chosen[sorted(kept)]


def _whole(held: Column) -> list[int]:
    return np.rint(held).astype(np.int64).tolist()
