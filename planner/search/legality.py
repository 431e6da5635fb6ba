"""What is legal, and in words why something is not and what would be right."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from planner.quantities import Column
from planner.search.conditions import all_hold
from planner.search.problem import Problem
from planner.search.rules import RULES, Rule
from planner.spec.plan import PLAN_KINDS, PLAN_SWITCHES, Plan
from planner.spec.stack import LIMITS

LABELS = {
    "tp": "TP",
    "pp": "PP",
    "cp": "CP",
    "dp": "DP",
    "ep": "EP",
    "expert_tp": "expert TP",
    "micro_batch_size": "micro-batch",
    "num_microbatches": "micro-batches",
    "virtual_stages": "virtual stages",
    "first_stage_layers": "first stage's layers",
    "last_stage_layers": "last stage's layers",
    "context_kind": "context parallelism",
}
SHOWN = 16
"""At most so many possible values in a sentence."""


def legal(plans: Plan, problem: Problem) -> Column:
    """The mask of legal plans: a bool, or a column of bools."""
    return np.broadcast_to(all_hold(rule.holds(plans, problem) for rule in RULES), _shape(plans))


def reasons(plan: Plan, problem: Problem) -> list[str]:
    """Why one plan is illegal, each reason with its figures and with what would be right; empty if it is legal."""
    return [reason(rule, problem, plan) for rule in RULES if not rule.holds(plan, problem)]


def reason(rule: Rule, problem: Problem, plan: Plan | None = None) -> str:
    """A rule's reason; with a plan, its figures and the values of the rule's axis that would be right in it."""
    names = [*(f.name for f in fields(Plan)), "dp"]
    labels = {name: _label(name, None if plan is None else getattr(plan, name)) for name in names}
    limits = {name: _figure(getattr(problem.stack, name)) for name in LIMITS}
    figures = {f.name: _figure(getattr(problem, f.name)) for f in fields(problem)}
    words = rule.words.format(**limits | labels | figures)
    return words if plan is None else words + _possible(rule, problem, plan)


def values_of(axis: str, problem: Problem) -> Column:
    """The values of a plan's field (or `dp`) to ask about: every degree up to the largest sensible, every kind."""
    if axis in PLAN_KINDS:
        return np.array(list(PLAN_KINDS[axis]))
    if axis in PLAN_SWITCHES:
        return np.array([0, 1])
    if axis in ("first_stage_layers", "last_stage_layers"):
        return np.arange(problem.num_layers + 1)
    largest = {
        "tp": max(problem.heads, default=1),
        "expert_tp": max(problem.heads, default=1),
        "pp": problem.num_layers,
        "virtual_stages": problem.num_layers,
        "cp": problem.seq_len,
        "ep": problem.num_experts,
        "micro_batch_size": problem.global_batch_size,
        "num_microbatches": problem.global_batch_size,
    }
    return np.arange(1, largest.get(axis, problem.world_size) + 1)


def with_value(plan: Plan, axis: str, values: Column | int) -> Plan:
    """The plan with another value, or a column of values, on an axis."""
    return replace(plan, dp_shard=1, dp_replicate=values) if axis == "dp" else replace(plan, **{axis: values})


def value_name(axis: str, value: int) -> str:
    """A field's value as people write it.

    >>> value_name("sharding", 3), value_name("tp", 8)
    ('zero3', '8')
    """
    return PLAN_KINDS[axis](int(value)).name.lower() if axis in PLAN_KINDS else str(int(value))


def _possible(rule: Rule, problem: Problem, plan: Plan) -> str:
    values = values_of(rule.axis, problem)
    changed = with_value(plan, rule.axis, values)
    right = values[np.broadcast_to(rule.holds(changed, problem), values.shape)]
    if not len(right):
        return ""
    rest = all_hold(r.holds(changed, problem) for r in RULES if r.axis == rule.axis and r.alone)
    together = values[np.isin(values, right) & rest]
    narrower = f" (with the other rules: {_listed(rule.axis, together)})" if 0 < len(together) < len(right) else ""
    return f"; possible: {_listed(rule.axis, right)}{narrower}"


def _listed(axis: str, values: Column) -> str:
    shown = ", ".join(value_name(axis, value) for value in values[:SHOWN])
    return shown if len(values) <= SHOWN else f"{shown}, ... {value_name(axis, values[-1])}"


def _figure(value: Any) -> str:
    if isinstance(value, tuple):
        return " or ".join(str(size) for size in value)
    return str(getattr(value, "name", value))


def _label(name: str, value: Any) -> str:
    label = LABELS.get(name, name.replace("_", " ") if name in PLAN_KINDS else name)
    return label if value is None else f"{label} {value_name(name, value)}"


def _shape(plans: Plan) -> tuple[int, ...]:
    return () if plans.is_scalar else (len(plans),)
