"""Which bandwidth would hide what a plan's step shows of its communication, found on the step time itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

from planner.estimate.records import StepTime
from planner.quantities import GB, BytesPerSecond, Scalar, Seconds
from planner.spec.cluster import Cluster
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.topology.describe import held_by_network, link_class
from planner.topology.group_links import share_of
from planner.topology.links import Links
from planner.topology.routes import Limit

SMALL: Scalar = 0.01
"""A term below this share of the step no longer matters."""
HIDDEN: Scalar = 1e-6
"""A term below this share of the step is hidden."""
MOST: Scalar = 1000.0
"""No link will be so many times as fast: what is visible then is not for want of bandwidth."""
CLOSE: Scalar = 0.01
"""Factors are found to within this share, and better where times change evenly."""
SIDES = ("local_bandwidth", "remote_bandwidth")
"""Links inside a domain and between domains, as GroupLinks names them."""

TERMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tp": ("tp_exposed", ("tp",)),
    "cp": ("cp_exposed", ("cp",)),
    "ep": ("ep_exposed", ("ep", "expert_tp")),
    "pp": ("pp_exposed", ("pp",)),
    "dp_shard": ("dp_exposed", ("dp_shard", "expert_shard")),
    "dp_replicate": ("dp_exposed", ("dp_replicate", "expert_replicate")),
}
"""Who communicates -> the term of StepTime that shows what is exposed, and the groups whose links carry it."""

StepOf = Callable[[Links, Profile], StepTime]
"""The step time of the plan in question on some links, by the efficiencies of a profile."""


@dataclass(frozen=True)
class Faster:
    """A bandwidth that is enough: a multiple of today's, and what one rank then gets of the link that limits it.

    `everywhere` where links inside the domain and between domains have to be faster, not only the kind that limits.
    """

    factor: Scalar
    per_gpu: BytesPerSecond
    link: BytesPerSecond
    everywhere: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON, in GB/s."""
        return {
            "factor": self.factor,
            "gb_per_s_per_gpu": self.per_gpu / GB,
            "link_gb_per_s": self.link / GB,
            "everywhere": self.everywhere,
        }


@dataclass(frozen=True)
class Hiding:
    """What one kind of communication adds to a step, and which bandwidth of its links would end that.

    `exposed` is what it adds today, `overlap` the part of this that hidden communication takes from the compute beside
    it, `left` what would remain at any bandwidth. From `hidden` on no rank waits for it; from `small` on it adds less
    than 1 % of today's step. They are None where no bandwidth is enough. `limit` is the link that limits it today.
    """

    name: str
    exposed: Seconds
    overlap: Seconds
    left: Seconds
    limit: Limit
    hidden: Faster | None
    small: Faster | None

    def as_dict(self, step: Seconds) -> dict[str, Any]:
        """For JSON, in seconds and GB/s."""
        return {
            "communication": self.name,
            "exposed_s": self.exposed,
            "exposed_share": self.exposed / step,
            "overlap_s": self.overlap,
            "left_s": self.left,
            "link": link_class(self.limit.ends),
            "gb_per_s_per_gpu": self.limit.bandwidth / GB,
            "link_gb_per_s": self.limit.capacity / GB,
            "hidden": self.hidden and self.hidden.as_dict(),
            "below_one_percent": self.small and self.small.as_dict(),
        }


@dataclass(frozen=True)
class StepOnLinks:
    """The step of one plan as a function of its links: `step_of`. `links` and `profile` are today's, as scalars."""

    plan: Plan
    cluster: Cluster
    links: Links
    profile: Profile
    step_of: StepOf


def hidings(step: StepOnLinks) -> list[Hiding]:
    """Every kind of communication that a plan's step shows, in the order of TERMS.

    Only the links of the groups in question change; what other axes get stays as it is.
    """
    today = step.step_of(step.links, step.profile)
    shown = [name for name, (term, _) in TERMS.items() if float(getattr(today, term)) > HIDDEN * float(today.total)]
    found = (_hiding(step, name, float(today.total)) for name in shown)
    return [each for each in found if each is not None and each.exposed > HIDDEN * float(today.total)]


def _hiding(step: StepOnLinks, name: str, total: Seconds) -> Hiding | None:
    term, axes = TERMS[name]
    axes = tuple(axis for axis in axes if getattr(step.links, axis).size > 1)
    if not axes:
        return None
    free = replace(step.profile, overlap_penalty=0.0)
    alone = _with(step.links, axes, size=1, local=1)
    others = {
        profile.overlap_penalty: float(getattr(step.step_of(alone, profile), term)) for profile in (step.profile, free)
    }

    def added(factor: Scalar, profile: Profile, sides: Sequence[str]) -> Seconds:
        links = _with(step.links, axes, **{side: factor for side in sides})
        return float(getattr(step.step_of(links, profile), term)) - others[profile.overlap_penalty]

    limit, side = _limit(step, axes)
    now, waiting = added(1.0, step.profile, SIDES), added(1.0, free, SIDES)
    return Hiding(
        name=name,
        exposed=now,
        overlap=max(now - waiting, 0.0),
        left=added(MOST, step.profile, SIDES),
        limit=limit,
        hidden=_faster(partial(added, profile=free), HIDDEN * total, limit, side),
        small=_faster(partial(added, profile=step.profile), SMALL * total, limit, side),
    )


def _with(links: Links, axes: Sequence[str], **changed: Scalar) -> Links:
    """Links where the groups of some axes have other sizes, or bandwidths so many times as large."""
    found = {}
    for axis in axes:
        group = getattr(links, axis)
        new = {name: getattr(group, name) * value if name in SIDES else value for name, value in changed.items()}
        found[axis] = replace(group, **new)
    return replace(links, **found)


def _limit(step: StepOnLinks, axes: Sequence[str]) -> tuple[Limit, str]:
    """The link that limits the slowest of some axes, and on which side of a domain's border it lies."""
    shares = [share_of(step.plan, step.cluster, axis)[2] for axis in axes]
    outside = [share.remote_limit for share in shares if held_by_network(share)]
    inside = [share.local_limit for share in shares]
    chosen, side = (outside, SIDES[1]) if outside else (inside, SIDES[0])
    return min(chosen, key=lambda limit: limit.bandwidth), side


def _faster(added: Callable[..., Seconds], most: Seconds, limit: Limit, side: str) -> Faster | None:
    """The least bandwidth at which no more than `most` is added: of the kind of link that limits, or else of both."""
    for sides in ((side,), SIDES):
        factor = _least_factor(partial(added, sides=sides), most)
        if factor:
            return Faster(factor, factor * limit.bandwidth, factor * limit.capacity, everywhere=sides == SIDES)
    return None


def _least_factor(added: Callable[[Scalar], Seconds], most: Seconds) -> Scalar:
    """The least factor from 1 to MOST at which no more than `most` is added, by bisection; 0 without any.

    What is added falls as the factor grows. Times are linear in one over the bandwidth on both sides of a regime's
    border, so the last step interpolates.
    """
    low, high, above = 1.0, MOST, added(1.0) - most
    if above <= 0:
        return 1.0
    below = added(MOST) - most
    if below > 0:
        return 0.0
    while high > low * (1 + CLOSE):
        middle = sqrt(low * high)
        excess = added(middle) - most
        if excess > 0:
            low, above = middle, excess
        else:
            high, below = middle, excess
    share = above / (above - below)
    return 1 / ((1 - share) / low + share / high)
