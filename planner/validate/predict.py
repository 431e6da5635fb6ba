"""Predictions for measured runs, from their stated configuration alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.catalogue.profiles import profile
from planner.errors import SpecError
from planner.estimate.interval import Interval, Verdict, memory_interval, outcome, step_time_interval
from planner.estimate.memory import memory_use
from planner.estimate.records import MemoryUse, Role, StepTime
from planner.estimate.step_time import step_time
from planner.quantities import Bytes, Column, Seconds
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan, Recompute
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.group_links import group_links
from planner.topology.links import Links
from planner.validate.defaults import run_defaults
from planner.validate.runs import Configuration, MeasuredRun

REPORTING = {"first": Role.FIRST, "last": Role.LAST}
"""Pipeline rank whose memory a stack reports, where it is not the fullest."""
ProfileOf = Callable[[Cluster, str], Profile]
"""From a cluster and a stack's name to the efficiencies to predict with."""


@dataclass(frozen=True)
class Prediction:
    """What one row comes to; 0 or None where `skipped` says why there is no prediction.

    `memory` is of the row's memory kind. `times` and `uses` hold the terms of all runs evaluated together, this one's
    in their row `row`.
    """

    id: str
    skipped: str
    step_time: Seconds = 0.0
    step_time_interval: Interval | None = None
    memory: Bytes = 0.0
    memory_interval: Interval | None = None
    verdict: Verdict = Verdict.FITS
    level: str = ""
    times: StepTime | None = None
    uses: MemoryUse | None = None
    row: int = 0


def catalogue_profile(cluster: Cluster, stack_name: str) -> Profile:
    """The catalogue's profile of the cluster's accelerator under a stack."""
    return profile(cluster.accelerator, stack_name, fabric=cluster.node.fabric)


def predict(runs: Sequence[MeasuredRun], profile_of: ProfileOf = catalogue_profile) -> list[Prediction]:
    """One prediction per run, in order. Runs that differ in their plan and batch only are evaluated together."""
    predictions = [Prediction(run.id, run.skipped) for run in runs]
    known = _remembered(profile_of)
    for group in alike(runs):
        for row, prediction in zip(group.rows, _predicted(group, runs, known), strict=True):
            predictions[row] = prediction
    return predictions


@dataclass(frozen=True, eq=False)
class Alike:
    """Runs that are evaluated together: numbers of `rows` in their list, and their plans as columns."""

    rows: list[int]
    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    plans: Plan

    @cached_property
    def links(self) -> Links:
        """What the groups of every axis get. Raises SpecError where the plans do not fit the cluster."""
        return group_links(self.plans, self.cluster)

    def times(self, profile: Profile) -> StepTime:
        """Step times by term. Raises SpecError where the accelerator lacks the precision."""
        return step_time(
            self.model, self.plans, self.workload, self.cluster, self.links, profile=profile, stack=self.stack
        )


def alike(runs: Sequence[MeasuredRun]) -> list[Alike]:
    """Groups of one model, cluster, stack and workload but for the batch, which the plan carries."""
    found: dict[Any, list[int]] = defaultdict(list)
    for row, run in enumerate(runs):
        if run.configuration:
            one = run.configuration
            workload = replace(one.workload, global_batch_size=1)
            found[id(one.model), id(one.cluster), workload, one.stack].append(row)
    return [_alike(rows, [each for row in rows if (each := runs[row].configuration)]) for rows in found.values()]


def _alike(rows: list[int], shared: Sequence[Configuration]) -> Alike:
    first, plans = shared[0], stacked([each.plan for each in shared])
    return Alike(rows, first.model, first.cluster, first.workload, first.stack, plans)


def _remembered(profile_of: ProfileOf) -> ProfileOf:
    """The same function, asked once for each accelerator, network and stack."""
    known: dict[tuple[str, str, float, str], Profile] = {}

    def remembered(cluster: Cluster, stack_name: str) -> Profile:
        fabric = cluster.node.fabric
        key = (cluster.accelerator.name, fabric.kind, float(fabric.nic_bandwidth), stack_name)
        if key not in known:
            known[key] = profile_of(cluster, stack_name)
        return known[key]

    return remembered


