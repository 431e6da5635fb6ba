"""Steps of a profiler's trace: how long each took, and what the device (or the processor) did in it."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.dumps.intervals import Intervals
from planner.dumps.kineto import DEVICE_KINDS, Event, Trace
from planner.quantities import Count, Seconds

MOST_STEPS = 1000
"""Steps of a trace that are looked at, the first ones."""
STEP = re.compile(r"ProfilerStep#(\d{1,9})\Z")
COLLECTIVES = {
    "all_reduce": ("allreduce",),
    "reduce_scatter": ("reducescatter",),
    "all_gather": ("allgather",),
    "all_to_all": ("alltoall",),
    "send_recv": ("sendrecv", "send", "recv"),
    "broadcast": ("broadcast",),
    "reduce": ("reduce",),
    "barrier": ("barrier",),
}
"""Collective -> how kernels of NCCL and RCCL, and annotations of gloo, spell it without underlines, longest first."""
ATTENTION = re.compile(r"flash|fmha|attention|attn|sdpa", re.IGNORECASE)
MATMUL = re.compile(
    r"gemm|cutlass|nvjet|matmul|cijk_|splitk|wgmma|triton_(?:tem|mm|bmm)|\bgemv"
    r"|aten::(?:mm|addmm|bmm|baddbmm|linear|addbmm|_scaled_mm|_grouped_mm|mkldnn_linear)\b",
    re.IGNORECASE,
)
COMMUNICATION = re.compile(r"nccl(?:Dev)?Kernel|^(?:nccl|gloo|mpi|ucc|xccl):|^rccl", re.IGNORECASE)
WRAPPER = re.compile(
    r"autograd::|^torch::autograd|^c10d::|Backward\d*$|^record_param_comms|^(?:Distributed|FullySharded)|^Optimizer\."
    r"|reducer"
)
"""Operators that only call others, or wait."""
COPY_KINDS = ("gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
MATMULS, ATTENTIONS, ELEMENTWISE, COPIES = "matrix products", "attention", "element-wise", "copies"
COMPUTE = (MATMULS, ATTENTIONS, ELEMENTWISE)


@dataclass(frozen=True)
class Busy:
    """What a step was spent on, in seconds, as medians over the steps: kernels by kind, collectives by name.

    `exposed` is communication beside which nothing is computed, `idle` the time in which nothing runs at all, and
    `host_bound` the part of it in which the next kernel had not been launched yet (None on a processor).
    """

    kinds: Mapping[str, Seconds]
    collectives: Mapping[str, Seconds]
    communication: Seconds = 0.0
    exposed: Seconds = 0.0
    idle: Seconds = 0.0
    host_bound: Seconds | None = None


@dataclass(frozen=True)
class TraceSteps:
    """Steps by their numbers with their times, and what they were spent on."""

    numbers: tuple[Count, ...]
    seconds: tuple[Seconds, ...]
    busy: Busy
    on_device: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "steps": [{"step": n, "seconds": s} for n, s in zip(self.numbers, self.seconds, strict=True)],
            "on_device": self.on_device,
            "seconds_by_kind": dict(self.busy.kinds),
            "seconds_by_collective": dict(self.busy.collectives),
            "communication_s": self.busy.communication,
            "exposed_communication_s": self.busy.exposed,
            "idle_s": self.busy.idle,
            "host_bound_s": self.busy.host_bound,
        }


def trace_steps(trace: Trace) -> TraceSteps | None:
    """The steps that `profiler.step()` marked; None where the trace holds none that is whole."""
    marks = sorted(_marks(trace.events))[:MOST_STEPS]
    device = [event for event in trace.events if event.kind in DEVICE_KINDS]
    if not marks:
        return None
    windows = _device_windows(marks, trace.events, device) if device else [(n, a, b) for a, b, n in marks]
    windows = [each for each in windows if each[2] > each[1]]
    if not windows:
        return None
    work = _device_work(device) if device else _host_work(trace.events)
    waits = _unlaunched(device, trace.events) if device else None
    spent = [_busy(work, waits, start, end) for _, start, end in windows]
    return TraceSteps(
        numbers=tuple(number for number, _, _ in windows),
        seconds=tuple(end - start for _, start, end in windows),
        busy=_typical(spent),
        on_device=bool(device),
    )


def _marks(events: Iterable[Event]) -> Iterator[tuple[Seconds, Seconds, Count]]:
    """Start, end and number of each step on the host."""
    seen = set()
    for event in events:
        found = STEP.match(event.name) if event.kind == "user_annotation" else None
        if found and int(found[1]) not in seen:
            seen.add(int(found[1]))
            yield event.start, event.end, int(found[1])


def _device_windows(
    marks: Sequence[tuple[Seconds, Seconds, Count]], events: Iterable[Event], device: Sequence[Event]
) -> list[tuple[Count, Seconds, Seconds]]:
    """Each step on the device: from its first kernel to the next step's, the last to its end there or on the host.

    A kernel belongs to the step in which it was launched, however late it runs.
    """
    launched, begun = _launch_times(events), [start for start, _, _ in marks]
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for kernel in device:
        at = launched.get(kernel.correlation, kernel.start)
        _, end, number = marks[bisect_right(begun, at) - 1]
        if begun[0] <= at <= end:
            starts[number] = min(starts.get(number, kernel.start), kernel.start)
            ends[number] = max(ends.get(number, kernel.end), kernel.end)
    known = [(number, end) for _, end, number in marks if number in starts]
    found = []
    for (number, host_end), following in zip(known, [*known[1:], None], strict=True):
        end = starts[following[0]] if following else max(ends[number], host_end)
        found.append((number, starts[number], end))
    return found


def _launch_times(events: Iterable[Event]) -> dict[Count, Seconds]:
    """Correlation -> the moment at which the host had launched it."""
    return {event.correlation: event.end for event in events if event.kind in LAUNCHES and event.correlation}


Work = Mapping[str, Intervals]
"""Kind of work, or collective, -> when it ran."""


def _device_work(device: Iterable[Event]) -> Work:
    spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in device:
        spans[_kind(event)].append((event.start, event.end))
    return {kind: Intervals.of(each) for kind, each in spans.items()}


def _kind(event: Event) -> str:
    """What a kernel is for."""
    if event.kind in COPY_KINDS:
        return COPIES
    if COMMUNICATION.search(event.name):
        return _collective(event)
    return _compute_kind(event.name)


def _compute_kind(name: str) -> str:
    if ATTENTION.search(name):
        return ATTENTIONS
    return MATMULS if MATMUL.search(name) else ELEMENTWISE


def _collective(event: Event) -> str:
    for text in (event.collective, event.name):
        plain = text.lower().replace("_", "")
        for name, words in COLLECTIVES.items():
            if any(word in plain for word in words):
                return name
    return "other collectives"


def _host_work(events: Iterable[Event]) -> Work:
    """Operators of a processor's trace: each moment of a thread counts for the innermost one that does work."""
    spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    threads: defaultdict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "user_annotation" and COMMUNICATION.search(event.name):
            spans[_collective(event)].append((event.start, event.end))
        elif event.kind == "cpu_op":
            threads[event.thread].append(event)
    for own in threads.values():
        for kind, start, end in _innermost(own):
            spans[kind].append((start, end))
    return {kind: Intervals.of(each) for kind, each in spans.items()}


