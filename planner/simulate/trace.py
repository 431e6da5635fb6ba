"""A step as a trace that Perfetto and chrome://tracing open: slices, arrows and counters in the Trace Event Format.

The format: "Trace Event Format", The Chromium Authors; what Perfetto makes of it: `src/trace_processor/importers/json`
and `importers/common/flow_tracker.cc` in google/perfetto.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from planner.quantities import GIB, Column
from planner.simulate.actions import Action, Kind
from planner.simulate.memory_file import moments
from planner.simulate.simulation import SENDS, Simulation
from planner.simulate.step import GATHER, REDUCE, SEND_BACKWARD, SEND_FORWARD, Label
from planner.simulate.tasks import COMPUTE
from planner.simulate.text_files import write_parts

Event = dict[str, Any]

TICKS = 8
"""Times are whole eighths of a microsecond: exact as binary fractions, and whole nanoseconds where a reader counts in
those, so that slices that meet do not overlap."""
STREAMS = {
    COMPUTE: "compute",
    "tp": "tp collectives",
    "head": "tp collectives of the head",
    "cp": "cp exchange",
    "ep": "ep all-to-all",
    GATHER: "gather of weights",
    REDUCE: "reduction of gradients",
    SEND_FORWARD: "send to the next stage",
    SEND_BACKWARD: "send to the stage before",
}
"""Names of the streams' tracks, from top to bottom; others follow."""
PASSES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT: "gradients of inputs",
    Kind.WEIGHT: "gradients of weights",
}
TRANSFER, STEP, SEND = "transfer", "step", "send"
"""Categories of slices beside the passes, and of arrows."""
AT_ONCE = 4096
"""Events that are turned into text together."""


def chrome_trace(simulation: Simulation) -> dict[str, Any]:
    """The trace as a JSON object: `pid` is the pipeline rank, `tid` the stream, times are in microseconds."""
    return _head(simulation) | {"traceEvents": list(_events(simulation))}


def write_trace(path: Path, simulation: Simulation) -> None:
    """Write the trace, compressed where the name ends in .gz; a long one is never in memory as a whole.

    Raises FileFormatError where it cannot be written.
    """
    write_parts(path, _text(simulation))


def _text(simulation: Simulation) -> Iterator[str]:
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    yield encode(_head(simulation))[:-1] + ',"traceEvents":[\n'
    events, before = _events(simulation), ""
    while some := list(islice(events, AT_ONCE)):
        yield before + encode(some)[1:-1]
        before = ",\n"
    yield "\n]}\n"


def _head(simulation: Simulation) -> dict[str, Any]:
    about = {"schedule": simulation.durations.schedule, "makespan_s": simulation.makespan}
    return {"displayTimeUnit": "ms", "otherData": about}


def _events(simulation: Simulation) -> Iterator[Event]:
    """All events. Arrows follow the slices: where times are equal, Perfetto takes events in the order of the file."""
    slices = _Slices(simulation)
    yield from _names(simulation, slices)
    yield from slices.events()
    yield from slices.arrows()
    for rank in range(simulation.order.num_ranks):
        yield from _counters(simulation, rank)