def _predicted(group: Alike, runs: Sequence[MeasuredRun], profile_of: ProfileOf) -> Iterator[Prediction]:
    own = [runs[row] for row in group.rows]
    try:
        yield from _evaluated(group, own, profile_of)
    except SpecError as error:
        yield from (Prediction(run.id, str(error)) for run in own)


def _evaluated(group: Alike, runs: Sequence[MeasuredRun], profile_of: ProfileOf) -> list[Prediction]:
    efficiencies = profile_of(group.cluster, group.stack.name)
    times = group.times(efficiencies)
    uses = memory_use(group.model, group.plans, group.workload, group.stack)
    verdicts = _verdicts(group, uses, runs)
    seconds, memory = np.asarray(times.total, dtype=float), _reported(group, uses, [run.memory_kind for run in runs])
    return [
        Prediction(
            id=run.id,
            skipped="",
            step_time=float(seconds[row]),
            step_time_interval=step_time_interval(float(seconds[row]), efficiencies),
            memory=float(memory[row]),
            memory_interval=_memory_interval(group, run, float(memory[row]), efficiencies),
            verdict=Verdict(int(verdicts[row])),
            level=efficiencies.level,
            times=times,
            uses=uses,
            row=row,
        )
        for row, run in enumerate(runs)
    ]


def stacked(plans: Sequence[Plan]) -> Plan:
    """Scalar plans as one record of columns."""
    return Plan(**{field.name: np.array([int(getattr(plan, field.name)) for plan in plans]) for field in fields(Plan)})


OPEN = ("recompute_mode none", "micro_batch ")
"""How assumptions start that leave a run's memory open: it could have computed more again, or smaller pieces."""


OPEN_ERROR = 0.25
"""Least error of such a run's memory."""


def _verdicts(group: Alike, uses: MemoryUse, runs: Sequence[MeasuredRun]) -> Column:
    """`Verdict` codes; a run that leaves its memory open fails only where its most sparing form would."""
    usable = group.cluster.accelerator.usable_memory
    codes = outcome(uses.peak, uses.required, usable)
    again, pieces = (np.array([any(a.startswith(kind) for a in run.assumed) for run in runs]) for kind in OPEN)
    if not (again | pieces).any():
        return codes
    plans = group.plans
    sparing = replace(
        plans,
        recompute=np.where(again, Recompute.FULL, plans.recompute),
        micro_batch_size=np.where(pieces, 1, plans.micro_batch_size),
        num_microbatches=np.where(pieces, plans.micro_batch_size * plans.num_microbatches, plans.num_microbatches),
    )
    least = memory_use(group.model, sparing, group.workload, group.stack).required
    return np.where((again | pieces) & (least <= usable), np.minimum(codes, Verdict.TIGHT), codes)


def _memory_interval(group: Alike, run: MeasuredRun, memory: Bytes, efficiencies: Profile) -> Interval:
    """80 % interval of what the row counts; allocators round and fragment, and other processes add to a device."""
    accelerator = group.cluster.accelerator
    usable = accelerator.memory if run.memory_kind == "device" else accelerator.usable_memory
    left_open = any(assumption.startswith(OPEN) for assumption in run.assumed)
    return memory_interval(memory, efficiencies, usable=usable, spread=OPEN_ERROR if left_open else 0.0)


def _reported(group: Alike, uses: MemoryUse, kinds: Sequence[str]) -> Column:
    """Peak bytes as each row counts them, on the rank whose memory the stack reports."""
    rank = run_defaults(group.stack.name).memory_rank
    if rank in REPORTING:
        uses = memory_use(group.model, group.plans, group.workload, group.stack, roles=(REPORTING[rank],))
    usable = group.cluster.accelerator.usable_memory
    return of_kind(replace(uses, waiting=np.clip(usable - uses.peak, 0.0, uses.waiting)), kinds)


def of_kind(uses: MemoryUse, kinds: Sequence[str]) -> Column:
    """The allocator's hand-outs, its reservation, or the whole device, as each row says."""
    kind = np.array(kinds)
    readings = {
        "allocated": uses.allocated,
        "device": uses.peak + uses.waiting,
        "reserved": uses.reserved,
    }
    return np.select([kind == name for name in readings], list(readings.values()), np.nan)
