"""What can go wrong, each with the exit code that the command line gives it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class PlannerError(Exception):
    """Any failure that the planner explains in one line. `exit_code` is the command line's (DESIGN section 9)."""

    exit_code = 1


class SpecError(PlannerError, ValueError):
    """The user's input is wrong: says what, where (file, key) and what would be right."""

    exit_code = 2

    def __init__(self, message: str, *, where: str = "") -> None:
        """`where` names the file, key or flag at fault; it is put before the message."""
        super().__init__(f"{where}: {message}" if where else message)


class FileFormatError(SpecError):
    """A file that cannot be read or is not what it should be."""

    exit_code = 4


class NoFeasiblePlan(PlannerError):
    """No plan is both legal and within memory. `rejected` counts the candidates by reason."""

    exit_code = 3

    def __init__(self, message: str, rejected: Mapping[str, int] | None = None) -> None:
        """`rejected` maps each reason, in words, to the number of candidates that fell to it."""
        super().__init__(message)
        self.rejected = dict(rejected or {})


def unknown_name(kind: str, name: str, known: Iterable[str], *, where: str = "") -> SpecError:
    """A SpecError for an unknown name, with the nearest known ones.

    >>> print(unknown_name("model", "lama-3.1-8b", ["llama-3.1-8b", "gpt2"]))
    unknown model 'lama-3.1-8b'; did you mean llama-3.1-8b?
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"known: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
    )
    return SpecError(f"unknown {kind} {name!r}; {hint}", where=where)
