"""Names of the catalogue's files: slugs, aliases, and the spellings that people use for them."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from planner.errors import SpecError, unknown_name

FOLDER = Path(__file__).parent
VENDOR_WORDS = ("nvidia", "amd", "intel", "tesla", "geforce", "instinct")


def normalised(name: str) -> str:
    """A name as it is compared: lower case, hyphens, no vendor's brand.

    >>> normalised("NVIDIA GeForce RTX 4090"), normalised("H100_SXM5-80GB")
    ('rtx-4090', 'h100-sxm5-80gb')
    """
    words = [word for word in re.split(r"[\s_-]+", name.strip().lower()) if word]
    while len(words) > 1 and words[0] in VENDOR_WORDS:
        words = words[1:]
    return "-".join(words)


def names(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Slug -> aliases of every file of a kind ("accelerators", "nodes"), in alphabetical order."""
    return {slug: tuple(header(kind, slug).get("aliases", ())) for slug in slugs(kind)}


def slug_of(kind: str, name: str) -> str | None:
    """The slug that a name or alias means, or None. Other files are opened only if no file bears the name."""
    wanted = normalised(name)
    return wanted if wanted in slugs(kind) else _by_alias(kind).get(wanted)


def path_of(kind: str, slug: str) -> Path:
    """The file of a slug."""
    return FOLDER / kind / f"{slug}.toml"


def unknown(kind: str, name: str, known: tuple[str, ...], *, where: str) -> SpecError:
    """The error for a name that no file of the `known` folders bears: the nearest names and aliases, or the slugs."""
    wanted = normalised(name) or name
    every = [normalised(each) for folder in known for slug in slugs(folder) for each in (slug, *_aliases(folder, slug))]
    near = difflib.get_close_matches(wanted, every, cutoff=0.5)
    return unknown_name(kind, wanted, near or [slug for folder in known for slug in slugs(folder)], where=where)


@cache
def slugs(kind: str) -> tuple[str, ...]:
    """All slugs of a kind, in alphabetical order."""
    return tuple(sorted(path.stem for path in (FOLDER / kind).glob("*.toml")))


@cache
def header(kind: str, slug: str) -> dict[str, Any]:
    """What a file says before its first figure: aliases, standard node, notes. Much quicker than parsing it all."""
    head, _, _ = path_of(kind, slug).read_text(encoding="utf-8").partition("\n[")
    return tomllib.loads(head)


@cache
def _by_alias(kind: str) -> dict[str, str]:
    return {normalised(alias): slug for slug in slugs(kind) for alias in _aliases(kind, slug)}


def _aliases(kind: str, slug: str) -> tuple[str, ...]:
    return tuple(header(kind, slug).get("aliases", ()))
