"""What the user holds fixed: `--fix tp=8,pp=1..4,sharding=zero1|fsdp` as allowed values by field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from planner.errors import SpecError, unknown_name
from planner.quantities import Column
from planner.search.conditions import all_hold
from planner.search.legality import reason, value_name, values_of, with_value
from planner.search.problem import Problem
from planner.search.rules import RULES
from planner.spec.plan import PLAN_KINDS, PLAN_SWITCHES, ContextKind, Plan, Recompute, Schedule, Sharding

Values = tuple[int | range, ...]
Fix = Mapping[str, int | Iterable[int | range]]
"""Field -> what it may be. Fields of a plan, and `dp`, `sharding_kind`."""

FLAG = "--fix"
HYBRID = 16
"""Added to a sharding's code in `sharding_kind` where the sharded model also has replicas."""
LARGEST = 2**31

DEGREES = (
    *("tp", "pp", "cp", "ep", "expert_tp", "dp", "dp_shard", "dp_replicate"),
    *("micro_batch_size", "num_microbatches", "virtual_stages", "first_stage_layers", "last_stage_layers"),
)
FIELDS = (*DEGREES, *PLAN_KINDS, *PLAN_SWITCHES)
OTHER_NAMES = {
    "etp": "expert_tp",
    "mbs": "micro_batch_size",
    "micro_batch": "micro_batch_size",
    "microbatches": "num_microbatches",
    "gradient_accumulation": "num_microbatches",
    "grad_accum": "num_microbatches",
    "vpp": "virtual_stages",
    "v": "virtual_stages",
    "shard": "dp_shard",
    "replicate": "dp_replicate",
    "zero": "sharding",
    "ac": "recompute",
    "checkpointing": "recompute",
    "cp_kind": "context_kind",
    "sync": "gradient_sync",
    "order": "rank_order",
    "sp": "sequence_parallel",
    "compile": "compiled",
}
SHARDING_NAMES: dict[str, tuple[int, ...]] = {
    "none": (Sharding.NONE,),
    "ddp": (Sharding.NONE,),
    "zero0": (Sharding.NONE,),
    "0": (Sharding.NONE,),
    "1": (Sharding.ZERO1, Sharding.ZERO1 + HYBRID),
    "zero1": (Sharding.ZERO1, Sharding.ZERO1 + HYBRID),
    "distributed_optimizer": (Sharding.ZERO1, Sharding.ZERO1 + HYBRID),
    "2": (Sharding.ZERO2,),
    "zero2": (Sharding.ZERO2,),
    "3": (Sharding.ZERO3, Sharding.ZERO3 + HYBRID),
    "zero3": (Sharding.ZERO3, Sharding.ZERO3 + HYBRID),
    "zero3_keep": (Sharding.ZERO3_KEEP, Sharding.ZERO3_KEEP + HYBRID),
    "fsdp": (Sharding.ZERO3, Sharding.ZERO3_KEEP),
    "hsdp": (Sharding.ZERO3 + HYBRID, Sharding.ZERO3_KEEP + HYBRID),
}
NAMES: dict[str, dict[str, int]] = {
    "recompute": {"off": Recompute.NONE},
    "schedule": {
        "1f1b": Schedule.ONE_F_ONE_B,
        "afab": Schedule.GPIPE,
        "interleaved_1f1b": Schedule.INTERLEAVED,
        "interleaved1f1b": Schedule.INTERLEAVED,
        "zb": Schedule.ZB_H1,
        "zbh1": Schedule.ZB_H1,
    },
    "context_kind": {
        "p2p": ContextKind.RING,
        "a2a": ContextKind.ULYSSES,
        "allgather": ContextKind.ALL_GATHER,
        "gather": ContextKind.ALL_GATHER,
    },
}
"""Spellings beside the names of the kinds themselves."""
SWITCH_NAMES = {"1": 1, "true": 1, "on": 1, "yes": 1, "0": 0, "false": 0, "off": 0, "no": 0}


def parse_fix(text: str) -> dict[str, Values]:
    """The allowed values by field, from `field=value|value,field=low..high`.

    `low..` and `..high` are open ranges. Raises SpecError for an unknown field or value, or one given twice.

    >>> parse_fix("tp=8,pp=1..4,schedule=1f1b|interleaved")
    {'tp': (8,), 'pp': (range(1, 5),), 'schedule': (2, 3)}
    """
    fix: dict[str, Values] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, values = part.partition("=")
        field = _field(name)
        if not equals or not values.strip():
            raise SpecError(f"{part!r} has no value; write {field}=...", where=FLAG)
        choices = [value for text in values.split("|") for value in _values(field, text)]
        key = "sharding_kind" if field == "sharding" else field
        if key in fix:
            raise SpecError(f"{field} is given twice; write {field}={values}|...", where=FLAG)
        fix[key] = tuple(dict.fromkeys(choices))
    return fix


