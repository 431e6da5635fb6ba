"""What a stack does where a row says nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from planner.catalogue.names import FOLDER
from planner.catalogue.stacks import ancestry
from planner.errors import FileFormatError
from planner.spec.toml_file import read_toml


@dataclass(frozen=True)
class RunDefaults:
    """One stack's entry of run_defaults.toml, where each field is explained; in the words of the table of runs."""

    sharding: str
    recompute: str
    attention: str
    sequence_parallel: bool
    dropout: bool
    micro_batch: str
    expert_tp: str
    fused: bool
    keeps_gathered: bool
    data_parallel_only: bool
    stages: str
    memory_rank: str


@cache
def run_defaults(stack: str) -> RunDefaults:
    """The defaults of a stack, those that it does not state from the stacks that it is like.

    Raises SpecError for an unknown stack.

    >>> run_defaults("megatron-deepspeed").attention, run_defaults("mlperf-nemo").sequence_parallel
    ('math', True)
    """
    entries = _entries()
    found: dict[str, Any] = {}
    for name in reversed(ancestry(stack)):
        found |= {key: value for key, value in entries.get(name, {}).items() if key != "source"}
    known = {field.name for field in fields(RunDefaults)}
    if wrong := found.keys() ^ known:
        raise FileFormatError(f"unknown or missing: {', '.join(sorted(wrong))}", where=f"run_defaults.toml: {stack}")
    return RunDefaults(**found)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return read_toml(FOLDER / "run_defaults.toml")
