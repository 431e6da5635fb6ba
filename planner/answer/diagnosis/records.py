"""What a diagnosis is made from and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.dumps.records import Dump, NcclLog
from planner.dumps.run_records import Sign, TrainingLog
from planner.emit.reading.settings import Settings

if TYPE_CHECKING:
    from planner.answer.diagnosis.tables import TableCheck
    from planner.answer.dumps import Checked
    from planner.answer.ranked_plan import RankedPlan


class Strength(IntEnum):
    """How sure a cause is."""

    SHOWN = 0
    """A file says so."""
    LIKELY = 1
    """The figures are those that it would give."""
    POSSIBLE = 2
    """Nothing speaks against it, and it would explain what was measured."""


@dataclass(frozen=True)
class Cause:
    """One explanation: its name, how it is known, what to change, and what to run to be sure.

    `limit` says that it slows the run as it is meant to be: what was measured may be what was to be expected.
    `gain` orders causes of one strength: the share of time or memory that it explains.
    """

    cause: str
    evidence: str
    setting: str
    next_command: str
    strength: Strength = Strength.POSSIBLE
    limit: bool = False
    gain: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cause": self.cause,
            "evidence": self.evidence,
            "setting": self.setting,
            "next_command": self.next_command,
            "strength": self.strength.name.lower(),
        }


class Standing(IntEnum):
    """Where a measured figure lies against the expected interval."""

    INSIDE = 0
    BETTER = 1
    WORSE = 2


@dataclass(frozen=True)
class Comparison:
    """A measured figure beside the expected one. Less is better of memory, more of everything else.

    `basis` says what the expectation rests on, `source` where the measured figure was read.
    """

    what: str
    unit: str
    measured: float
    expected: float
    low: float
    high: float
    basis: str = ""
    source: str = ""
    less_is_better: bool = False

    @property
    def standing(self) -> Standing:
        """Against the prediction's own 80 % interval."""
        if self.low <= self.measured <= self.high:
            return Standing.INSIDE
        return Standing.BETTER if (self.measured < self.low) == self.less_is_better else Standing.WORSE

    @property
    def factor(self) -> float:
        """How many times worse than expected; below 1 where it is better."""
        return self.measured / self.expected if self.less_is_better else self.expected / self.measured

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "standing": self.standing.name.lower()}


@dataclass(frozen=True, eq=False)
class Taken:
    """A file and what it was taken for, "unknown" where nothing in it is known; `problem` says why, or what is odd."""

    path: Path
    taken_for: str = "unknown"
    problem: str = ""
    dump: Dump | None = None
    log: TrainingLog | None = None
    signs: tuple[Sign, ...] = ()
    settings: Settings | None = None
    is_plan: bool = False
    is_model: bool = False
    is_cluster: bool = False

    @property
    def known(self) -> bool:
        """Whether anything in it was read."""
        return self.taken_for != "unknown"


@dataclass(frozen=True)
class Asked:
    """What the person gives: files, and what no file tells."""

    files: tuple[Path, ...] = ()
    plan: Path | None = None
    model: str | None = None
    cluster: str | None = None
    gpu: str | None = None
    fix: str | None = None
    seq_len: int | None = None
    global_batch_size: str | None = None
    measured_tps: str | None = None
    measured_mem: str | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """Everything that causes are looked for in."""

    asked: Asked
    files: tuple[Taken, ...]
    plan: RankedPlan | None = None
    speed: Comparison | None = None
    memory: Comparison | None = None
    checks: tuple[TableCheck, ...] = ()
    hosts: tuple[Checked, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def signs(self, *kinds: str) -> list[tuple[Taken, Sign]]:
        """The signs of some kinds, with their files."""
        return [(file, sign) for file in self.files for sign in file.signs if sign.kind in kinds]

    @property
    def logs(self) -> list[tuple[Taken, TrainingLog]]:
        """The trainers' logs."""
        return [(file, file.log) for file in self.files if file.log]

    @property
    def nccl(self) -> list[tuple[Taken, NcclLog]]:
        """The NCCL logs."""
        return [(file, file.dump.nccl) for file in self.files if file.dump and file.dump.nccl]

    @property
    def slow(self) -> bool:
        """Whether training is slower than expected."""
        return self.speed is not None and self.speed.standing is Standing.WORSE

    @property
    def across(self) -> bool:
        """Whether ranks of several nodes talk, as far as anything tells."""
        if self.plan:
            return self.plan.question.cluster.num_nodes > 1
        return any(check.across for check in self.checks) or any(
            (log.nodes or len(log.hosts) or 1) > 1 for _, log in self.nccl
        )

    def setting(self, name: str) -> tuple[Taken, str] | None:
        """The value of an environment variable that NCCL says it follows, and the file; None where it is not set."""
        return next(((file, log.settings[name]) for file, log in self.nccl if name in log.settings), None)


Rule = Callable[[Case], Iterator[Cause]]
"""Looks at the evidence and yields the causes that it finds, none as a rule."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The whole answer. `verdict` is "healthy" or the name of what is wrong; `sentence` says it in full."""

    case: Case
    verdict: str
    sentence: str
    comparisons: tuple[Comparison, ...]
    causes: tuple[Cause, ...]
    next_commands: tuple[str, ...]
    readings: Mapping[str, tuple[float, str, str]]
    """What the logs say, compared or not: value, unit, file."""

    SCHEMA_VERSION = 1

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner diagnose --json`."""
        return {
            "schema_version": self.SCHEMA_VERSION,
            "answer": self.sentence,
            "verdict": self.verdict,
            "files": [_file(each) for each in self.case.files],
            "expected": _expected(self.case, self.comparisons),
            "measured": {
                **_by_kind(self.case, self.comparisons, lambda each: {"value": each.measured, "unit": each.unit}),
                "logs": {name: {"value": value, "unit": unit} for name, (value, unit, _) in self.readings.items()},
            },
            "comparisons": [each.as_dict() for each in self.comparisons],
            "causes": [each.as_dict() for each in self.causes],
            "next_commands": list(self.next_commands),
            "notes": list(self.case.notes),
        }


def _file(taken: Taken) -> dict[str, Any]:
    return {"path": str(taken.path), "taken_for": taken.taken_for, "problem": taken.problem or None}


def _expected(case: Case, comparisons: tuple[Comparison, ...]) -> dict[str, Any]:
    plan = case.plan
    return {
        **_by_kind(
            case,
            comparisons,
            lambda each: {"value": each.expected, "interval": [each.low, each.high], "unit": each.unit},
        ),
        "plan": plan and {"words": plan.words, **plan.as_dict()},
    }


def _by_kind(
    case: Case, comparisons: tuple[Comparison, ...], part: Callable[[Comparison], dict[str, Any]]
) -> dict[str, Any]:
    """Speed and memory of the run (None where they are not compared), and one entry for each table."""
    tables = [each for each in comparisons if each is not case.speed and each is not case.memory]
    return {
        "speed": case.speed and part(case.speed),
        "memory": case.memory and part(case.memory),
        "collectives": [{"what": each.what, "source": each.source, **part(each)} for each in tables],
    }
