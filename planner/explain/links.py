"""The traffic of a step on the links of a cluster, by class of link and by axis, and the link that holds each axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from planner.estimate.setting import Job
from planner.explain.axis_bytes import AxisBytes, axis_bytes
from planner.quantities import GB, Bytes, BytesPerSecond, Column, Count, Seconds
from planner.spec.cluster import Cluster
from planner.spec.plan import Plan
from planner.topology.describe import LINK_CLASSES, bottleneck, link_class
from planner.topology.graph import numbered_pools
from planner.topology.loads import Loads, Tier, added
from planner.topology.routes import Edge

_ALIKE = 0.005
"""Links whose bytes differ by less than this share bear the same."""


class Level(NamedTuple):
    """Links of one class that bear the same: bytes in the busier direction, how many links, and one of them."""

    bytes: Bytes
    links: int
    example: str


class AxisShare(NamedTuple):
    """Of one axis on the links of a class: bytes on the busiest link, on the mean of all links and directions.

    `ranks` is how many ranks' traffic shares the busiest link.
    """

    busiest: Bytes
    mean: Bytes
    ranks: Count


@dataclass(frozen=True)
class LinkClass:
    """Equal links of a cluster and their traffic in a step.

    `by_axis` has the axes that send over any of them, those that bring most to the busiest link first; that is the
    link and direction that bears most. `levels` tell links that bear different amounts, the most first.
    """

    name: str
    pool: str
    kind: str
    links: int
    capacity: BytesPerSecond
    by_axis: Mapping[str, AxisShare]
    levels: tuple[Level, ...]

    @property
    def busiest(self) -> Bytes:
        """On the busiest link, all axes together."""
        return sum(each.busiest for each in self.by_axis.values())

    @property
    def mean(self) -> Bytes:
        """On the mean of all links and directions."""
        return sum(each.mean for each in self.by_axis.values())

    @property
    def busy(self) -> Seconds:
        """How long the busiest link takes at its nominal bandwidth."""
        return self.busiest / self.capacity

    def as_dict(self, step: Seconds) -> dict[str, Any]:
        """For JSON, in GB and seconds; `utilisation` is a share of the step."""
        return {
            "class": self.name,
            "pool": self.pool,
            "kind": self.kind,
            "links": self.links,
            "capacity_gb_per_s": self.capacity / GB,
            "busiest_gb": self.busiest / GB,
            "mean_gb": self.mean / GB,
            "busy_s": self.busy,
            "utilisation": self.busy / step,
            "loads_most": next(iter(self.by_axis), None),
            "axes": {
                axis: {"busiest_gb": each.busiest / GB, "mean_gb": each.mean / GB, "ranks": each.ranks}
                for axis, each in self.by_axis.items()
            },
            "levels": [{"gb": each.bytes / GB, "links": each.links, "example": each.example} for each in self.levels],
        }


@dataclass(frozen=True)
class AxisTraffic:
    """One axis: ranks of a group, and the link that its traffic alone keeps busy longest: what, how long, and why."""

    axis: str
    ranks: int
    sent: Bytes
    link: str
    busy: Seconds
    words: str

    def as_dict(self, step: Seconds) -> dict[str, Any]:
        """For JSON, in GB and seconds."""
        return {
            "axis": self.axis,
            "ranks": self.ranks,
            "sent_gb": self.sent / GB,
            "bottleneck": self.link,
            "busy_s": self.busy,
            "utilisation": self.busy / step,
            "words": self.words,
        }


@dataclass(frozen=True)
class LinkTraffic:
    """Of one plan: every class of links from the outermost to the innermost, and every axis that sends anything."""

    classes: tuple[LinkClass, ...]
    axes: tuple[AxisTraffic, ...]


def traffic_on_links(job: Job, plan: Plan, cluster: Cluster) -> LinkTraffic:
    """The traffic of one plan's step on all links of the cluster. Raises SpecError as `group_links` does."""
    found = axis_bytes(job, plan, cluster)
    tiers = added(each.loads.together for each in found.values())
    classes: dict[tuple[str, str, str, float], LinkClass] = {}
    for each in (each for tier in tiers for each in _classes(tier, found, cluster)):
        key = each.name, each.pool, each.kind, each.capacity
        classes[key] = _together(classes[key], each) if key in classes else each
    order = list(LINK_CLASSES)
    return LinkTraffic(
        classes=tuple(sorted(classes.values(), key=lambda each: order.index(each.name))),
        axes=tuple(_axis(axis, each, plan, cluster) for axis, each in found.items()),
    )


def _axis(axis: str, traffic: AxisBytes, plan: Plan, cluster: Cluster) -> AxisTraffic:
    busy: dict[str, Seconds] = {}
    for tier in traffic.loads.together:
        for edge, longest in zip(tier.edges, (tier.load / tier.capacity).max(axis=0), strict=True):
            name = link_class((str(edge[0][0]), str(edge[1][0])))
            busy[name] = max(busy.get(name, 0.0), float(longest))
    longest = max(busy.values())
    return AxisTraffic(
        axis=axis,
        ranks=traffic.ranks,
        sent=traffic.sent,
        link=next(name for name in LINK_CLASSES if busy.get(name, 0.0) >= longest * (1 - 1e-9)),
        busy=longest,
        words=bottleneck(plan, cluster, axis),
    )