def allowed(fix: Fix, name: str, column: Column) -> Column:
    """The mask of a column's values that a field may have."""
    if name not in fix:
        return np.ones(len(column), dtype=bool)
    ranges = [value for value in _several(fix[name]) if isinstance(value, range)]
    points = [value for value in _several(fix[name]) if not isinstance(value, range)]
    within = [(column >= each.start) & (column < each.stop) for each in ranges]
    return np.logical_or.reduce([np.isin(column, points), *within])


def sharding_kind(plans: Plan) -> Column:
    """The sharding's code, plus HYBRID where a sharded model has replicas (HSDP, MiCS, several optimizer instances)."""
    hybrid = (np.asarray(plans.sharding) != Sharding.NONE) & (np.asarray(plans.dp_replicate) > 1)
    return plans.sharding + HYBRID * hybrid


def check_fix(fix: Fix, problem: Problem) -> None:
    """Raise SpecError where no allowed value of some field is possible in any plan, with the reason and what is."""
    for name in fix:
        if name not in (*FIELDS, "sharding_kind"):
            raise unknown_name("field", name, FIELDS, where=FLAG)
    if "sharding_kind" in fix:
        codes = [code % HYBRID for code in _several(fix["sharding_kind"]) if not isinstance(code, range)]
        fix = {**fix, "sharding": codes}
    for name in (field for field in FIELDS if field in fix):
        values = values_of(name, problem)
        column = with_value(Plan(), name, values)
        possible = np.ones(len(values), dtype=bool) & all_hold(
            rule.holds(column, problem) for rule in RULES if rule.axis == name and rule.alone
        )
        if not (possible & allowed(fix, name, values)).any():
            raise SpecError(_why_not(fix, name, problem, values[possible]), where=FLAG)


def _why_not(fix: Fix, name: str, problem: Problem, possible: Column) -> str:
    first = next(iter(_several(fix[name])), 0)
    value = first.start if isinstance(first, range) else int(first)
    plan = with_value(Plan(), name, max(value, 1) if name in DEGREES else value)
    broken = [rule for rule in RULES if rule.axis == name and rule.alone and not rule.holds(plan, problem)]
    if broken:
        return reason(broken[0], problem, plan)
    return f"{name} {value} is out of range; possible: {', '.join(value_name(name, each) for each in possible[:16])}"


def _several(values: int | Iterable[int | range]) -> tuple[int | range, ...]:
    return (values,) if isinstance(values, int | np.integer) else tuple(values)


def _field(name: str) -> str:
    key = name.strip().lower().replace("-", "_")
    field = OTHER_NAMES.get(key, key)
    if field not in FIELDS:
        raise unknown_name("field", name.strip(), (*FIELDS, *OTHER_NAMES), where=FLAG)
    return field


def _values(field: str, text: str) -> tuple[int | range, ...]:
    name = text.strip().lower().replace("-", "_").replace("zero_", "zero")
    if field in DEGREES:
        return (_degree(field, text.strip()),)
    known = _known(field)
    if name not in known:
        raise SpecError(f"unknown {field} {text.strip()!r}; possible: {', '.join(known)}", where=FLAG)
    return tuple(int(code) for code in known[name])


def _known(field: str) -> dict[str, tuple[int, ...]]:
    if field == "sharding":
        return SHARDING_NAMES
    if field in PLAN_SWITCHES:
        return {name: (value,) for name, value in SWITCH_NAMES.items()}
    names = {member.name.lower(): int(member) for member in PLAN_KINDS[field]} | NAMES.get(field, {})
    return {name: (value,) for name, value in names.items()}


def _degree(field: str, text: str) -> int | range:
    match = re.fullmatch(r"(\d*)(\.\.)?(\d*)", text)
    if not match or not (match[1] or match[3]):
        raise SpecError(f"{field}={text} is not a whole number or a range such as 1..4", where=FLAG)
    if not match[2]:
        return int(match[1])
    values = range(int(match[1] or 1), int(match[3] or LARGEST - 1) + 1)
    if not values:
        raise SpecError(f"{field}={text} is empty; write the lower end first", where=FLAG)
    return values
