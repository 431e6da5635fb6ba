"""The file of a calibration: a profile that the planner reads, and the measurements that it was made from.

Every finished measurement is in the file before the next one starts: the file is replaced as a whole each time, so that
whoever reads it, or finds it after a kill, sees a complete one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibration.measurements import Entry, Machine, Measured, Measurement, read_entries
from calibration.origins import Origins
from planner.errors import FileFormatError
from planner.spec.json_files import read_json, write_json
from planner.spec.profile import Profile
from planner.spec.profile_file import OWN_KEYS, SCHEMA_VERSION, write_profile


@dataclass
class Record:
    """What was measured so far on one machine, kept in a file. `profile` is what the last fit made of it."""

    path: Path
    machine: Machine
    entries: list[Entry] = field(default_factory=list)
    profile: Mapping[str, Any] = field(default_factory=dict)
    origins: Origins = field(default_factory=lambda: Origins((), (), "datasheet"))

    @classmethod
    def open(cls, path: Path, machine: Machine) -> Record:
        """The record in a file, or a new one where there is no file.

        Raises FileFormatError where the file is something else, or of another machine.
        """
        if not path.exists():
            return cls(path, machine)
        found = cls.read(path)
        differences = list(found.machine.differences(machine))
        if differences:
            raise FileFormatError(
                f"was measured elsewhere ({'; '.join(differences)}): name another file with --out", where=str(path)
            )
        return found

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a file. Raises FileFormatError where it holds no measurements."""
        data = read_json(path, schema_version=SCHEMA_VERSION, hint="no calibration wrote it")
        if "machine" not in data or "measurements" not in data:
            raise FileFormatError("holds no measurements of this machine: name another file", where=str(path))
        try:
            machine, origins = Machine.from_dict(data["machine"]), Origins.from_dict(data["origins"])
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"machine or origins: lacks {error}", where=str(path)) from error
        entries = read_entries(data["measurements"], where=f"{path}: measurements")
        known = {"schema_version", *OWN_KEYS}
        return cls(path, machine, entries, {key: value for key, value in data.items() if key not in known}, origins)

    @property
    def keys(self) -> set[str]:
        """Measurements that are done, those that failed among them."""
        return {entry.measurement.key for entry in self.entries}

    def add(self, measurement: Measurement, measured: Measured | None, *, failure: str = "") -> None:
        """Keep a finished measurement, in memory and on disk."""
        self.entries.append(Entry(measurement, measured, now(), "" if measured else failure))
        self.save()

    def save(self) -> None:
        """Replace the file."""
        own = {
            "origins": self.origins.as_dict(),
            "machine": self.machine.as_dict(),
            "measurements": [entry.as_dict() for entry in self.entries],
        }
        write_json(self.path, {"schema_version": SCHEMA_VERSION} | dict(self.profile) | own)

    def fitted(self, profile: Profile, origins: Origins) -> None:
        """Put a profile in front of the measurements, and what of it they told."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profile.json"
            write_profile(profile, path)
            data = json.loads(path.read_text(encoding="utf-8"))
        self.origins = origins
        self.profile = {key: value for key, value in data.items() if key != "schema_version"}
        self.save()

    def results(self, name: str) -> list[tuple[Mapping[str, Any], Measured]]:
        """Parameters and results of all measurements of a name that gave one."""
        return [
            (entry.measurement.parameters, entry.measured)
            for entry in self.entries
            if entry.measurement.name == name and entry.measured is not None
        ]


def now() -> str:
    """The time as it is written beside a measurement: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
