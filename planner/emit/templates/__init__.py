"""Texts of emitted files, with places for what a plan fills in."""

from __future__ import annotations

from importlib.resources import files
from string import Template


def filled(name: str, **values: object) -> str:
    """A text of this folder with its `$name` places filled in; `$$` stands for a dollar sign."""
    text = files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(values)
