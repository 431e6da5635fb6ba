"""Tables of measured collectives, as nccl-tests prints them: their columns and reading them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import FileFormatError
from planner.quantities import Bytes, Seconds, to_base
from planner.validate.csv_rows import csv_rows, number

REQUIRED = ("collective", "n_ranks", "size_bytes")
"""Columns without which nothing can be predicted; all others may be absent or empty."""
EMPTY = ("", "-", "nan", "na", "n/a", "null", "none", "unknown", "not stated")
"""What a cell that says nothing looks like."""
NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "sendrecv": "send_recv",
    "sendreceive": "send_recv",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
}
"""A collective's letters, as any tool spells it -> its name here."""
MOST_RANKS = 10_000_000
LARGEST: Bytes = 1e18


@dataclass(frozen=True)
class StatedCall:
    """One call as a row states it: nothing measured, so that no prediction can depend on a measurement.

    `collective` is as the table spells it, `name` as the planner does ("" where it knows none such); `reason` says
    why the row cannot be predicted, "" where it can.
    """

    source_id: str
    source: str
    collective: str
    name: str
    n_ranks: int
    n_nodes: int
    gpu: str
    intra: str
    inter: str
    nic_gbps_per_node: float
    size: Bytes
    notes: str = ""
    reason: str = ""


@dataclass(frozen=True)
class MeasuredCalls:
    """The rows of a table and, row for row, the measured times; 0 where none was measured."""

    stated: list[StatedCall]
    times: list[Seconds]


def read_collectives(path: Path) -> MeasuredCalls:
    """Every row of a CSV of measured collectives, in order.

    Times stand in `time_us`, or follow from size and `algbw_gbs`. Raises FileFormatError, naming file, line and column,
    where the file cannot be read, lacks a required column, or holds something else than a number where one belongs.
    """
    lines = list(csv_rows(path, REQUIRED, of=" of a table of collectives"))
    return MeasuredCalls([_stated(cells, where) for where, cells in lines], [_time(c, where) for where, c in lines])


def collective_name(text: str) -> str:
    """The planner's name of a collective in any tool's spelling; "" for one that it has no formula for.

    >>> collective_name("AllReduce"), collective_name("alltoall_perf"), collective_name("hypercube")
    ('all_reduce', 'all_to_all', '')
    """
    letters = re.sub(r"[^a-z]", "", text.lower().removesuffix("_perf")).removeprefix("nccl").removeprefix("rccl")
    return NAMES.get(letters, "")


def _stated(cells: Mapping[str, str], where: str) -> StatedCall:
    name = collective_name(cells["collective"])
    ranks, size = _count(cells, "n_ranks", where), _number(cells, "size_bytes", where)
    per_node = _count(cells, "gpus_per_node", where)
    nodes = _count(cells, "n_nodes", where) or (math.ceil(ranks / per_node) if per_node else 0)
    text = {column: cells.get(column, "") for column in ("source_id", "source", "gpu", "intra", "inter", "notes")}
    return StatedCall(
        collective=cells["collective"],
        name=name,
        n_ranks=ranks,
        n_nodes=nodes or 1,
        nic_gbps_per_node=_number(cells, "nic_gbps_per_node", where),
        size=size,
        reason=_reason(cells["collective"], name, ranks, nodes, size),
        **text,
    )


def _reason(collective: str, name: str, ranks: int, nodes: int, size: Bytes) -> str:
    """Why a row cannot be predicted; "" where it can."""
    if not name:
        return f"no model of the collective {collective!r:.40}"
    if ranks < 1 or ranks > MOST_RANKS:
        return f"n_ranks should be 1 to {MOST_RANKS}, not {ranks}"
    if nodes > ranks:
        return f"{ranks} ranks cannot fill {nodes} nodes"
    if not size or size > LARGEST:
        return "a call of no bytes is not made" if not size else "size_bytes is larger than any memory"
    return ""


def _time(cells: Mapping[str, str], where: str) -> Seconds:
    time = to_base(_number(cells, "time_us", where), "us")
    rate = to_base(_number(cells, "algbw_gbs", where), "GB/s") if not time else 0.0
    return _number(cells, "size_bytes", where) / rate if rate else time


def _number(cells: Mapping[str, str], column: str, where: str) -> float:
    text = cells.get(column, "")
    try:
        return number(text, EMPTY)
    except ValueError as error:
        raise FileFormatError(f"{column} should be {error}, not {text!r:.60}", where=where) from error


def _count(cells: Mapping[str, str], column: str, where: str) -> int:
    value = _number(cells, column, where)
    if value != int(value):
        raise FileFormatError(f"{column} should be a whole number, not {cells[column]!r:.60}", where=where)
    return int(value)