def _innermost(events: list[Event]) -> Iterator[tuple[str, Seconds, Seconds]]:
    """Pieces of a thread's time with the kind of work of the innermost operator; all inside attention is attention."""
    stack: list[tuple[float, str]] = []
    at = 0.0
    for event in sorted(events, key=lambda each: (each.start, -each.end)):
        while stack and stack[-1][0] <= event.start:
            end, kind = stack.pop()
            yield from _piece(kind, at, end)
            at = max(at, end)
        if stack:
            yield from _piece(stack[-1][1], at, event.start)
        at = max(at, event.start)
        inside = stack[-1][1] if stack else ""
        own = "" if WRAPPER.search(event.name) else _compute_kind(event.name)
        stack.append((event.end, ATTENTIONS if inside == ATTENTIONS else own))
    while stack:
        end, kind = stack.pop()
        yield from _piece(kind, at, end)
        at = max(at, end)


def _piece(kind: str, start: Seconds, end: Seconds) -> Iterator[tuple[str, Seconds, Seconds]]:
    if kind and end > start:
        yield kind, start, end


def _unlaunched(device: Sequence[Event], events: Iterable[Event]) -> Intervals:
    """When the device had nothing to do and the kernel that it ran next had not been launched yet."""
    launched, spans, busy_until = _launch_times(events), [], None
    for kernel in sorted(device, key=lambda each: each.start):
        at = launched.get(kernel.correlation)
        if busy_until is not None and at is not None and at > busy_until and kernel.start > busy_until:
            spans.append((busy_until, min(at, kernel.start)))
        busy_until = max(kernel.end, busy_until or kernel.end)
    return Intervals.of(spans)


def _busy(work: Work, waits: Intervals | None, start: Seconds, end: Seconds) -> Busy:
    """What one step was spent on."""
    inside = {kind: spans.between(start, end) for kind, spans in work.items()}
    compute = Intervals.joined(inside[kind] for kind in inside if kind in COMPUTE)
    collectives = {kind: spans for kind, spans in inside.items() if kind not in (*COMPUTE, COPIES)}
    communication = Intervals.joined(collectives.values())
    both = Intervals.joined([compute, communication])
    everything = Intervals.joined(inside.values())
    return Busy(
        kinds={kind: inside[kind].total for kind in (*COMPUTE, COPIES) if kind in inside},
        collectives={kind: spans.total for kind, spans in collectives.items()},
        communication=communication.total,
        exposed=both.total - compute.total,
        idle=end - start - everything.total,
        host_bound=waits.between(start, end).total if waits else None,
    )


def _typical(spent: Sequence[Busy]) -> Busy:
    """Medians over the steps."""
    kinds, collectives = ({name for each in spent for name in getattr(each, of)} for of in ("kinds", "collectives"))
    waits = [each.host_bound for each in spent if each.host_bound is not None]
    return Busy(
        kinds={kind: _median(each.kinds.get(kind, 0.0) for each in spent) for kind in _ordered(kinds)},
        collectives={name: _median(each.collectives.get(name, 0.0) for each in spent) for name in sorted(collectives)},
        communication=_median(each.communication for each in spent),
        exposed=_median(each.exposed for each in spent),
        idle=_median(each.idle for each in spent),
        host_bound=_median(waits) if waits else None,
    )


def _ordered(kinds: set[str]) -> list[str]:
    return [kind for kind in (*COMPUTE, COPIES) if kind in kinds]


def _median(values: Iterable[Seconds]) -> Seconds:
    return statistics.median(values)
