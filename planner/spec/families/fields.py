"""A configuration seen through its family: every look-up is checked for presence, type and range."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.errors import FileFormatError

if TYPE_CHECKING:
    from planner.spec.families.family import Count, Family, Trait

COMMON_KEYS: dict[str, tuple[str, ...]] = {
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k", "experts_per_token"),
    "num_shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_intermediate_size": ("shared_expert_intermediate_size",),
    "first_dense_layers": ("first_k_dense_replace",),
    "full_attention_every": ("sliding_window_pattern", "_sliding_window_pattern"),
    "prediction_layers": ("num_nextn_predict_layers", "num_mtp_modules"),
}
"""Planner's name -> the keys that most families use for it; a name that is not listed is its own key."""

LIMITS = {
    "hidden_size": 10**6,
    "num_hidden_layers": 10**4,
    "num_attention_heads": 10**5,
    "num_key_value_heads": 10**5,
    "head_dim": 10**5,
    "num_experts": 10**5,
    "vocab_size": 10**8,
    "max_position_embeddings": 10**12,
}
DEFAULT_LIMIT = 10**8
_ABSENT = object()


class Fields:
    """Look-ups by the planner's names. A value comes from the file, else from the family's class defaults.

    As in transformers, a key that is missing takes the class default, and one that is null what other keys imply.
    `path` is the key of the enclosing table, for messages. Every method raises FileFormatError for a value of the
    wrong type or out of range.
    """

    def __init__(self, config: Mapping[str, Any], family: Family, *, where: str, path: str = "") -> None:
        """See the class."""
        self.config, self.family, self.where, self.path = config, family, where, path

    def error(self, message: str) -> FileFormatError:
        """An error about this configuration."""
        return FileFormatError(message, where=self.where)

    def label(self, name: str) -> str:
        """The key that this family's files use for one of the planner's names."""
        keys = self._keys(name) or (name,)
        return self.path + next((key for key in keys if self._dig(key) is not _ABSENT), keys[0])

    def value(self, name: str) -> Any:
        """What the file or the class defaults hold, unchecked; None where they say nothing or null."""
        found = [value for value in map(self._dig, self._keys(name)) if value is not _ABSENT]
        stated = next((value for value in found if value is not None), None)
        default = self.family.defaults.get(name)
        if stated is not None or (found and not callable(default)):
            return stated
        return default(self) if callable(default) else default

    def stated(self, name: str) -> bool:
        """Whether the file itself gives it a value."""
        return any(self._dig(key) not in (_ABSENT, None) for key in self._keys(name))

    def has(self, name: str) -> bool:
        """Whether the file or the class defaults give it a value."""
        return self.value(name) is not None

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number, or the one that a list repeats for each layer; `default` where there is none."""
        value = self.value(name)
        if value is None:
            if default is None:
                raise self.error(f"{self.label(name)} is missing or null; it must be a whole number")
            return default
        return self._whole(value, self.label(name), least=least, most=LIMITS.get(name, DEFAULT_LIMIT))

    def optional(self, name: str) -> int | None:
        """A whole number of at least 1, or None where there is none (0 counts as none)."""
        return self.count(name, 0, least=0) or None

    def number(self, number: Count) -> int:
        """The value of a family's number, which may depend on other fields."""
        return number(self) if callable(number) else number

    def flag(self, trait: Trait) -> bool:
        """The value of a family's trait: a constant, or the name of the key that decides (false where missing)."""
        if isinstance(trait, bool):
            return trait
        value = self.value(trait)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.error(f"{self.label(trait)} must be true or false, not {shown(value)}")

    def remark(self, note: str | Callable[[Fields], str]) -> str:
        """A family's note, which may depend on the fields."""
        return note(self) if callable(note) else note

    def text(self, name: str) -> str:
        """A piece of text, empty where there is none."""
        value = self.value(name)
        if value is None or isinstance(value, str):
            return value or ""
        raise self.error(f"{self.label(name)} must be a text, not {shown(value)}")

    def words(self, name: str, length: int) -> list[str] | None:
        """One word for each layer, or None; words beyond the layers (of prediction modules) are dropped."""
        if self.value(name) is None:
            return None
        entries = self._entries(name, length)
        if not all(isinstance(word, str) for word in entries):
            raise self.error(f"{self.label(name)} must be a list of words, not {shown(entries)}")
        return entries

    def numbers(self, name: str, length: int) -> list[int]:
        """One whole number for each layer."""
        label = f"an entry of {self.label(name)}"
        return [self._whole(entry, label, least=0, most=DEFAULT_LIMIT) for entry in self._entries(name, length)]

    def _entries(self, name: str, length: int) -> list[Any]:
        value = self.value(name)
        if not isinstance(value, list):
            raise self.error(f"{self.label(name)} must be a list with an entry for each layer, not {shown(value)}")
        if len(value) < length:
            raise self.error(f"{self.label(name)} has {len(value)} entries for {length} layers")
        return value[:length]

    def indices(self, name: str) -> frozenset[int] | None:
        """Numbers of layers, as a list or as text with commas, or None."""
        value = self.value(name)
        if value is None:
            return None
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list):
            raise self.error(f"{self.label(name)} must be a list of layer numbers, not {shown(value)}")
        numbers = [int(p) if isinstance(p, str) and p.strip().isdecimal() and len(p) < 9 else p for p in parts]
        return frozenset(self._whole(n, f"an entry of {self.label(name)}", least=0, most=10**6) for n in numbers)

    def table(self, name: str) -> Mapping[str, Any]:
        """A nested table, empty where there is none."""
        value = self.value(name)
        if value is None or isinstance(value, Mapping):
            return value or {}
        raise self.error(f"{self.label(name)} must be a table, not {shown(value)}")

    def _keys(self, name: str) -> Sequence[str]:
        keys = self.family.keys.get(name, COMMON_KEYS.get(name, (name,)))
        return (keys,) if isinstance(keys, str) else keys

    def _dig(self, key: str) -> Any:
        value: Any = self.config
        for part in key.split("."):
            if value is None or value is _ABSENT:
                return _ABSENT
            if not isinstance(value, Mapping):
                raise self.error(f"{self.path}{key.rpartition('.')[0]} must be a table, not {shown(value)}")
            value = value.get(part, _ABSENT)
        return value

    def _whole(self, value: Any, label: str, *, least: int, most: int) -> int:
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{label} must be a whole number, not {shown(value)}")
        if value < least:
            raise self.error(f"{label} must be at least {least}, not {shown(value)}")
        if value > most:
            raise self.error(f"{label} must be at most {most:,}, not {shown(value)}")
        return value


def shown(value: Any) -> str:
    """A value for a message: short, on one line.

    >>> shown("4096"), shown([1, 2, 3]), shown({"a": {"b": {}}})
    ("the text '4096'", 'the list [1, 2, 3]', 'a table')
    """
    if isinstance(value, Mapping):
        return "a table"
    kind = "the text " if isinstance(value, str) else "the list " if isinstance(value, list) else ""
    return kind + reprlib.repr(value)
