"""Why: sentences that compare two plans term by term, and that say what limits one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from planner.estimate.records import MemoryUse, StepTime
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS, Term
from planner.quantities import format_bandwidth, format_bytes, format_seconds
from planner.spec.cluster import Cluster
from planner.spec.plan import Plan
from planner.topology.links import GroupLinks, Links

WORTH_NAMING = 0.25
"""A term is named when it makes up this share of what separates two plans."""
MOST_NAMED = 3

GROUPS: Mapping[str, tuple[str, ...]] = {
    "tp_exposed": ("tp",),
    "cp_exposed": ("cp",),
    "ep_exposed": ("ep",),
    "pp_exposed": ("pp",),
    "dp_exposed": ("dp_shard", "dp_replicate", "expert_shard", "expert_replicate"),
}
"""Communication term -> the groups that talk in it."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One plan with its estimates, as scalars."""

    plan: Plan
    time: StepTime
    memory: MemoryUse


def time_terms(time: StepTime) -> dict[str, float]:
    """Term -> seconds, in the order of the record."""
    return {field.name: float(getattr(time, field.name)) for field in fields(time)}


def memory_items(memory: MemoryUse) -> dict[str, float]:
    """Item -> bytes, in the order of the record."""
    return {name: float(getattr(memory, name)) for name in MemoryUse.ITEMS}


def why_slower(best: Candidate, other: Candidate) -> str:
    """Where the other plan's additional step time goes, and what it saves against that."""
    return _balance(time_terms(best.time), time_terms(other.time), TIME_TERMS, format_seconds)


def why_more_memory(best: Candidate, other: Candidate) -> str:
    """Where the other plan's additional memory goes, and what it saves against that."""
    return _balance(memory_items(best.memory), memory_items(other.memory), MEMORY_TERMS, format_bytes)


def _balance(
    best: Mapping[str, float], other: Mapping[str, float], terms: Mapping[str, Term], show: Callable[[float], str]
) -> str:
    """`0.2 s more recomputation, though 0.1 s less bubble`."""
    more = {name: other[name] - best[name] for name in best}
    costs = _largest({name: value for name, value in more.items() if value > 0})
    savings = _largest({name: -value for name, value in more.items() if value < 0})
    if not costs:
        return "no term is larger"
    paid = " and ".join(f"{show(value)} more {terms[name].title}" for name, value in costs.items())
    total = sum(costs.values())
    saved = [
        f"{show(value)} less {terms[name].title}" for name, value in savings.items() if value >= WORTH_NAMING * total
    ]
    return paid + (f", though {' and '.join(saved)}" if saved else "")


def _largest(values: Mapping[str, float]) -> dict[str, float]:
    """The values worth naming, largest first."""
    total = sum(values.values())
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return {name: value for name, value in ordered[:MOST_NAMED] if value >= WORTH_NAMING * total} or dict(ordered[:1])


def limits(candidate: Candidate, links: Links, cluster: Cluster) -> str:
    """What takes the step's time: the resource that is busy longest, and the link of the largest communication.

    `links` are those of the one plan.
    """
    terms, total = time_terms(candidate.time), float(candidate.time.total)
    by_kind: dict[str, float] = {}
    for name, value in terms.items():
        by_kind[TIME_TERMS[name].kind] = by_kind.get(TIME_TERMS[name].kind, 0.0) + value
    kind = max(by_kind, key=lambda each: by_kind[each])
    parts = sorted((name for name in terms if TIME_TERMS[name].kind == kind), key=lambda each: -terms[each])
    named = [f"{TIME_TERMS[name].title} {terms[name] / total:.0%}" for name in parts[:2] if terms[name] > 0.02 * total]
    sentence = f"{kind} takes {by_kind[kind] / total:.0%} of the step ({', '.join(named)})"
    talk = max(GROUPS, key=lambda name: terms[name])
    if terms[talk] < 0.01 * total:
        return f"{sentence}; communication is hidden or absent"
    return f"{sentence}; {TIME_TERMS[talk].title} {terms[talk] / total:.0%} over {_link(talk, links, cluster)}"


def _link(term: str, links: Links, cluster: Cluster) -> str:
    """The link that paces the slowest group of a term, with what one rank gets of it."""
    groups = [getattr(links, name) for name in GROUPS[term]]
    slowest = min((group for group in groups if group.size > 1), key=_ring_bandwidth, default=groups[0])
    crosses = slowest.size > slowest.local
    if crosses and slowest.local * slowest.remote_bandwidth <= slowest.local_bandwidth:
        return f"{cluster.node.fabric.name} ({format_bandwidth(float(slowest.remote_bandwidth))} per GPU)"
    return f"{cluster.node.link} ({format_bandwidth(float(slowest.local_bandwidth))} per GPU)"


def _ring_bandwidth(group: GroupLinks) -> float:
    """Nominal bus bandwidth of a ring over the group."""
    across = group.local * group.remote_bandwidth if group.size > group.local else np.inf
    return float(np.minimum(group.local_bandwidth, across))
