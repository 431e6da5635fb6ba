"""Why: sentences that compare two plans term by term, and that say what limits one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from planner.cost.collectives import bus_bandwidth
from planner.estimate.records import MemoryUse, StepTime
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS, Term
from planner.quantities import format_bandwidth, format_bytes, format_seconds
from planner.spec.cluster import Cluster
from planner.topology.links import GroupLinks, Links

WORTH_NAMING = 0.25
"""A term is named when it makes up this share of what separates two plans."""
MOST_NAMED = 3
WORTH_SAYING = 0.02
"""A resource that is busy for a smaller share of the step does not limit it."""
ALMOST_ALL = 0.9
"""A term with this share of its resource's time stands for all of it."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "tp_exposed": ("tp",),
    "cp_exposed": ("cp",),
    "ep_exposed": ("ep",),
    "pp_exposed": ("pp",),
    "dp_exposed": ("dp_shard", "dp_replicate", "expert_shard", "expert_replicate"),
}
"""Communication term -> the groups that talk in it."""


def time_terms(time: StepTime) -> dict[str, float]:
    """Term -> seconds, in the order of the record."""
    return {field.name: float(getattr(time, field.name)) for field in fields(time)}


def memory_items(memory: MemoryUse) -> dict[str, float]:
    """Item -> bytes, in the order of the record."""
    return {name: float(getattr(memory, name)) for name in MemoryUse.ITEMS}


def why_slower(best: StepTime, other: StepTime) -> str:
    """Where the other plan's additional step time goes, and what it saves against that."""
    return _balance(time_terms(best), time_terms(other), TIME_TERMS, format_seconds)


def why_more_memory(best: MemoryUse, other: MemoryUse) -> str:
    """Where the other plan's additional memory goes, and what it saves against that."""
    return _balance(memory_items(best), memory_items(other), MEMORY_TERMS, format_bytes)


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


def limits(time: StepTime, links: Links, cluster: Cluster) -> str:
    """What takes the step's time: the resource that is busy longest, what else counts, and over which link.

    `time` and `links` are those of one plan, as scalars.
    """
    terms, total = time_terms(time), float(time.total)
    by_kind: dict[str, list[str]] = {}
    for name in sorted(terms, key=lambda each: -terms[each]):
        by_kind.setdefault(TIME_TERMS[name].kind, []).append(name)
    shares = {kind: sum(terms[name] for name in names) / total for kind, names in by_kind.items()}
    first, *others = sorted(shares, key=lambda kind: -shares[kind])
    largest, *second = by_kind[first][:2]
    worthy = [largest, *(name for name in second if terms[name] >= WORTH_SAYING * total)]
    named = [_named(name, terms[name] / total, links, cluster) for name in worthy]
    parts = [f"{first} takes {shares[first]:.0%} of the step ({', '.join(named)})"]
    for kind in others:
        largest = by_kind[kind][0]
        share = terms[largest] / total
        if shares[kind] >= WORTH_SAYING:
            whole = f"{kind} {shares[kind]:.0%}, mostly " if share < ALMOST_ALL * shares[kind] else ""
            parts.append(whole + _named(largest, share, links, cluster))
    if shares["communication"] < WORTH_SAYING:
        parts.append("communication is hidden or absent")
    return "; ".join(parts)


def _named(term: str, share: float, links: Links, cluster: Cluster) -> str:
    """A term with its share of the step and, where ranks communicate, the link."""
    over = f" over {_link(term, links, cluster)}" if term in GROUPS else ""
    return f"{TIME_TERMS[term].title} {share:.0%}{over}"


def _link(term: str, links: Links, cluster: Cluster) -> str:
    """The link that paces the slowest group of a term, with what one rank gets of it.

    Between sites that is the wide-area link; among unlike networks the slowest.
    """
    groups = [getattr(links, name) for name in GROUPS[term]]
    slowest = min((group for group in groups if group.size > 1), key=_ring_bandwidth, default=groups[0])
    crosses = slowest.size > slowest.local
    if crosses and slowest.local * slowest.remote_bandwidth <= slowest.local_bandwidth:
        return f"{_network(slowest, cluster)} ({format_bandwidth(float(slowest.remote_bandwidth))} per GPU)"
    return f"{cluster.node.link} ({format_bandwidth(float(slowest.local_bandwidth))} per GPU)"


def _network(group: GroupLinks, cluster: Cluster) -> str:
    """What joins the nodes of a group."""
    if cluster.wan and group.remote_latency >= cluster.wan.latency:
        return "the wide-area link"
    return min(
        (pool.node for pool in cluster.pools), key=lambda node: float(node.fabric.node_bandwidth) / node.gpus_per_node
    ).fabric.name


def _ring_bandwidth(group: GroupLinks) -> float:
    """Nominal bus bandwidth of a ring over the group."""
    links = {"local_bandwidth": group.local_bandwidth, "remote_bandwidth": group.remote_bandwidth}
    return float(bus_bandwidth(group=group.size, local=group.local, **links))
