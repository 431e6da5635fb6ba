"""Of the plans that a target can express, the nearest to one that it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from planner.errors import PlannerError
from planner.estimate.memory import memory_use
from planner.estimate.step_time import step_time
from planner.quantities import Column
from planner.search.enumerate import Candidates, enumerate_plans
from planner.search.fitting import device_fits, host_fits
from planner.search.fix import FIELDS, parse_fix
from planner.search.legality import value_name
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import PLAN_SWITCHES, Plan
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.group_links import placed_links

TRIED = 200
"""Plans that are asked about, the nearest first; a reason that stands against so many stands against the job."""
NOT_PINNED = ("dp",)
"""Fields of `--fix` that others settle."""


@dataclass(frozen=True)
class Software:
    """A job, and the software that is to run it."""

    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    profile: Profile


def nearest_plan(plan: Plan, job: Software, accepted: Callable[[Plan], bool]) -> Plan | None:
    """The accepted plan that fits and differs from `plan` in the fewest fields, the fastest of equals; None if none."""
    try:
        candidates = enumerate_plans(
            job.model, job.cluster, job.workload, stack=job.stack, fix=_as_switched(plan, job.stack)
        )
    except PlannerError:
        return None
    in_order = _in_order(plan, job, candidates)
    return next((each for each, _ in zip(in_order, range(TRIED), strict=False) if accepted(each)), None)


def fix_text(plan: Plan, job: Software) -> str:
    """What `--fix` takes to leave this plan alone of all; fields that the others settle are left out.

    Empty where no text can, because the search passes the plan over.
    """
    values = {name: _value(name, getattr(plan, name)) for name in FIELDS if name not in NOT_PINNED}
    if not _alone(plan, values, job):
        return ""
    for name in reversed(list(values)):
        fewer = {field: value for field, value in values.items() if field != name}
        if _alone(plan, fewer, job):
            values = fewer
    return ",".join(f"{name}={value}" for name, value in values.items())


def differences(one: Plan, other: Plan) -> list[str]:
    """The fields in which two plans differ, with both values: `tp 8 -> 4`."""
    pairs = [(field.name, getattr(one, field.name), getattr(other, field.name)) for field in fields(Plan)]
    return [f"{name} {value_name(name, a)} -> {value_name(name, b)}" for name, a, b in pairs if a != b]


def _as_switched(plan: Plan, stack: Stack) -> dict[str, tuple[int, ...]]:
    """What a search leaves off unless it is asked for: as the plan has it, and off."""
    asked = {name: (int(getattr(plan, name)), 0) for name in ("offload", "gradient_sync", "async_tp")}
    return {**asked, "compiled": (int(plan.compiled), int(stack.compiled))}


def _in_order(plan: Plan, job: Software, candidates: Candidates) -> Iterator[Plan]:
    """The candidates that fit, from the nearest on, each number of differences from the fastest on."""
    plans = candidates.plans
    apart = sum(
        np.asarray(getattr(plans, field.name) != getattr(plan, field.name)).astype(int) for field in fields(Plan)
    )
    for number in np.unique(apart):
        rows = np.flatnonzero(apart == number)
        use = memory_use(job.model, candidates.rows(rows), job.workload, job.stack)
        rows = rows[np.asarray(device_fits(use, job.cluster) & host_fits(use, job.cluster))]
        if len(rows):
            yield from (candidates.row(int(row)) for row in rows[np.argsort(_seconds(job, candidates.rows(rows)))])


def _seconds(job: Software, plans: Plan) -> Column:
    links = placed_links(plans, job.cluster)
    time = step_time(job.model, plans, job.workload, job.cluster, links, profile=job.profile, stack=job.stack)
    return np.asarray(time.total)


def _value(name: str, value: int) -> str:
    return str(bool(value)).lower() if name in PLAN_SWITCHES else value_name(name, value)


def _alone(plan: Plan, values: dict[str, str], job: Software) -> bool:
    """Whether a `--fix` leaves this plan and no other."""
    fix = parse_fix(",".join(f"{name}={value}" for name, value in values.items()))
    try:
        candidates = enumerate_plans(job.model, job.cluster, job.workload, stack=job.stack, fix=fix)
    except PlannerError:
        return False
    return len(candidates) == 1 and not differences(plan, candidates.row(0))