class _Slices:
    """The tasks that take time, as slices and the arrows between them."""

    def __init__(self, simulation: Simulation) -> None:
        self.tasks, self.num_ranks = simulation.step.tasks, simulation.order.num_ranks
        self.start, end = _microseconds(simulation.played.start), _microseconds(simulation.played.end)
        self.length = end - self.start
        self.shown = np.flatnonzero(self.length > 0)
        used = {self.tasks.stream[task] for task in self.shown.tolist()}
        self.thread = {name: number for number, name in enumerate([*STREAMS, *sorted(used - STREAMS.keys())], start=1)}

    def events(self) -> Iterator[Event]:
        """Complete events in the order of time."""
        tasks = self.tasks
        in_order = self.shown[np.argsort(self.start[self.shown], kind="stable")]
        starts, lengths = self.start[in_order].tolist(), self.length[in_order].tolist()
        for task, start, length in zip(in_order.tolist(), starts, lengths, strict=True):
            label, stream = tasks.label[task], tasks.stream[task]
            assert isinstance(label, Label)
            yield {
                "ph": "X",
                "name": str(label),
                "cat": _category(stream, label),
                "pid": tasks.rank[task],
                "tid": self.thread[stream],
                "ts": start,
                "dur": length,
                "args": _arguments(label),
            }

    def arrows(self) -> Iterator[Event]:
        """Flow events from what is sent to what it is for, which starts later."""
        for number, (source, target) in enumerate(self._pairs(), start=1):
            flow = {"cat": SEND, "name": SEND, "id": number}
            # Just before the end of the slice: there it is on top in any reader, and the arrow is short.
            leaves = float(self.start[source] + self.length[source] - 1 / TICKS)
            yield {"ph": "s", **flow, **self._place(source), "ts": leaves}
            yield {"ph": "f", "bp": "e", **flow, **self._place(target), "ts": float(self.start[target])}

    def _place(self, task: int) -> Event:
        return {"pid": self.tasks.rank[task], "tid": self.thread[self.tasks.stream[task]]}

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Each send between ranks, or what made the result where a send takes no time, and what it is for."""
        first: dict[object, int] = {}
        last: dict[object, int] = {}
        tasks = self.tasks
        for task in self.shown.tolist():
            action = _action(tasks.label[task])
            if action and tasks.stream[task] not in (GATHER, REDUCE, *SENDS):
                first.setdefault(_work(action), task)
                last[_work(action)] = task
        for task, stream in enumerate(tasks.stream):
            action = _action(tasks.label[task]) if stream in SENDS else None
            if action:
                source = task if self.length[task] > 0 else last.get(_work(action))
                target = first.get(_work(action, after=1))
                if source is not None and target is not None:
                    yield source, target


def _names(simulation: Simulation, slices: _Slices) -> Iterator[Event]:
    """Metadata events: what processes and threads are called, and their order."""
    used = {(slices.tasks.rank[task], slices.tasks.stream[task]) for task in slices.shown.tolist()}
    for rank in range(simulation.order.num_ranks):
        stages = [str(stage) for stage, owner in enumerate(simulation.order.rank_of) if owner == rank]
        labels = f"stage{'s' * (len(stages) > 1)} {', '.join(stages)}"
        yield _metadata(rank, 1, "process_name", {"name": f"pipeline rank {rank}"})
        yield _metadata(rank, 1, "process_labels", {"labels": labels})
        yield _metadata(rank, 1, "process_sort_index", {"sort_index": rank})
        for stream, thread in slices.thread.items():
            if (rank, stream) in used:
                yield _metadata(rank, thread, "thread_name", {"name": STREAMS.get(stream, stream or "transfers")})
                yield _metadata(rank, thread, "thread_sort_index", {"sort_index": thread})


def _metadata(rank: int, thread: int, name: str, arguments: Event) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": arguments}


def _counters(simulation: Simulation, rank: int) -> Iterator[Event]:
    """Counter events: what a rank holds by item, in GiB, and micro-batches in flight."""
    timeline = simulation.memory[rank]
    chosen = moments(timeline)
    items = {name: np.round(item[chosen] / GIB, 6).tolist() for name, item in timeline.items.items() if item.any()}
    times, in_flight = _microseconds(timeline.seconds[chosen]).tolist(), timeline.in_flight[chosen].tolist()
    event = {"ph": "C", "pid": rank, "tid": 1}
    for place, time in enumerate(times):
        held = {name: values[place] for name, values in items.items()}
        if held:
            yield event | {"name": "memory (GiB)", "ts": time, "args": held}
        if not place or in_flight[place] != in_flight[place - 1]:
            yield event | {"name": "micro-batches", "ts": time, "args": {"in flight": in_flight[place]}}


def _microseconds(seconds: Column) -> Column:
    return np.rint(seconds * 1e6 * TICKS) / TICKS


def _action(label: object) -> Action | None:
    return label.action if isinstance(label, Label) else None


def _work(action: Action, *, after: int = 0) -> object:
    """What is done with which micro-batch on which stage, or on the one so many further on the way."""
    way = {Kind.FORWARD: 1, Kind.WEIGHT: 0}.get(action.kind, -1)
    return way, action.stage + after * way, action.microbatch


def _category(stream: str, label: Label) -> str:
    if stream != COMPUTE:
        return TRANSFER
    return PASSES[label.action.kind] if label.action else STEP


def _arguments(label: Label) -> Event:
    """What a reader sees of a slice that is selected."""
    said: Event = {"segment": label.name}
    if label.block:
        said["block"] = label.block
    if label.action:
        action = label.action
        said |= {"pass": PASSES[action.kind], "stage": action.stage, "microbatch": action.microbatch}
    return said
