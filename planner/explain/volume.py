"""What one rank sends in a step, group by group, with the formulas of each collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from planner.cost import collectives
from planner.estimate.records import Role
from planner.estimate.volume import Volume, communication_volume
from planner.explain.formula import Formula
from planner.explain.terms import Term
from planner.quantities import GB, Bytes
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.stack import Stack
from planner.spec.workload import Workload

VOLUME_TERMS: Mapping[str, Term] = {
    "all_reduce": Term("all-reduce", "communication", (collectives.all_reduce_bytes,)),
    "all_gather": Term("all-gather", "communication", (collectives.gather_bytes,)),
    "reduce_scatter": Term("reduce-scatter", "communication", (collectives.gather_bytes,)),
    "all_to_all": Term("all-to-all", "communication", (collectives.all_to_all_bytes,)),
    "send": Term("send", "communication", (collectives.send_bytes,)),
}
"""Collective (a field of GroupBytes) -> its name and what a rank sends in it."""


@dataclass(frozen=True)
class GroupVolume:
    """What one rank sends per step in the groups of one axis (a field of Links), in bytes by collective."""

    group: str
    by_collective: Mapping[str, Bytes]

    @property
    def total(self) -> Bytes:
        """All collectives together."""
        return sum(self.by_collective.values())

    @property
    def words(self) -> str:
        """The collectives by name, the largest first; with their sizes where there are several."""
        largest = sorted(self.by_collective.items(), key=lambda item: -item[1])
        several = len(largest) > 1
        return ", ".join(
            VOLUME_TERMS[name].title + (f" {format_sent(size)}" if several else "") for name, size in largest
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, in GB."""
        return {
            "group": self.group,
            "sent_gb": self.total / GB,
            "collectives_gb": {name: size / GB for name, size in self.by_collective.items()},
        }


@dataclass(frozen=True)
class SentVolume:
    """What the pipeline rank that sends most sends per step, by group; groups that send nothing are left out."""

    role: Role
    groups: tuple[GroupVolume, ...]

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """Those of the collectives that occur, each once."""
        found = {each.name: each for group in self.groups for name in group.by_collective for each in _formulas(name)}
        return tuple(found.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "role": self.role.name.lower(),
            "groups": [group.as_dict() for group in self.groups],
            "formulas": [asdict(formula) for formula in self.formulas],
        }


def sent_volume(model: Model, plan: Plan, workload: Workload, stack: Stack) -> SentVolume:
    """The volume of one plan, itemised."""
    volume = communication_volume(model, plan, workload, stack)
    groups = (GroupVolume(name, _collectives(volume, name)) for name in Volume.GROUPS)
    return SentVolume(Role(int(volume.role)), tuple(group for group in groups if group.by_collective))


def format_sent(size: Bytes) -> str:
    """A volume for people: in GB of 1e9 bytes, as networks are measured.

    >>> format_sent(3.444e9), format_sent(196608)
    ('3.44 GB', '0.197 MB')
    """
    return f"{size / GB:,.3g} GB" if size >= 0.01 * GB else f"{size / 1e6:,.3g} MB"


def _collectives(volume: Volume, group: str) -> dict[str, Bytes]:
    sent = getattr(volume, group)
    sizes = {field.name: float(getattr(sent, field.name)) for field in fields(sent)}
    return {name: size for name, size in sizes.items() if size > 0}


def _formulas(collective: str) -> tuple[Formula, ...]:
    return VOLUME_TERMS[collective].formulas
