"""What a file of settings says of a plan and a job, in the planner's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError

LARGEST = 2**31
MOST_CHARACTERS = 2_000_000
"""Characters above which a file is no file of settings: more would take seconds to split into words."""


@dataclass(frozen=True)
class Settings:
    """Fields of a Plan and of a Workload, as far as they are told.

    A framework's default counts as told. Of the degrees, `dp_shard` and `dp_replicate` may be missing: what is left of
    the ranks is theirs. `sharding` is what becomes of weights where there is more than one rank to shard over.
    `layers_per_stage` makes the layers of every chunk of the pipeline from the number of layers, where a file tells.
    `model` is a config.json beside the file. `untold` says in words what could not be told, and what was taken for it.
    """

    what: str
    stack: str
    plan: Mapping[str, int]
    job: Mapping[str, Any] = field(default_factory=dict)
    world_size: int = 0
    layers_per_stage: Callable[[int], tuple[int, ...]] | None = None
    model: Path | None = None
    experts_by_ep_or_tp: bool = False
    """Whether experts are divided over the tensor ranks exactly where they are not dealt to several (torchtitan)."""
    untold: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A file that is being read: errors name it."""

    path: Path

    def error(self, message: str) -> FileFormatError:
        """A FileFormatError at this file."""
        return FileFormatError(message, where=str(self.path))

    def whole(self, name: str, value: Any) -> int:
        """A value as a whole number from -1 up. Raises FileFormatError where it is none."""
        try:
            number = int(value) if not isinstance(value, bool | float) else None
        except (TypeError, ValueError):
            number = None
        if number is None or not -1 <= number < LARGEST:
            raise self.error(f"{name} should be a whole number, not {_shown(value)}")
        return number

    def truth(self, name: str, value: Any) -> bool:
        """A value as true or false. Raises FileFormatError where it is neither."""
        text = str(value).strip().lower()
        if text not in ("true", "false", "yes", "no", "1", "0"):
            raise self.error(f"{name} should be true or false, not {_shown(value)}")
        return text in ("true", "yes", "1")

    def one_of(self, name: str, value: Any, known: Mapping[str, Any]) -> Any:
        """What a name stands for. Raises FileFormatError for an unknown one, with those that are known."""
        if not isinstance(value, str) or value not in known:
            raise self.error(f"unknown {name} {_shown(value)}; known: {', '.join(known)}")
        return known[value]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def text_of(path: Path) -> str:
    """The text of a file. Raises FileFormatError where it cannot be read or is too large."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise FileFormatError("is not UTF-8 text", where=str(path)) from error
    if len(text) > MOST_CHARACTERS:
        raise FileFormatError(f"has more than {MOST_CHARACTERS:,} characters, too many for settings", where=str(path))
    return text


def model_beside(path: Path) -> Path | None:
    """The config.json in the folder of a file, if there is one."""
    config = path.parent / "config.json"
    return config if config.is_file() else None
