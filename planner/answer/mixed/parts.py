"""The parts of a mixed cluster: nodes of one kind at one site, and what a plan takes on each kind of accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.answer.question import Question
from planner.answer.software import profile_of
from planner.errors import SpecError
from planner.estimate.interval import FULL
from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.step_time import step_time
from planner.quantities import Bytes, Column
from planner.spec.cluster import Cluster, Pool
from planner.spec.plan import Plan
from planner.topology.links import Links, PlacedLinks


@dataclass(frozen=True, eq=False)
class Part:
    """Equal nodes at one site; of the cluster's ranks those from `first` on are theirs.

    `question` is the one asked, as if all nodes had this part's accelerator: it says how long a plan takes there. The
    network is the whole cluster's.
    """

    name: str
    pools: tuple[Pool, ...]
    first: int
    question: Question

    @property
    def gpus(self) -> int:
        """Accelerators of the part."""
        return sum(pool.num_nodes * pool.node.gpus_per_node for pool in self.pools)

    @property
    def limit(self) -> Bytes:
        """What a plan may use of one accelerator's memory: 95 % of the usable."""
        return FULL * self.pools[0].node.accelerator.usable_memory

    @property
    def setting(self) -> Setting:
        """What step times are made of on this part."""
        asked = self.question
        return Setting.of(asked.model, asked.workload, asked.cluster, asked.profile, asked.stack)

    def time(self, plans: Plan, links: Links | PlacedLinks) -> StepTime:
        """Step time of plans if all ranks were like this part's; `links` belong to them row for row."""
        asked = self.question
        return step_time(
            asked.model, plans, asked.workload, asked.cluster, links, profile=asked.profile, stack=asked.stack
        )


def is_mixed(cluster: Cluster) -> bool:
    """Whether the nodes differ in kind or in site."""
    return len(_grouped(cluster.pools)) > 1


def arranged(question: Question) -> Question:
    """The question with equal pools side by side, in the order in which their kinds come first."""
    pools = tuple(pool for group in _grouped(question.cluster.pools) for pool in group)
    return replace(question, cluster=replace(question.cluster, pools=pools))


def parts_of(question: Question, whole: Cluster | None = None) -> tuple[Part, ...]:
    """The parts of an arranged question's cluster, in the order of its ranks; named as in the `whole` cluster.

    Raises SpecError where the accelerator of a part has no such precision.
    """
    named = _grouped((whole or question.cluster).pools)
    names = _names(named)
    parts, first = [], 0
    for group in _grouped(question.cluster.pools):
        name = next(name for name, each in zip(names, named, strict=True) if _alike(each[0], group[0]))
        part = Part(name, group, first, _on(question, group[0]))
        parts.append(part)
        first += part.gpus
    return tuple(parts)


def within_parts(plans: Plan, parts: Sequence[Part], block: Column | int) -> Column:
    """Rows whose blocks of so many neighbouring ranks each lie within one part."""
    inside = np.ones(len(plans), dtype=bool)
    for part in parts:
        inside &= np.asarray((part.first % block == 0) & (part.gpus % block == 0))
    return inside


def only(question: Question, parts: Sequence[Part], *, name: str | None = None) -> Question:
    """The same question on some parts of the cluster alone, in this order."""
    pools = tuple(pool for part in parts for pool in part.pools)
    whole = question.cluster
    sites = {pool.site for pool in pools}
    cluster = Cluster(
        name or f"{whole.name} ({' + '.join(part.name for part in parts)})",
        pools,
        whole.wan if len(sites) > 1 else None,
        whole.notes,
    )
    own = question.choices.profile and cluster.accelerator == whole.accelerator
    profile = question.profile if own else profile_of(cluster, question.stack)
    return replace(question, cluster=cluster, profile=profile, cluster_text=cluster.name)


def _grouped(pools: Sequence[Pool]) -> list[tuple[Pool, ...]]:
    """Pools of the same node type and accelerator at one site, in the order of the first of each."""
    groups: list[list[Pool]] = []
    for pool in pools:
        same = next((group for group in groups if _alike(group[0], pool)), None)
        if same is None:
            groups.append([pool])
        else:
            same.append(pool)
    return [tuple(group) for group in groups]


def _alike(one: Pool, other: Pool) -> bool:
    return one.site == other.site and one.node == other.node


def _names(groups: Sequence[tuple[Pool, ...]]) -> list[str]:
    """What tells the parts apart: accelerator, node type or site; with numbers where none of these does."""
    firsts = [group[0] for group in groups]
    for names in (
        [pool.node.accelerator.name for pool in firsts],
        [pool.node.name for pool in firsts],
        [pool.site for pool in firsts],
        [f"{pool.node.accelerator.name} at {pool.site}" for pool in firsts],
    ):
        if len(set(names)) == len(names) and all(names):
            return names
    return [f"{pool.node.name} no. {number}" for number, pool in enumerate(firsts, start=1)]


def _on(question: Question, pool: Pool) -> Question:
    """The question as if every node had the accelerator of a pool's."""
    part, whole, precision = pool.node.accelerator, question.cluster, question.workload.precision
    if precision not in part.peak:
        raise SpecError(
            f"{part.name} has no {precision} matrix peak; it has: {', '.join(part.peak)}", where="--precision"
        )
    profile = question.profile if part == whole.accelerator else profile_of(_with(whole, pool), question.stack)
    return replace(question, cluster=_with(whole, pool), profile=profile)


def _with(cluster: Cluster, pool: Pool) -> Cluster:
    """All nodes with one pool's accelerator."""
    part = pool.node.accelerator
    return replace(
        cluster, pools=tuple(replace(each, node=replace(each.node, accelerator=part)) for each in cluster.pools)
    )
