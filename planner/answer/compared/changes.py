"""Changes of a question as people write them: `nic=2x`, `memory=40GB`, `seq-len=8192`, `network=roce-400`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from planner.answer.choices import OFFLOADS
from planner.answer.compared.dials import DIALS, Dial
from planner.answer.question import Question, check_precision, machines_of
from planner.answer.software import check_method, profile_of, stack_of
from planner.errors import SpecError, unknown_name
from planner.quantities import to_base
from planner.spec.cluster import Cluster

WHERE = "--what-if"
USUAL = (
    *("nic=2x", "nic=0.5x", "link=2x", "compute=2x", "memory-bandwidth=2x", "memory=2x", "memory=0.5x"),
    *("seq-len=2x", "batch=2x", "nodes=2x"),
)
"""What `all` stands for."""
LARGEST_FACTOR = 1e6
NAMED = ("network", "precision", "method", "optimizer", "state", "attention", "offload", "stack")
"""What has other names, not other amounts."""


@dataclass(frozen=True, eq=False)
class Change:
    """One change as it was written, in words, and what it makes of a question; `dial` where it is one that turns.

    `apply` raises SpecError where the question cannot be changed so.
    """

    text: str
    words: str
    apply: Callable[[Question], Question]
    dial: Dial | None = None


def changes(text: str) -> tuple[Change, ...]:
    """The changes that `--what-if` names, with commas between them; `all` stands for `USUAL`. Raises SpecError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise SpecError("names no change; write them as nic=2x,memory=40GB", where=WHERE)
    named = [each for part in parts for each in (USUAL if part.lower() == "all" else (part,))]
    return tuple(_change(part) for part in dict.fromkeys(named))


def turned(asked: Question, dial: Dial, by: float) -> Question:
    """The question with so many times as much of something. Raises SpecError where that is no whole number."""
    amount = by * dial.now(asked)
    if dial.whole and (amount < 1 or amount != int(amount)):
        raise SpecError(f"makes {amount:g}, which is no whole number")
    return _with_profile(dial.scaled(asked, by))


def _change(text: str) -> Change:
    name, equals, value = (part.strip() for part in text.partition("="))
    name = name.lower().replace("_", "-")
    if not equals or not value:
        raise SpecError(f"write NAME=VALUE such as nic=2x, not {text!r}", where=WHERE)
    if name in NAMED:
        return Change(text, f"{name} {value}", _explained(text, lambda asked: _named(asked, name, value)))
    if name not in DIALS:
        raise unknown_name("change", name, [*DIALS, *NAMED], where=WHERE)
    dial, factor = DIALS[name], _factor(value, text)
    if factor is not None:
        apply = _explained(text, lambda asked: turned(asked, dial, factor))
        return Change(text, f"{dial.words} x {factor:g}", apply, dial)
    amount = _amount(value, dial, text)
    apply = _explained(text, lambda asked: turned(asked, dial, amount / dial.now(asked)))
    return Change(text, f"{dial.words} {value}", apply, dial)


def _explained(text: str, apply: Callable[[Question], Question]) -> Callable[[Question], Question]:
    """The same, with the change named in its errors."""

    def applied(asked: Question) -> Question:
        try:
            return apply(asked)
        except SpecError as error:
            raise SpecError(str(error), where=text) from error

    return applied


def _factor(value: str, where: str) -> float | None:
    """The factor of `2x`; None of anything else."""
    found = re.fullmatch(r"(\d*\.?\d+)\s*[xX]", value)
    if not found:
        return None
    factor = float(found[1])
    if not 0 < factor <= LARGEST_FACTOR:
        raise SpecError(f"a factor is above 0 and at most {LARGEST_FACTOR:g}, not {found[1]}", where=where)
    return factor


def _amount(value: str, dial: Dial, where: str) -> float:
    """An amount in base units."""
    found = re.fullmatch(r"(\d*\.?\d+(?:e[+-]?\d+)?)\s*([A-Za-z/]*)", value)
    if not found or dial.whole == bool(found[2]):
        example = "a whole number" if dial.whole else f"an amount such as {dial.unit}"
        raise SpecError(f"write a factor such as 2x, or {example}", where=where)
    amount = to_base(float(found[1]), found[2], where=where) if found[2] else float(found[1])
    if not (isfinite(amount) and amount > 0):
        raise SpecError("must be above zero", where=where)
    return amount


def _with_profile(asked: Question) -> Question:
    """The question with the efficiencies of its hardware and software as they now are."""
    return replace(asked, profile=profile_of(asked.cluster, asked.stack, asked.choices.profile))


def _without_network(asked: Question) -> Cluster | str:
    """The cluster before a network was named for it, which says how many NICs its nodes have; as it is otherwise."""
    named = asked.choices.network
    if named is None or asked.plan_file:
        return asked.cluster
    with suppress(SpecError):
        if machines_of(asked.cluster_text, named) == asked.cluster:
            return asked.cluster_text
    return asked.cluster


def _named(asked: Question, name: str, value: str) -> Question:
    field: dict[str, Any] = {name: value}
    choices = replace(asked.choices, **field)
    if name == "network":
        changed = replace(asked, cluster=machines_of(_without_network(asked), value), choices=choices)
    elif name == "stack":
        changed = replace(asked, stack=stack_of(None, value), choices=choices)
    elif name == "offload":
        if value not in OFFLOADS:
            raise SpecError(f"unknown offload {value!r}; known: {', '.join(OFFLOADS)}")
        changed = replace(asked, choices=choices)
    else:
        changed = replace(asked, workload=replace(asked.workload, **field), choices=choices)
    check_method(changed.stack, changed.workload.method)
    check_precision(changed.workload, changed.cluster)
    return _with_profile(changed)
