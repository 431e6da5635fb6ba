"""Which format a file of settings has, and its settings."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from planner.emit.reading import accelerate, deepspeed, megatron, torchtitan
from planner.emit.reading.script import SCRIPT, constants
from planner.emit.reading.settings import Settings, Source, text_of
from planner.emit.reading.shell import flags, processes, shell_words
from planner.spec.plan_file import FILE_NAME

KNOWN = (
    "scripts and command lines with arguments of Megatron-LM or torchtitan, torchtitan's TOML and modules, "
    "accelerate's YAML, DeepSpeed's JSON"
)
OWN_TRAINER = "trainer"
"""The planner's own trainer, as a module."""


def read_settings(path: Path) -> Settings:
    """The settings of a file, or of what it starts beside itself. Raises FileFormatError where it is none of them."""
    source = Source(path)
    text = text_of(path)
    try:
        found = _by_suffix(text, source) or _script(shell_words(text), source)
    except (RecursionError, MemoryError) as error:  # of the parser of Python, which has a limit of its own
        raise source.error("is nested too deeply to be settings") from error
    if found is None:
        raise source.error(f"holds no settings that are known: {KNOWN}")
    return found


def _by_suffix(text: str, source: Source) -> Settings | None:
    """The settings of a file whose suffix says what language it is; None where that is none of them."""
    match source.path.suffix.lower():
        case ".json":
            return _json(text, source)
        case ".toml":
            return torchtitan.read_toml(_parsed(text, source, "TOML"), source)
        case ".py":
            return _python(text, source)
        case ".yaml" | ".yml":
            data = _parsed(text, source, "YAML")
            return accelerate.read(data, source) if accelerate.reads(data) else None
    return None


def _parsed(text: str, source: Source, language: str) -> Any:
    try:
        return tomllib.loads(text) if language == "TOML" else next(iter(yaml.safe_load_all(text)), None)
    except (ValueError, yaml.YAMLError) as error:
        raise source.error(f"is not {language}: {' '.join(str(error).split())[:120]}") from error


def _json(text: str, source: Source) -> Settings:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise source.error(f"is not JSON: {error}") from error
    if isinstance(data, Mapping) and "schema_version" in data and "plan" in data:
        raise source.error("is a plan.json already: planner fits and planner explain take it as it is")
    if not deepspeed.reads(data):
        raise source.error(f"holds no settings that are known: {KNOWN}")
    return deepspeed.read(data, source, constants(source.path.with_name(SCRIPT)))


def _python(text: str, source: Source) -> Settings:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise source.error(f"is not Python: {error}") from error
    if torchtitan.is_module(tree):
        return torchtitan.read_module(tree, source)
    for name in ("deepspeed.json", "accelerate.yaml", "megatron_arguments.txt"):
        if source.path.with_name(name).is_file():
            return read_settings(source.path.with_name(name))
    raise source.error("makes no configuration of torchtitan, and no settings lie beside it")


def _script(words: Sequence[str], source: Source) -> Settings | None:
    """What the words of a script say, or the file that they name; None where that is nothing."""
    if megatron.reads(words):
        return megatron.read(words, source)
    if (OWN_TRAINER, FILE_NAME) in pairwise(words):
        raise source.error(f"starts what is in {FILE_NAME}: planner fits and planner explain take that as it is")
    world_size = processes(flags(words))
    for path in _named(words, source.path):
        settings = _module(words, path) if path.suffix == ".py" else read_settings(path)
        return replace(settings, world_size=world_size or settings.world_size)
    return torchtitan.read_flags(words, source) if torchtitan.reads(words) else None


def _module(words: Sequence[str], path: Path) -> Settings:
    """A configuration of torchtitan with the options of the command line over it."""
    source = Source(path)
    try:
        tree = ast.parse(text_of(path))
    except (SyntaxError, ValueError) as error:
        raise source.error(f"is not Python: {error}") from error
    if not torchtitan.is_module(tree):
        return _python(text_of(path), source)
    function = next(iter(flags(words).get("--config", [])), "")
    values, untold = torchtitan.module_values(tree, source, function)
    settings = torchtitan.read_flags(words, source, values)
    return replace(settings, untold=(*untold, *settings.untold))


def _named(words: Sequence[str], script: Path) -> Iterator[Path]:
    """Files of settings beside a script that its words name, the most telling first."""
    found = flags(words)
    names = [
        *found.get("--config-file", [])[:1],
        *found.get("--deepspeed", [])[:1],
        *found.get("--deepspeed-config", [])[:1],
    ]
    names += [*found.get("--job.config-file", [])[:1]]
    names += [f"{name}.py" for name in found.get("--module", [])[:1]]
    names += ["megatron_arguments.txt"] if "start_megatron.py" in words else []
    names += [word for word in words if word.endswith(".py")]
    for name in names:
        path = script.parent / name
        if path.is_file() and path.resolve() != script.resolve():
            yield path
