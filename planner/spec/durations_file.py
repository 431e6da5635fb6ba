"""A table of durations of one's own, as JSON, which `planner simulate --durations` plays (docs/simulate.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError
from planner.quantities import GIB
from planner.spec.durations import Block, Durations, Segment

KEYS = ("schedule", "num_microbatches", "ranks", "stages", "p2p_s", "optimizer_s", "penalty")
OF_A_STAGE = ("F", "B", "I", "W", "kept_gib")
EXAMPLE = '{"schedule": "1f1b", "num_microbatches": 8, "p2p_s": 0.01, "stages": [{"F": 1, "B": 2}, {"F": 1, "B": 2}]}'


@dataclass(frozen=True)
class OwnTable:
    """What a file says: seconds of each stage's actions by letter, and how they are to be ordered.

    `ranks` is 0 where the file leaves it to the schedule.
    """

    schedule: str
    num_microbatches: int
    ranks: int
    stages: tuple[Mapping[str, float], ...]
    p2p: float
    optimizer: float
    penalty: float

    def durations(self, rank_of: Sequence[int]) -> Durations:
        """The table for a schedule with its stages on these ranks; a whole backward is I and W where B is not given.

        Raises SpecError where the schedule has another number of stages.
        """
        if len(rank_of) != len(self.stages):
            raise FileFormatError(f"has {len(self.stages)} stages; the schedule {self.schedule} has {len(rank_of)}")
        return Durations(
            stages=tuple((_block(each),) for each in self.stages),
            rank_of=tuple(rank_of),
            num_microbatches=self.num_microbatches,
            schedule=self.schedule,
            send=self.p2p,
            optimizer=(self.optimizer,) * (max(rank_of) + 1),
            penalty=self.penalty,
        )


def _block(stage: Mapping[str, float]) -> Block:
    """One block that does a whole stage's work."""
    return Block(
        name="",
        forward=(Segment("forward", stage["F"]),),
        backward=(Segment("backward", stage.get("B", stage.get("I", 0.0))),),
        weight=(Segment("weights", stage.get("W", 0.0)),),
        kept=stage.get("kept_gib", 0.0) * GIB,
    )


def read_durations(path: Path) -> OwnTable:
    """Read a table. Raises FileFormatError saying what is wrong where, and what would be right."""
    where = str(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=where) from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not JSON: {error}", where=where) from error
    if not isinstance(data, dict):
        raise FileFormatError(f"should hold an object, such as {EXAMPLE}", where=where)
    _known(data, KEYS, where)
    stages = data.get("stages")
    if not isinstance(stages, list) or not stages:
        raise FileFormatError(f"stages should be a list with an object each, such as {EXAMPLE}", where=where)
    return OwnTable(
        schedule=_text(data, "schedule", "1f1b", where),
        num_microbatches=_count(data, "num_microbatches", where),
        ranks=_count(data, "ranks", where, default=0),
        stages=tuple(_stage(stage, f"{where}: stages[{number}]") for number, stage in enumerate(stages)),
        p2p=_figure(data, "p2p_s", where),
        optimizer=_figure(data, "optimizer_s", where),
        penalty=_figure(data, "penalty", where),
    )


def _stage(stage: Any, where: str) -> dict[str, float]:
    """Seconds of one stage; F, and B or both I and W."""
    if not isinstance(stage, dict):
        raise FileFormatError('should be an object with seconds, such as {"F": 1, "B": 2}', where=where)
    _known(stage, OF_A_STAGE, where)
    if "F" not in stage or ("B" in stage) == ("I" in stage) or ("I" in stage) != ("W" in stage):
        raise FileFormatError(
            'needs F, and B or both I and W: {"F": 1, "B": 2} or {"F": 1, "I": 1, "W": 1}', where=where
        )
    return {name: _figure(stage, name, where) for name in stage}


def _known(data: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    strange = sorted(set(data) - set(keys))
    if strange:
        raise FileFormatError(f"has {strange[0]!r}; there are: {', '.join(keys)}", where=where)


def _text(data: Mapping[str, Any], key: str, default: str, where: str) -> str:
    value = data.get(key, default)
    if not isinstance(value, str):
        raise FileFormatError(f"{key} should be a name in quotes, not {value!r}", where=where)
    return value


def _count(data: Mapping[str, Any], key: str, where: str, *, default: int | None = None) -> int:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and key in data):
        raise FileFormatError(f"{key} should be a whole number from 1, not {value!r}", where=where)
    return value


def _figure(data: Mapping[str, Any], key: str, where: str) -> float:
    value = data.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise FileFormatError(f"{key} should be a number from 0, not {value!r}", where=where)
    return float(value)
