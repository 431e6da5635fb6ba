"""What can be measured and what was: a name with parameters, and the median of its repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from planner.errors import FileFormatError
from planner.quantities import Bytes, Count, Scalar, Seconds

Parameter = int | float | str
UNITS = ("seconds", "bytes")


@dataclass(frozen=True)
class Measurement:
    """One thing to measure; `name` is a function of `calibration.measure.registry`, which takes the parameters."""

    name: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells it from all others, for people too.

        >>> Measurement("gemm", {"m": 64, "dtype": "fp32"}).key
        'gemm dtype=fp32 m=64'
        """
        return " ".join([self.name, *(f"{name}={value}" for name, value in sorted(self.parameters.items()))])


@dataclass(frozen=True)
class Measured:
    """What a measurement gave: the median over `n` repeats (of the slowest rank), and how far these lie apart.

    `spread` is the distance between the quartiles over the median. `parts` are further figures of the same moment, such
    as what two things take alone that were timed together.
    """

    value: Seconds | Bytes
    spread: Scalar = 0.0
    n: Count = 1
    unit: str = "seconds"
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A finished measurement: its result, or in one line why there is none."""

    measurement: Measurement
    measured: Measured | None
    date: str
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        one = {"name": self.measurement.name, "parameters": dict(self.measurement.parameters), "date": self.date}
        if self.measured is None:
            return one | {"failed": self.failure}
        result = {self.measured.unit: self.measured.value, "spread": round(self.measured.spread, 4)}
        parts = {"parts": dict(self.measured.parts)} if self.measured.parts else {}
        return one | result | {"n": self.measured.n} | parts

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Entry:
        """The inverse of `as_dict`. Raises KeyError, TypeError or ValueError where `data` is no such thing."""
        measurement = Measurement(str(data["name"]), dict(data["parameters"]))
        if "failed" in data:
            return cls(measurement, None, str(data["date"]), str(data["failed"]))
        unit = next(unit for unit in UNITS if unit in data)
        parts = {str(name): float(value) for name, value in data.get("parts", {}).items()}
        result = Measured(float(data[unit]), float(data["spread"]), int(data["n"]), unit, parts)
        return cls(measurement, result, str(data["date"]))


@dataclass(frozen=True)
class Machine:
    """Where measurements were made. All ranks measured at the same time, as they compute in a training step.

    `memory` is what one rank may use, `cache` the last cache that data is kept out of, `threads` those of one rank.
    """

    device: str
    name: str
    host: str
    cores: Count
    processes: Count
    nodes: Count
    threads: Count
    memory: Bytes
    cache: Bytes
    multiprocessors: Count = 0
    half: str = "bf16"
    """The 16-bit precision that matrix units have."""
    clocks: str = ""
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    SAME = ("device", "name", "host", "cores", "processes", "nodes", "threads", "driver", "versions")
    """What has to be equal for measurements to be put side by side."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Machine:
        """The inverse of `as_dict`. Raises KeyError or TypeError where `data` is no such thing."""
        return cls(**{each.name: data[each.name] for each in fields(cls)})

    def differences(self, other: Machine) -> Iterator[str]:
        """In what two machines differ, in words."""
        for name in self.SAME:
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                yield f"{name} {_words(here)}, not {_words(there)}"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {each}" for key, each in value.items())
    return str(value)


def read_entries(data: Any, *, where: str) -> list[Entry]:
    """Finished measurements of a JSON list. Raises FileFormatError where it is no such list."""
    try:
        return [Entry.from_dict(one) for one in data]
    except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise FileFormatError(f"an entry is no measurement ({error})", where=where) from error
