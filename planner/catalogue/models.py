"""Models by name: one file each in `catalogue/models`, in the keys of their config.json."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from planner.catalogue import names
from planner.spec.model import Model
from planner.spec.read_model import model_from_config, read_model
from planner.spec.toml_file import read_toml

KIND = "models"
VARIANT = re.compile(r"[-_.:](instruct|chat|base|hf|it|pt|thinking)([-_.:].*)?$")
"""Endings of checkpoints that share a model's shape."""


def model(name: str) -> Model:
    """The model of a name, or the one that a config.json (or a folder holding one) describes.

    A name is a slug or an alias of the catalogue, in any case; an organisation before it (meta-llama/...) and the
    ending of a variant (-instruct, -chat) do not matter. Raises SpecError for an unknown name, with the nearest ones,
    and what `read_model` raises for a file.

    >>> model("meta-llama/Llama-3.1-8B-Instruct").parameters
    8030261248
    """
    slug = names.slug_of(KIND, name)
    if slug is None and _is_path(name):
        return read_model(os.path.expanduser(name))
    slug = slug or next(filter(None, (names.slug_of(KIND, spelling) for spelling in _spellings(name))), None)
    if slug is None:
        raise names.unknown("model", name, (KIND,), where="")
    return _from_catalogue(slug)


def model_names() -> list[str]:
    """The slugs of all models, in alphabetical order."""
    return list(names.slugs(KIND))


def _from_catalogue(slug: str) -> Model:
    path = names.path_of(KIND, slug)
    entry = read_toml(path)
    found = model_from_config(entry["config"], name=slug, where=path.name)
    provisional = () if entry.get("source") else ("provisional: no source is recorded for these dimensions",)
    return replace(found, notes=(*found.notes, *provisional))


def _is_path(name: str) -> bool:
    return name.lower().endswith(".json") or name.startswith((".", "/", "~")) or os.path.exists(name)


def _spellings(name: str) -> Iterator[str]:
    """Looser forms: without the organisation, without a variant's ending, with a hyphen before the version."""
    short = name.rsplit("/", 1)[-1].lower().replace(":", "-")
    for form in (short, VARIANT.sub("", short)):
        yield form
        yield re.sub(r"^([a-z]+)(?=\d)", r"\1-", form)