def _classes(tier: Tier, found: Mapping[str, AxisBytes], cluster: Cluster) -> Iterator[LinkClass]:
    """The classes of a tier's links; links of different bandwidth are of different classes."""
    names = [link_class((str(one[0]), str(other[0]))) for one, other in tier.edges]
    keys = list(zip(names, tier.kinds, tier.capacity.tolist(), strict=True))
    for key in dict.fromkeys(keys):
        chosen = [number for number, each in enumerate(keys) if each == key]
        shares = {axis: share for axis, each in found.items() if (share := _share(each, tier, chosen)).mean > 0}
        name, kind, capacity = key
        yield LinkClass(
            name=name,
            pool=cluster.pools[tier.pool].node.name if tier.place != "site" else "",
            kind=kind,
            links=len(tier.load) * len(chosen) // 2,
            capacity=capacity,
            by_axis=dict(sorted(shares.items(), key=lambda item: -item[1].busiest)),
            levels=tuple(_levels(tier, chosen, cluster)),
        )


def _together(one: LinkClass, other: LinkClass) -> LinkClass:
    """Links of equal nodes in two pools as one class."""
    first, second = sorted((one, other), key=lambda each: -each.busiest)
    links, nothing = one.links + other.links, AxisShare(0.0, 0.0, 0.0)
    shares = {}
    for axis in {**first.by_axis, **second.by_axis}:
        here, there = first.by_axis.get(axis, nothing), second.by_axis.get(axis, nothing)
        shares[axis] = here._replace(mean=(here.mean * first.links + there.mean * second.links) / links)
    levels: list[Level] = []
    for level in sorted((*first.levels, *second.levels), key=lambda each: -each.bytes):
        if levels and level.bytes >= levels[-1].bytes * (1 - _ALIKE):
            levels[-1] = levels[-1]._replace(links=levels[-1].links + level.links)
        else:
            levels.append(level)
    return replace(first, links=links, by_axis=shares, levels=tuple(levels))


def _share(traffic: AxisBytes, tier: Tier, chosen: list[int]) -> AxisShare:
    """What one axis puts on the busiest of some links of a tier, and on the mean of them."""
    total = tier.load[:, chosen]
    place, column = (int(each) for each in np.unravel_index(int(total.argmax()), total.shape))
    load = _load(traffic.loads.together, tier)
    edge = tier.edges[chosen[column]]
    return AxisShare(
        busiest=float(load[place, chosen[column]]),
        mean=float(load[:, chosen].mean()),
        ranks=_sharing(traffic, tier, place, (chosen[column], tier.edges.index(edge[::-1]))),
    )


def _sharing(traffic: AxisBytes, tier: Tier, place: int, ways: tuple[int, int]) -> Count:
    """How many ranks' traffic shares a link, in the direction in which that is more."""
    loads = (traffic.one_way.inside, traffic.parts.inside), (traffic.one_way.across, traffic.parts.across)
    ranks = (float(_load(load, tier)[place, ways].max()) / (part * traffic.each) for load, part in loads if part)
    return float(f"{max(ranks):.6g}")


def _load(loads: Loads, tier: Tier) -> Column:
    """The load on the same links as a tier's."""
    same = (each.load for each in loads if (each.place, each.pool) == (tier.place, tier.pool))
    return next(same, np.zeros_like(tier.load))


def _levels(tier: Tier, chosen: list[int], cluster: Cluster) -> Iterator[Level]:
    """Both directions of a link count as one link with the load of the busier."""
    number = {tier.edges[each]: each for each in chosen}
    pairs = [(here, number[edge[::-1]]) for edge, here in number.items() if here < number[edge[::-1]]]
    links = np.stack([tier.load[:, pair].max(axis=1) for pair in pairs], axis=1)
    left = np.ones(links.shape, dtype=bool)
    while left.any():
        most = float(links[left].max())
        alike = left & (links >= most * (1 - _ALIKE))
        place, column = (int(each[0]) for each in np.nonzero(alike & (links == most)))
        yield Level(most, int(alike.sum()), _name(tier, tier.edges[pairs[column][0]], place, cluster))
        left &= ~alike


def _name(tier: Tier, edge: Edge, place: int, cluster: Cluster) -> str:
    """A link by its ends, such as `node 3: gpu 0 - nvswitch`; one above the nodes by what is below it."""
    if tier.place == "site":
        return f"site {list(dict.fromkeys(pool.site for pool in cluster.pools))[place]}"
    if tier.place != "node":
        return f"{tier.place} {place}"
    node = [first for first, _ in numbered_pools(cluster)][tier.pool] + place
    ends = (str(end[0]) if end[0] in ("nvswitch", "leaf") else f"{end[0]} {end[2]}" for end in edge)
    return f"node {node}: {' - '.join(ends)}"
