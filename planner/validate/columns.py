"""The table of measured runs: its columns, their types, and reading it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from planner.errors import FileFormatError
from planner.validate.csv_rows import csv_rows, number

REQUIRED = ("gpu", "n_gpus", "layers", "hidden", "heads", "vocab", "seq_len")
"""Columns without which a table says too little; all others may be absent or empty."""
EMPTY = ("", "nan", "na", "n/a", "null")
"""What a number or flag that is not stated looks like."""
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Stated:
    """The configuration that a row states, under the table's column names; 0, "" or None where it says nothing.

    Nothing in it was measured, so that a prediction made from it cannot depend on a measurement.
    """

    id: str = ""
    source_id: str = ""
    stack: str = ""
    model: str = ""
    params_b: float = 0.0
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    ffn_hidden: int = 0
    mlp: str = ""
    vocab: int = 0
    tied_embeddings: bool | None = None
    experts: int = 0
    experts_topk: int = 0
    moe_ffn_hidden: int = 0
    seq_len: int = 0
    gpu: str = ""
    n_gpus: int = 0
    gpus_per_node: int = 0
    intra: str = ""
    fabric: str = ""
    nic_gbps_per_gpu: float = 0.0
    dp: int = 0
    tp: int = 0
    pp: int = 0
    vpp: int = 0
    cp: int = 0
    ep: int = 0
    sharding: str = ""
    shard_size: int = 0
    sequence_parallel: bool | None = None
    micro_batch: int = 0
    global_batch: int = 0
    grad_accum: int = 0
    pp_schedule: str = ""
    precision_compute: str = ""
    precision_state: str = ""
    method: str = ""
    optimizer: str = ""
    dropout: bool | None = None
    recompute_mode: str = ""
    flash_attention: str = ""
    compile: bool | None = None
    cpu_offload: str = ""
    other: str = ""
    complete: bool | None = None
    grade: str = ""


@dataclass(frozen=True)
class Measured:
    """The measured columns of a row, 0, "" or None where nothing was measured; `peak_mem_gb` is decimal."""

    step_time_s: float = 0.0
    tokens_per_s_per_gpu: float = 0.0
    samples_per_s: float = 0.0
    peak_mem_gib: float = 0.0
    peak_mem_gb: float = 0.0
    memory_kind: str = ""
    oom: bool | None = None


R = TypeVar("R", Stated, Measured)


def read_table(path: Path) -> list[tuple[Stated, Measured]]:
    """Every row of a CSV of measured runs, in order.

    Raises FileFormatError, naming file, line and column, where the file cannot be read, lacks a required column, or
    holds something else than the column's type.
    """
    return [
        (_record(Stated, cells, where), _record(Measured, cells, where)) for where, cells in csv_rows(path, REQUIRED)
    ]


def _record(kind: type[R], cells: Mapping[str, str], where: str) -> R:
    given = {field.name: PARSERS[str(field.type)] for field in fields(kind) if cells.get(field.name)}
    return kind(**{name: _parsed(parse, cells[name], name, where) for name, parse in given.items()})


def _parsed(parse: Callable[[str], Any], text: str, column: str, where: str) -> Any:
    try:
        return parse(text.strip())
    except ValueError as error:
        raise FileFormatError(f"{column} should be {error}, not {text!r}", where=where) from error


def _number(text: str) -> float:
    return number(text, EMPTY)


def _count(text: str) -> int:
    try:
        value = _number(text)
    except ValueError:
        value = 0.5
    if value != int(value):
        raise ValueError("a whole number, zero or more")
    return int(value)


def _flag(text: str) -> bool | None:
    if text.lower() in EMPTY:
        return None
    if text.lower() not in WORDS:
        raise ValueError("true or false")
    return WORDS[text.lower()]


PARSERS: dict[str, Callable[[str], Any]] = {"int": _count, "float": _number, "bool | None": _flag, "str": str}
"""A column's reader by the type of its field."""
