"""What a profile rests on: what was measured, what is taken from elsewhere, its age, and what to measure next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibration.measurement_plan import usual_plan
from calibration.measurements import Entry, Measurement
from calibration.origins import OF_MEASUREMENTS, Origins
from calibration.record import Record
from planner.errors import FileFormatError
from planner.spec.json_files import read_json
from planner.spec.profile import Profile
from planner.spec.profile_file import SCHEMA_VERSION, read_profile
from planner.tables import Table

NEXT = 5
"""Measurements that are named as the next best."""
MEASURED = "measured"


@dataclass(frozen=True)
class Parameter:
    """One figure or table of a profile: `origin` is measured, transferred or datasheet."""

    name: str
    value: str
    origin: str
    measurements: int = 0
    last: str = ""


@dataclass(frozen=True)
class Status:
    """What a profile file rests on. Without measurements of its own, `record` is None."""

    profile: Profile
    parameters: tuple[Parameter, ...]
    untold: tuple[str, ...]
    next: tuple[Measurement, ...]
    record: Record | None = None

    @property
    def dates(self) -> tuple[str, str] | None:
        """When the first and the last measurement was made; None without any."""
        dates = sorted(entry.date for entry in self.record.entries) if self.record else []
        return (dates[0], dates[-1]) if dates else None

    @property
    def age_days(self) -> float | None:
        """Days since the last measurement."""
        if self.dates is None:
            return None
        return (datetime.now(UTC) - datetime.fromisoformat(self.dates[1])).total_seconds() / 86400

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        failed = [entry for entry in self.record.entries if entry.failure] if self.record else []
        return {
            "schema_version": 1,
            "profile": self.profile.name,
            "level": self.profile.level,
            "age_days": None if self.age_days is None else round(self.age_days, 2),
            "measurements": len(self.record.entries) if self.record else 0,
            "machine": self.record.machine.as_dict() if self.record else None,
            "parameters": [
                {"name": one.name, "value": one.value, "origin": one.origin, "measurements": one.measurements,
                 "date": one.last or None}
                for one in self.parameters
            ],
            "not_told": list(self.untold),
            "failed": {entry.measurement.key: entry.failure for entry in failed},
            "next": [{"name": one.name, "parameters": dict(one.parameters)} for one in self.next],
            "sources": list(self.profile.sources),
            "notes": list(self.profile.notes),
        }  # fmt: skip


def status_of(path: Path, planned: Sequence[Measurement] | None = None) -> Status:
    """The status of a profile file; `planned` is what would be measured, in its order, instead of the usual plan.

    Raises FileFormatError where the file is no profile, or no fit was made of its measurements yet.
    """
    data = read_json(path, schema_version=SCHEMA_VERSION, hint="it is no efficiency profile")
    if "measurements" not in data:
        profile = read_profile(path)
        return Status(profile, tuple(_parameters(profile, Origins((), (), profile.level), ())), (), ())
    record = Record.read(path)
    if not record.profile:
        raise FileFormatError("holds too few measurements for a profile: run planner calibrate run", where=str(path))
    profile, origins = read_profile(path), record.origins
    left = [one for one in planned or usual_plan(record.machine) if one.key not in record.keys]
    parameters = tuple(_parameters(profile, origins, record.entries))
    return Status(profile, parameters, origins.untold, tuple(left[:NEXT]), record)


def _parameters(profile: Profile, origins: Origins, entries: Sequence[Entry]) -> Iterator[Parameter]:
    for name, measured_by in OF_MEASUREMENTS.items():
        yield _parameter(name, _value(getattr(profile, name)), measured_by, origins, entries)
    for (link, collective), fit in profile.collectives.items():
        name = f"{link} {collective}"
        if name in origins.measured or not entries:
            value = f"{fit.efficiency:.2f} of the link, {1e6 * (fit.start + fit.step_latency):.3g} us"
            yield _parameter(name, value, (collective,), origins, entries)


def _parameter(
    name: str, value: str, measured_by: Sequence[str], origins: Origins, entries: Sequence[Entry]
) -> Parameter:
    if name not in origins.measured:
        return Parameter(name, value, origins.rest)
    own = [entry for entry in entries if entry.measurement.name in measured_by and entry.measured is not None]
    return Parameter(name, value, MEASURED, len(own), max((entry.date[:10] for entry in own), default=""))


def _value(value: float | Mapping[str, Table]) -> str:
    """A figure, or how large tables are and between what they lie.

    >>> _value(0.00002)
    '2e-05'
    """
    if isinstance(value, Mapping):
        tables = [f"{name} {table.values.min():.2f} to {table.values.max():.2f}" for name, table in value.items()]
        return ", ".join(tables)
    return f"{value:.4g}"
