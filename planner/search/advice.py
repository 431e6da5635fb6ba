"""What to say when nothing fits: how much is missing, of what, and which change would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planner.errors import NoFeasiblePlan, PlannerError
from planner.estimate.records import MemoryUse
from planner.quantities import counted, format_bytes
from planner.search.enumerate import Candidates, enumerate_plans
from planner.search.fitting import (
    DEVICE_MEMORY,
    ITEM_WORDS,
    Fitting,
    MemoryEstimate,
    device_fits,
    host_fits,
    memory_limit,
)
from planner.search.fix import Fix, allowed
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Offload, RankOrder, Recompute
from planner.spec.stack import Stack, unsupported
from planner.spec.workload import Workload

NODE_FACTORS = (2, 4, 8)
LEAST_SEQUENCE = 1024
"""Sequences shorter than this are not advised to be halved."""
LEAN: Fix = {"recompute": (Recompute.FULL,), "rank_order": (RankOrder.TP_CP_DP_PP,)}
"""The choices that need least memory are enough to see whether anything fits."""


@dataclass(frozen=True)
class Case:
    """A question, or what becomes of it by a change. `words` say the change; one of each `remedy` is mentioned."""

    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    fix: Fix = field(default_factory=dict)
    words: str = ""
    remedy: str = ""


def nothing_fits(case: Case, candidates: Candidates, memory: Fitting, estimate: MemoryEstimate) -> NoFeasiblePlan:
    """The error for a question all of whose plans need too much."""
    worst, count = max(memory.rejected.items(), key=lambda reason: reason[1])
    remedies = list(_what_helps(case, estimate))
    helps = f"it would fit with {', or '.join(remedies)}" if remedies else "none of the usual changes would make it fit"
    cause = worst.removeprefix(DEVICE_MEMORY)
    plans = counted(len(candidates), "legal plan")
    words = f"none of {plans} fits, most often because of {cause} ({count:,})"
    return NoFeasiblePlan(
        f"{words}; {_nearest(case, candidates, memory, estimate)}; {helps}", {**candidates.rejected, **memory.rejected}
    )


def _nearest(case: Case, candidates: Candidates, memory: Fitting, estimate: MemoryEstimate) -> str:
    """The plan with the smallest peak, and what it lacks."""
    use = estimate(case.model, candidates.row(int(memory.peak.argmin())), case.workload, case.stack)
    peak, limit = float(use.peak), float(memory_limit(case.cluster))
    largest = max(MemoryUse.ITEMS, key=lambda name: float(getattr(use, name)))
    size = format_bytes(float(getattr(use, largest)))
    lacking = f", {format_bytes(peak - limit)} too much" if peak > limit else ""
    return (
        f"the smallest needs {format_bytes(peak)} per GPU of {format_bytes(limit)} that may be used{lacking}, "
        f"the largest item {ITEM_WORDS[largest]} ({size})"
    )


def _what_helps(case: Case, estimate: MemoryEstimate) -> Iterator[str]:
    """The first change of each remedy that makes some plan fit."""
    helped: set[str] = set()
    for change in _changes(case):
        possible = change.remedy not in helped and not unsupported(change.stack, change.workload)
        if possible and _fits_somehow(change, estimate):
            helped.add(change.remedy)
            yield change.words


def _changes(case: Case) -> Iterator[Case]:
    workload = case.workload
    yield from _other_choices(case)
    yield from _smaller_states(case)
    if workload.method == "full":
        yield replace(case, workload=replace(workload, method="lora"), words="--method lora", remedy="method")
    if workload.method != "qlora":
        yield replace(case, workload=replace(workload, method="qlora"), words="--method qlora", remedy="method")
    for factor in NODE_FACTORS:
        pools = tuple(replace(pool, num_nodes=factor * pool.num_nodes) for pool in case.cluster.pools)
        larger = replace(case.cluster, pools=pools)
        yield replace(
            case, cluster=larger, words=f"{larger.num_nodes} such nodes ({larger.world_size} GPUs)", remedy="nodes"
        )
    if workload.seq_len >= 2 * LEAST_SEQUENCE:
        half = workload.seq_len // 2
        yield replace(case, workload=replace(workload, seq_len=half), words=f"--seq-len {half}", remedy="sequence")


def _smaller_states(case: Case) -> Iterator[Case]:
    """Fewer bytes for optimizer states, for all states, for both."""
    workload = case.workload
    eight_bit: dict[str, Any] = {"optimizer": "adamw-8bit"} if workload.optimizer == "adamw" else {}
    sixteen_bit: dict[str, Any] = {"state": "16bit"} if workload.state == "mixed" else {}
    both = eight_bit | sixteen_bit if eight_bit and sixteen_bit else {}
    for change in (eight_bit, sixteen_bit, both):
        if change:
            words = " ".join(f"--{name} {value}" for name, value in change.items())
            yield replace(case, workload=replace(workload, **change), words=words, remedy="states")


def _other_choices(case: Case) -> Iterator[Case]:
    """Changes of what the user holds fixed, and offloading unless the user decided on it."""
    for name, least, words in (("recompute", int(Recompute.FULL), "full"), ("micro_batch_size", 1, "1")):
        if not allowed(case.fix, name, np.array([least])).all():
            yield replace(case, fix={**case.fix, name: (least,)}, words=f"--fix {name}={words}", remedy=name)
    if len(case.fix):
        kept = {name: values for name, values in case.fix.items() if name == "offload"}
        yield replace(case, fix=kept, words="no --fix", remedy="fix")
    if "offload" not in case.fix:
        for kind in (Offload.OPTIMIZER, Offload.ALL):
            fix = {**case.fix, "offload": (kind,)}
            yield replace(case, fix=fix, words=f"--offload {kind.name.lower()}", remedy="offload")


def _fits_somehow(case: Case, estimate: MemoryEstimate) -> bool:
    """Whether any plan of the case fits."""
    lean = {name: values for name, values in LEAN.items() if name not in case.fix}
    try:
        candidates = enumerate_plans(
            case.model, case.cluster, case.workload, stack=case.stack, fix={**case.fix, **lean}
        )
    except PlannerError:
        return False
    uses = (estimate(case.model, plans, case.workload, case.stack) for plans in candidates.chunks())
    return any(bool((device_fits(use, case.cluster) & host_fits(use, case.cluster)).any()) for use in uses)
