"""Software stacks by name: the conventions of each training framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from planner.catalogue.names import FOLDER, normalised
from planner.errors import FileFormatError, unknown_name
from planner.quantities import to_base
from planner.spec.stack import LIMITS, Stack
from planner.spec.toml_file import read_toml

DEFAULT_STACK = "generic"
"""What is assumed when nobody says what will run the plan."""
IN_GIB = ("context", "communication_buffers")
PROFILE_UNITS = {
    "fixed_time_ms": "ms",
    "launch_time_us": "us",
    "overlap_penalty": "1",
    "compute_scale": "1",
    "memory_error": "1",
}
"""What an entry may say of its profiles, with the unit that each key names."""
UNLIMITED: dict[str, Any] = {name: getattr(Stack("unlimited"), name) for name in LIMITS}
"""A stack's limits where it has none."""
OWN_KEYS = ("like", "aliases", "profile", "own_limits")


def stack(name: str = DEFAULT_STACK, *, where: str = "") -> Stack:
    """A stack by name or alias, whatever the case.

    Raises SpecError, which starts with `where`, with the nearest names for an unknown one.

    >>> stack("megatron").weight_bytes, stack("megatron-lm").gradient_bytes
    (2.0, 4.0)
    """
    return _stack(stack_slug(name, where=where))


def stack_names() -> Mapping[str, tuple[str, ...]]:
    """Every stack's name -> its aliases."""
    return {slug: tuple(entry.get("aliases", ())) for slug, entry in _entries().items()}


def stack_slug(name: str, *, where: str = "") -> str:
    """The name that an alias means. Raises SpecError, which starts with `where`, for an unknown one."""
    wanted, spelled = normalised(name), _spelled()
    if wanted not in spelled:
        raise unknown_name("stack", wanted, spelled, where=where)
    return spelled[wanted]


def ancestry(name: str) -> tuple[str, ...]:
    """A stack and those that it starts from, nearest first.

    >>> ancestry("mlperf-nemo")
    ('mlperf-nemo', 'nemo', 'megatron-core', 'pytorch')
    """
    slug = stack_slug(name)
    parent = _entries()[slug].get("like")
    return (slug, *(ancestry(parent) if parent else ()))


def profile_defaults(name: str) -> dict[str, float]:
    """What profiles of a stack start from before anything is measured, by field of `Profile`; times in seconds.

    >>> profile_defaults("llm-foundry")["fixed_time"]
    0.038
    """
    found: dict[str, float] = {}
    for slug in reversed(ancestry(name)):
        entry = _entries()[slug].get("profile", {})
        found |= {key.removesuffix("_ms").removesuffix("_us"): _in_base(key, value) for key, value in entry.items()}
    return found


@cache
def _spelled() -> dict[str, str]:
    """Every spelling -> the name that it means."""
    return {normalised(each): slug for slug, aliases in stack_names().items() for each in (slug, *aliases)}


@cache
def _stack(slug: str) -> Stack:
    entry = _entries()[slug]
    parent = _stack(entry["like"]) if "like" in entry else Stack(slug)
    known = {field.name for field in fields(Stack)} - {"name"} | {f"{name}_gib" for name in IN_GIB}
    own = {key: value for key, value in entry.items() if key not in OWN_KEYS}
    if wrong := set(own) - known:
        raise FileFormatError(f"unknown key {', '.join(sorted(wrong))}", where=f"stacks.toml: {slug}")
    limits = UNLIMITED if entry.get("own_limits") else {}
    return replace(parent, name=slug, **{**limits, **dict(_field(key, value) for key, value in own.items())})


def _field(key: str, value: Any) -> tuple[str, Any]:
    if key.endswith("_gib"):
        return key.removesuffix("_gib"), to_base(value, "GiB")
    return key, tuple(value) if isinstance(value, list) else value


def _in_base(key: str, value: float) -> float:
    if key not in PROFILE_UNITS:
        raise FileFormatError(f"unknown key {key}", where="stacks.toml: profile")
    return to_base(value, PROFILE_UNITS[key])


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return read_toml(FOLDER / "stacks.toml")
