"""The table of measured runs: its columns, their types, and reading it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

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


@dataclass(frozen=True)
class TableRow:
    """One row as read; `wrong` says which cell is malformed and what it should be, "" where none is."""

    stated: Stated
    measured: Measured
    wrong: str = ""


def read_table(path: Path) -> list[TableRow]:
    """Every row of a CSV of measured runs, in order. A malformed cell spoils its own row only.

    Raises FileFormatError, naming file and line, where the file cannot be read, lacks a required column, or has rows of
    another length than its header.
    """
    return [_row(cells) for _, cells in csv_rows(path, REQUIRED)]


def _row(cells: Mapping[str, str]) -> TableRow:
    wrong: list[str] = []
    stated, measured = _record(Stated, cells, wrong), _record(Measured, cells, wrong)
    return TableRow(stated, measured, "; ".join(wrong))


def _record(kind: type[R], cells: Mapping[str, str], wrong: list[str]) -> R:
    """The record's columns; what cannot be read is left unstated and named in `wrong`."""
    given: dict[str, Any] = {}
    for field in fields(kind):
        text = cells.get(field.name, "").strip()
        try:
            given |= {field.name: PARSERS[str(field.type)](text)} if text else {}
        except ValueError as error:
            wrong.append(f"{field.name} should be {error}, not {text!r}")
    return kind(**given)


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
