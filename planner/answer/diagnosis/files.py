"""What a file is: settings, a plan, a model, a cluster, a log, an error, a machine's own words."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from planner.answer.diagnosis.records import Taken
from planner.catalogue.hardware import cluster as read_cluster
from planner.catalogue.models import model as read_model
from planner.dumps.reading import dump_of
from planner.dumps.recognise import recognise
from planner.dumps.run_records import TrainingLog
from planner.dumps.signs import KINDS, read_signs
from planner.dumps.text import read_text
from planner.dumps.training_logs import read_training_log
from planner.emit.reading import megatron
from planner.emit.reading.recognise import read_settings
from planner.emit.reading.settings import Settings, Source
from planner.errors import FileFormatError, SpecError
from planner.quantities import counted
from planner.spec.plan_file import FILE_NAME, read_plan_file

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".py", ".toml", ".yaml", ".yml", ".json")
"""Endings of files of settings; others are looked at as logs first."""
MODEL_KEYS = ("model_type", "architectures", "num_hidden_layers", "hidden_size", "n_layer")
ARGUMENT = re.compile(r"^\W{0,20}(?:\d{1,5}[:>]\s?)?([a-z][a-z0-9_]{2,60}) \.{2,60} (\S.{0,200}?)\s*$", re.ASCII)
"""A line of the list of arguments that Megatron-LM prints at its start."""
SPELLED = {"fp8": "fp8_format", "fp4": "fp4_format", "num_virtual_stages": "num_virtual_stages_per_pipeline_rank"}
"""Arguments that are listed under another name than they are given."""
LARGEST = 1_000_000
"""Characters of a file of settings: readers of words take long for more."""
FEWEST_ARGUMENTS = 20
KNOWN = (
    "settings that `planner import plan` reads, a plan.json, a model's config.json, a cluster's TOML, a trainer's "
    "log, an error message, logs of nccl-tests and NCCL, what nvidia-smi, ibstat and the like print"
)


def take(path: Path) -> Taken:
    """A file as what it is. Never raises for what a file holds: then it is unknown, and `problem` says why."""
    if path.is_dir():
        inside = path / FILE_NAME
        return take(inside) if inside.is_file() else Taken(path, problem="is a folder without a plan.json")
    try:
        text = read_text(path)
    except SpecError as error:
        return Taken(path, problem=_reason(error, path))
    if not text.strip():
        return Taken(path, problem="is empty")
    return _structured(path, text) or _log(path, text) or _settings(path, text, "holds nothing that is known: " + KNOWN)


def _reason(error: SpecError, path: Path) -> str:
    """An error without the name of the file, which stands beside it already."""
    return str(error).removeprefix(f"{path}: ")


def _structured(path: Path, text: str) -> Taken | None:
    """A file in a language of settings; None where it is to be looked at as a log."""
    suffix = path.suffix.lower()
    if suffix not in SCRIPTS:
        return None
    if suffix in (".json", ".toml"):
        found = _parsed(text, suffix)
        if suffix == ".json" and found and "plan" in found and "schema_version" in found:
            return _checked(Taken(path, "plan.json", is_plan=True), lambda name: read_plan_file(Path(name)))
        if suffix == ".json" and found and any(key in found for key in MODEL_KEYS):
            return _checked(Taken(path, "a model's config.json", is_model=True), read_model)
        if suffix == ".toml" and {"nodes", "pools"} & found.keys():
            return _checked(Taken(path, "a cluster's TOML", is_cluster=True), read_cluster)
    taken = _settings(path, text, "")
    if taken.known:
        return taken
    return _log(path, text) or taken


def _checked(taken: Taken, read: Callable[[str], object]) -> Taken:
    """A file as it was taken, or as unknown where its reader refuses it."""
    try:
        read(str(taken.path))
    except SpecError as error:
        return Taken(taken.path, problem=_reason(error, taken.path))
    return taken


def _parsed(text: str, suffix: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _settings(path: Path, text: str, otherwise: str) -> Taken:
    if len(text) > LARGEST:
        return Taken(path, problem=otherwise or "is too large to be settings")
    try:
        settings = read_settings(path)
    except FileFormatError as error:
        return Taken(path, problem=otherwise or _reason(error, path))
    return Taken(path, settings.what, settings=settings)


def _log(path: Path, text: str) -> Taken | None:
    """Everything that a text printed by programs holds; None where that is nothing."""
    dump, problem = None, ""
    if recognise(text):
        try:
            dump = dump_of(text, path=str(path))
        except FileFormatError as error:
            problem = _reason(error, path)
    log, signs, settings = read_training_log(text), read_signs(text), _arguments(text, path)
    words = list(dump.formats) if dump else []
    words += [settings.what] if settings else []
    words += [_log_words(log)] if log else []
    words += _sign_words([sign.kind for sign in signs]) if signs else []
    if not words and not problem:
        return None
    return Taken(path, " and ".join(words) or "unknown", problem, dump, log, signs, settings)


def _log_words(log: TrainingLog) -> str:
    most = max(len(readings) for readings in log.readings.values())
    return f"a log of {log.trainer} ({counted(most, 'figure')})"


def _sign_words(kinds: list[str]) -> list[str]:
    """At most three kinds of messages, in the order in which they came."""
    names = list(dict.fromkeys(KINDS[kind][0] for kind in kinds))
    return [f"messages ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"]


def _arguments(text: str, path: Path) -> Settings | None:
    """The settings that Megatron-LM lists at the start of its log; None where it does not, or they cannot be read."""
    found = dict(_listed(text))
    if len(found) < FEWEST_ARGUMENTS or "tensor_model_parallel_size" not in found:
        return None
    words = [word for name, value in found.items() for word in _words(name, value)]
    try:
        settings = megatron.read(words, Source(path))
    except SpecError:
        return None
    world = found.get("world_size", "")
    whole = {"world_size": int(world)} if world.isdecimal() and len(world) < 8 else {}
    return Settings(**{**settings.__dict__, **whole, "what": "arguments of Megatron-LM in its log"})


def _listed(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if " .." in line and (argument := ARGUMENT.match(line[:400])):
            yield argument[1], argument[2]


def _words(name: str, value: str) -> list[str]:
    """An argument as it would be written on a command line; what is None or False is left away."""
    if value in ("None", "False", "[]", ""):
        return []
    flag = f"--{SPELLED.get(name, name).replace('_', '-')}"
    return [flag] if value == "True" else [flag, *value.strip("[]").replace("'", "").split(", ")]
