"""The file of jobs that share a pool, and what of the pool is reached over a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.catalogue.hardware import network
from planner.errors import FileFormatError, SpecError
from planner.quantities import Bytes, BytesPerSecond, Scalar, Seconds
from planner.spec.batch import read_tokens
from planner.spec.cluster import Fabric
from planner.spec.figures import at, check_complete, check_keys, count, positive_number, read_figures, table, text
from planner.spec.toml_file import read_toml

HOUR = 3600.0
MOST_JOBS = 32
MOST_HOURS = 1e6
MOST_STEPS = 10**9
MOST_TRAY = 1024
OF_QUESTION = tuple(
    field.name for field in fields(Choices) if field.name not in ("network", "tokens", "objective", "usd_per_gpu_hour")
)
"""Keys of a job that are options of a question."""
COUNTS = ("seq_len", "lora_rank")
OF_JOB = (
    "name", "model", "tokens", "steps", "priority", "arrival_hours", "deadline_hours", "nodes", "min_gpus", "max_gpus",
)  # fmt: skip


@dataclass(frozen=True)
class JobSpec:
    """One job of the file: what is trained, for how long, and what it may have. Times count from the file's hour 0.

    Either `tokens` or `steps` is given. `nodes` is what it has to itself today, None where that is to be found.
    """

    name: str
    model: str
    choices: Choices
    tokens: Scalar | None
    steps: int | None
    priority: Scalar = 1.0
    arrival: Seconds = 0.0
    deadline: Seconds = inf
    nodes: int | None = None
    min_gpus: int = 1
    max_gpus: int = MOST_STEPS


@dataclass(frozen=True)
class RemoteMemory:
    """A pool of memory; `bandwidth` is what each accelerator gets of it, one direction."""

    size: Bytes
    bandwidth: BytesPerSecond
    latency: Seconds


@dataclass(frozen=True)
class PoolFile:
    """The jobs, and the fabrics over which a disaggregated pool may be reached, each with one port per accelerator.

    `tray` accelerators keep their own links among each other. `memory` is None where nothing is said of it.
    """

    jobs: tuple[JobSpec, ...]
    fabrics: tuple[Fabric, ...]
    tray: int
    memory: RemoteMemory | None


def read_jobs(path: Path) -> PoolFile:
    """The jobs of a TOML file; the schema is in docs/pool.md.

    Raises FileFormatError, naming file and key, for a file that cannot be read and for anything in it that is wrong.
    """
    entries = read_toml(path)
    try:
        return _file(entries, where=str(path))
    except FileFormatError:
        raise
    except SpecError as error:
        raise FileFormatError(str(error)) from error


def fabric_of(name: str, *, where: str) -> Fabric:
    """A network of the catalogue as a fabric with one port of it per accelerator. Raises SpecError if unknown."""
    found = network(name, where=where)
    return Fabric(found.name, found.kind, 1, found.nic_bandwidth, found.latency)


def _file(entries: Mapping[str, Any], *, where: str) -> PoolFile:
    check_keys(entries, ("jobs", "fabric", "memory"), where=where)
    check_complete(entries, ("jobs",), where=where)
    listed = entries["jobs"]
    if not isinstance(listed, list) or not listed:
        raise SpecError("must be a list of tables: [[jobs]]", where=at(where, "jobs"))
    if len(listed) > MOST_JOBS:
        raise SpecError(f"must be {MOST_JOBS} jobs at most, not {len(listed):,}", where=at(where, "jobs"))
    jobs = tuple(_job(entry, where=at(where, f"jobs[{i}]")) for i, entry in enumerate(listed))
    names = [job.name for job in jobs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"two jobs are named {twice[0]!r}", where=at(where, "jobs"))
    fabrics, tray = _fabric(entries["fabric"], where=at(where, "fabric")) if "fabric" in entries else ((), 1)
    memory = _memory(entries["memory"], where=at(where, "memory")) if "memory" in entries else None
    return PoolFile(jobs, fabrics, tray, memory)


def _job(entry: Any, *, where: str) -> JobSpec:
    job = table(entry, where=where)
    check_keys(job, (*OF_JOB, *OF_QUESTION), where=where)
    check_complete(job, ("name", "model"), where=where)
    if ("tokens" in job) == ("steps" in job):
        raise SpecError("needs either tokens or steps", where=where)
    name = text(job["name"], where=at(where, "name"))
    if not name.strip() or not name.isprintable():
        raise SpecError("must be one line of printable characters", where=at(where, "name"))
    arrival = _hours(job, "arrival_hours", 0.0, where=where)
    deadline = _hours(job, "deadline_hours", inf, where=where)
    if deadline <= arrival:
        raise SpecError("must be after the arrival", where=at(where, "deadline_hours"))
    least, most = (_count(job, key, other, where=where) for key, other in (("min_gpus", 1), ("max_gpus", MOST_STEPS)))
    if most < least:
        raise SpecError(f"must be at least min_gpus, {least}", where=at(where, "max_gpus"))
    return JobSpec(
        name=name,
        model=text(job["model"], where=at(where, "model")),
        choices=Choices(**{key: _choice(job[key], key, where=where) for key in OF_QUESTION if key in job}),
        tokens=read_tokens(str(job["tokens"]), where=at(where, "tokens")) if "tokens" in job else None,
        steps=_count(job, "steps", 1, where=where) if "steps" in job else None,
        priority=positive_number(job.get("priority", 1.0), where=at(where, "priority"), most=1e6),
        arrival=arrival,
        deadline=deadline,
        nodes=_count(job, "nodes", 1, where=where) if "nodes" in job else None,
        min_gpus=least,
        max_gpus=most,
    )


def _choice(value: Any, key: str, *, where: str) -> Any:
    """An option of the question, as `Choices` takes it."""
    if key in COUNTS:
        return count(value, where=at(where, key), most=MOST_STEPS)
    if key == "global_batch_size" and isinstance(value, int) and not isinstance(value, bool):
        return value
    return text(value, where=at(where, key))


def _count(job: Mapping[str, Any], key: str, other: int, *, where: str) -> int:
    return count(job.get(key, other), where=at(where, key), most=MOST_STEPS)


def _hours(job: Mapping[str, Any], key: str, other: Seconds, *, where: str) -> Seconds:
    if key not in job:
        return other
    return HOUR * positive_number(job[key], where=at(where, key), zero=key == "arrival_hours", most=MOST_HOURS)


def _fabric(entry: Any, *, where: str) -> tuple[tuple[Fabric, ...], int]:
    """Fabrics by name or with figures of one port, and how many accelerators a tray has."""
    keys = table(entry, where=where)
    check_keys(keys, ("name", "bandwidth", "latency", "gpus_per_tray"), where=where)
    tray = count(keys.get("gpus_per_tray", 1), where=at(where, "gpus_per_tray"), most=MOST_TRAY)
    name = text(keys.get("name", ""), where=at(where, "name"))
    if "bandwidth" in keys or "latency" in keys:
        check_complete(keys, ("bandwidth", "latency"), where=where)
        figures, _ = read_figures(keys, {"bandwidth": "B/s", "latency": "s"}, where=where)
        own = Fabric(name or "the file's fabric", "infiniband", 1, figures["bandwidth"], figures["latency"])
        return (own,), tray
    return tuple(fabric_of(each, where=at(where, "name")) for each in names_of(name)), tray


def names_of(given: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in given.split(",") if name.strip()]


def _memory(entry: Any, *, where: str) -> RemoteMemory:
    keys = table(entry, where=where)
    check_keys(keys, ("size", "bandwidth", "latency"), where=where)
    check_complete(keys, ("size", "bandwidth", "latency"), where=where)
    figures, _ = read_figures(keys, {"size": "B", "bandwidth": "B/s", "latency": "s"}, where=where)
    return RemoteMemory(**figures)
