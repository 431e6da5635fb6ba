"""Times of single kernels for tables of them, by the functions and tables that a step's time is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.catalogue.collective_errors import DATASHEET as NOMINAL
from planner.catalogue.collective_errors import DEFAULT
from planner.catalogue.hardware import accelerator
from planner.catalogue.kernel_tables import kernels_alone, measured_part
from planner.errors import SpecError
from planner.estimate.kernels import BYTES, AttentionCore, Kernels
from planner.quantities import Column, Count, Seconds
from planner.spec.accelerator import Accelerator
from planner.spec.profile import LEVELS, Profile
from planner.validate.collectives import Calls, class_times, level_of
from planner.validate.collectives_columns import StatedCall, collective_name
from planner.validate.kernels_columns import KernelRows, up_width

CALIBRATED, TRANSFERRED, DATASHEET = LEVELS
PRECISIONS = {"fp8_block": "fp8", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}
"""A table's word for a precision -> the planner's, where they differ."""
LARGEST: Count = 1e12
"""Of any dimension: far beyond what memory holds."""

Counts = Mapping[str, Column]
Timed = tuple[Seconds, bool]
"""Times, and whether this very kernel was timed on this accelerator."""


@dataclass(frozen=True, eq=False)
class KernelTimes:
    """Row for row: the predicted time (0 where there is none), what it rests on, and why there is none."""

    time: Column
    level: Column
    reason: Column


def kernel_times(rows: KernelRows) -> KernelTimes:
    """Times of a table's rows from their shapes alone."""
    return _collectives(rows) if rows.kind == "nccl" else _computed(rows)


def _computed(rows: KernelRows) -> KernelTimes:
    """Kernels of one accelerator, one evaluation for each combination of accelerator and words."""
    time, level, reason = np.zeros(len(rows)), np.full(len(rows), "", dtype=object), _impossible(rows)
    names, evaluate = KINDS[rows.kind]
    for words, every in rows.combinations("gpu", *names):
        index = every[reason[every] == ""]
        try:
            part = accelerator(words[0])
            shape = {name: column[index] for name, column in rows.counts.items()}
            time[index], timed = evaluate(part, words[1:], shape)
            level[index] = CALIBRATED if timed else TRANSFERRED if measured_part(part) else DATASHEET
        except SpecError as error:
            reason[index] = str(error)
    return KernelTimes(time, level, reason)


def _matmul(part: Accelerator, words: tuple[str, ...], shape: Counts) -> Timed:
    profile, timed = kernels_alone(part)
    return _kernels(part, profile, words[0]).matmul(shape["m"], shape["n"], shape["k"]), timed


def _attention(part: Accelerator, words: tuple[str, ...], shape: Counts) -> Timed:
    kernel, causal, direction = words[0], _flag(words[1]), words[2].lower()
    if direction not in ("forward", "backward"):
        raise SpecError(f"should be forward or backward, not {direction!r:.40}", where="direction")
    core = AttentionCore(
        batch=shape["batch"],
        queries=shape["seq_len"],
        keys=shape["seq_len"],
        heads=shape["heads"],
        key_value_heads=shape["kv_heads"],
        key_dim=shape["head_dim"],
        value_dim=shape["head_dim"],
        causal=causal,
    )
    profile, timed = kernels_alone(part, attention=kernel if causal else f"{kernel} unmasked")
    forward, backward = _kernels(part, profile, "bf16").attention(core)
    return (forward, timed) if direction == "forward" else (backward, False)


def _experts(part: Accelerator, words: tuple[str, ...], shape: Counts) -> Timed:
    """The block of one rank's experts: gate (if any) and up in one product, then down; balanced routing."""
    library, dtype = words
    profile, timed = kernels_alone(part, grouped=f"{library} {dtype}")
    kernels, ranks = _kernels(part, profile, dtype), shape["ep"]
    rows, experts, width = shape["tokens"] * shape["topk"] / ranks, shape["experts"] / ranks, shape["intermediate"]
    hidden, common = shape["hidden"], {"width": width, "sharing_ranks": ranks}
    up = kernels.grouped_matmul(rows, up_width(hidden, width), hidden, experts, **common)
    return up + kernels.grouped_matmul(rows, hidden, width, experts, **common), timed


def _kernels(part: Accelerator, profile: Profile, precision: str) -> Kernels:
    name = PRECISIONS.get(precision.lower(), precision.lower())
    if name not in BYTES:
        raise SpecError(f"should be one of {', '.join(BYTES)}, not {precision!r:.40}", where="dtype")
    return Kernels(part, profile, name, "flash")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "1", "yes", "false", "0", "no"):
        raise SpecError(f"should be True or False, not {text!r:.40}", where="causal")
    return text.lower() in ("true", "1", "yes")


def _impossible(rows: KernelRows) -> Column:
    """Why a row's shape is none, "" where it is one."""
    reason = np.full(len(rows), "", dtype=object)
    for name, column in rows.counts.items():
        reason[column > LARGEST] = f"{name} is larger than any memory"
        reason[column < 1] = f"{name} is not stated"
    return reason


def _collectives(rows: KernelRows) -> KernelTimes:
    """Collectives of one node, whose payload is the whole message as nccl-tests counts it."""
    reason = _impossible(rows)
    stated = [_call(rows, row, str(reason[row])) for row in range(len(rows))]
    calls = Calls.of(stated)
    times = class_times(calls)
    levels = [level_of(*each) if each[1] else "" for each in zip(stated, calls.machines, strict=True)]
    # The class of the link was measured, not this accelerator's kernel.
    named = {DEFAULT: TRANSFERRED, NOMINAL: DATASHEET, "": ""}
    return KernelTimes(
        np.where(calls.predictable, times, 0.0),
        np.array([named[level] for level in levels], dtype=object),
        np.array([call.reason for call in stated], dtype=object),
    )


def _call(rows: KernelRows, row: int, reason: str) -> StatedCall:
    collective, dtype = str(rows.words["collective"][row]), str(rows.words["dtype"][row]).lower()
    name, element = collective_name(collective), BYTES.get(PRECISIONS.get(dtype, dtype), 0.0)
    if not name:
        reason = f"no model of the collective {collective!r:.40}"
    if not element:
        reason = f"dtype should be one of {', '.join(BYTES)}, not {dtype!r:.40}"
    return StatedCall(
        source_id="", source="", collective=collective, name=name, n_ranks=int(rows.counts["n_ranks"][row]), n_nodes=1,
        gpu=str(rows.words["gpu"][row]), intra="", inter="", nic_gbps_per_node=0.0,
        size=rows.counts["elements"][row] * element, reason=reason,
    )  # fmt: skip


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Accelerator, tuple[str, ...], Counts], Timed]]] = {
    "gemm": (("dtype",), _matmul),
    "attention": (("kernel", "causal", "direction"), _attention),
    "moe": (("library", "dtype"), _experts),
}
"""Kind -> the words that choose a kernel beside the accelerator, and what predicts the rows that share them."""
