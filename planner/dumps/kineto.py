"""Chrome traces of torch's profiler (Kineto), read event by event: a torn file gives what it has before the tear."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.dumps.text import BYTE_ORDER_MARKS
from planner.errors import FileFormatError
from planner.quantities import Bytes, Count, Seconds

GZIP = b"\x1f\x8b"
MOST_PACKED, MOST_UNPACKED = 256 * 2**20, 512 * 2**20
"""Bytes of a file, and of what is in it: traces of a few steps have some 10 to 200 MiB."""
MOST_EVENTS = 5_000_000
PIECE = 2**20
HEAD = 2**16
"""Characters in which a trace says that it is one."""
DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
KINDS = (*DEVICE_KINDS, "cpu_op", "user_annotation", "gpu_user_annotation", "cuda_runtime", "cuda_driver")
SKIP = re.compile(r"[\s,]*")
EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*\[')
LARGEST = 1e18
DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took time, in seconds. `correlation` joins a kernel and the call that launched it, else 0."""

    kind: str
    name: str
    start: Seconds
    end: Seconds
    thread: tuple[Any, Any]
    correlation: Count = 0
    collective: str = ""


@dataclass(frozen=True)
class Trace:
    """All events of one rank's trace. `torn` says that the file ends before the trace does.

    `memory` is the most that the allocator gave out and held, by kind, where memory was profiled on a device.
    """

    events: tuple[Event, ...]
    device: str = ""
    ranks: Count = 0
    memory: Mapping[str, Bytes] | None = None
    torn: bool = False


def file_text(path: Path) -> str:
    """The text of a file, unpacked if it is packed by gzip; what a torn packed file has before the tear.

    Raises FileFormatError where it cannot be read, or has more than a trace of a few steps has.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_PACKED + 1)
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > MOST_PACKED:
        raise FileFormatError(f"has more than {MOST_PACKED // 2**20} MiB: profile fewer steps", where=str(path))
    unpacked = _unpacked(data, path) if data[:2] == GZIP else data
    encoding = BYTE_ORDER_MARKS.get(unpacked[:2]) or BYTE_ORDER_MARKS.get(unpacked[:3], "utf-8")
    return unpacked.decode(encoding, errors="replace")


def _unpacked(data: bytes, path: Path) -> bytes:
    """The content of gzip data, of several members too, piece by piece so that a bomb is noticed early."""
    made, rest = bytearray(), data
    while rest[:2] == GZIP:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            while rest and not unpacker.eof:
                made += unpacker.decompress(rest, PIECE)
                rest = unpacker.unconsumed_tail
                if len(made) > MOST_UNPACKED:
                    said = f"unpacks to more than {MOST_UNPACKED // 2**20} MiB: profile fewer steps"
                    raise FileFormatError(said, where=str(path))
        except zlib.error:
            break
        rest = unpacker.unused_data
    return bytes(made)


def is_trace(text: str) -> bool:
    """Whether a text is a Chrome trace: an object with `traceEvents`, or a list of events."""
    head = text[:HEAD].lstrip("\ufeff \t\r\n")
    if head.startswith("["):
        return '"ph"' in head
    return head.startswith("{") and bool(EVENTS_KEY.search(text))


def read_trace(text: str) -> Trace:
    """The events of a trace; those that are malformed are passed over."""
    events: list[Event] = []
    memory: dict[str, float] = {}
    reader = _Reader(text)
    for data in reader.events():
        event = _event(data)
        if event:
            events.append(event)
        elif data.get("name") == "[memory]":
            _add_memory(data, memory)
    properties, distributed = _value(text, "deviceProperties"), _value(text, "distributedInfo")
    first = properties[0] if isinstance(properties, list) and properties else {}
    device = first.get("name", "") if isinstance(first, dict) else ""
    ranks = distributed.get("world_size") if isinstance(distributed, dict) else 0
    return Trace(
        events=tuple(events),
        device=str(device)[:80],
        ranks=ranks if isinstance(ranks, int) and 0 < ranks < 10**7 else 0,
        memory=memory or None,
        torn=reader.torn,
    )


class _Reader:
    """Decodes one event after another, so that neither a tear nor a huge file costs what was read before."""

    def __init__(self, text: str) -> None:
        self.text, self.torn = text, False

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event that is an object."""
        found = EVENTS_KEY.search(self.text)
        place = found.end() if found else self.text.find("[") + 1
        for _ in range(MOST_EVENTS):
            place = SKIP.match(self.text, place).end()  # type: ignore[union-attr]
            if self.text.startswith("]", place):
                return
            try:
                data, place = DECODER.raw_decode(self.text, place)
            except (ValueError, RecursionError):
                break
            if isinstance(data, dict):
                yield data
        self.torn = True


def _event(data: Mapping[str, Any]) -> Event | None:
    kind, name, start, length = (data.get(key) for key in ("cat", "name", "ts", "dur"))
    if kind not in KINDS or not isinstance(name, str) or not _is_time(start) or not _is_time(length):
        return None
    told = data.get("args")
    args: Mapping[str, Any] = told if isinstance(told, dict) else {}
    correlation, collective = args.get("correlation"), args.get("Collective name")
    return Event(
        kind=sys.intern(str(kind)),
        name=sys.intern(name[:200]),
        start=start * 1e-6,  # type: ignore[operator]
        end=(start + length) * 1e-6,  # type: ignore[operator]
        thread=(str(data.get("pid"))[:40], str(data.get("tid"))[:40]),
        correlation=correlation if isinstance(correlation, int) and not isinstance(correlation, bool) else 0,
        collective=collective[:40] if isinstance(collective, str) else "",
    )


def _is_time(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < LARGEST  # type: ignore[operator]


def _add_memory(data: Mapping[str, Any], memory: dict[str, float]) -> None:
    """Keep the most that the allocator of a device gave out and held; type 0 is the host, which tells nothing."""
    args = data.get("args")
    if not isinstance(args, dict) or args.get("Device Type") in (0, None):
        return
    for kind, key in (("allocated", "Total Allocated"), ("reserved", "Total Reserved")):
        if _is_time(args.get(key)) and args[key] > memory.get(kind, 0):
            memory[kind] = float(args[key])


def _value(text: str, key: str) -> Any:
    """The value of a key of the trace itself, which stands before or after its events; None where there is none."""
    ends = (text[:HEAD], text[-HEAD:])
    for end in ends:
        if found := re.search(rf'"{key}"\s*:\s*', end):
            try:
                return DECODER.raw_decode(end, found.end())[0]
            except (ValueError, RecursionError):
                continue
    return None
