"""What each parallel axis of each plan gets from the cluster's links."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from functools import lru_cache

import numpy as np

from planner.distinct import distinct
from planner.errors import SpecError
from planner.quantities import Bytes, Column
from planner.spec.cluster import Cluster, Fabric, Node, Pool
from planner.spec.plan import ContextKind, Int, Plan
from planner.topology.contention import AxisLoads, Network, Share
from planner.topology.domains import Halves, fitting, halves_of, shares
from planner.topology.links import GroupLinks, Links, PlacedLinks
from planner.topology.patterns import Pattern
from planner.topology.placement import AXES, Layout, groups, layouts
from planner.topology.traffic import Streams

PLACING = ("tp", "pp", "cp", "ep", "expert_tp", "dp_shard", "dp_replicate", "rank_order", "context_kind")
"""The fields of a plan that decide where its groups lie and how they talk."""


def group_links(plans: Plan, cluster: Cluster) -> Links:
    """What the groups of every axis get, all sister groups talking at once; row for row with the plans.

    Bandwidths in B/s, latencies in s, nominal; scalars for one plan, columns for many. Where the groups of an axis
    lie differently (sizes that do not fit the nodes, several pools), each field is that of its worst group. A group
    of one, and a kind of link that is not used, has infinite bandwidth and no latency. Each distinct layout is
    evaluated once per cluster. Raises SpecError when a plan needs more ranks than the cluster has, or the cluster's
    parts are not joined.
    """
    return placed_links(plans, cluster)[0 if plans.is_scalar else slice(None)]


def placed_links(plans: Plan, cluster: Cluster) -> PlacedLinks:
    """As `group_links`, each distinct placement held once: for a search over many plans."""
    _check_size(plans, cluster)
    network, (placements, row) = network_of(cluster), _placements(plans)
    placed = layouts(placements)
    axes = [axis for axis in AXES if axis != "expert_replicate"]
    found = {axis: _axis_links(network, placed[axis], _patterns(placements, axis)) for axis in axes}
    return PlacedLinks(Links(**found, expert_replicate=found["dp_replicate"]), row)


def network_of(cluster: Cluster) -> Network:
    """The cluster's network; built once for all clusters whose links are equal."""
    return _network(_Wired(cluster))


def share_of(plan: Plan, cluster: Cluster, axis: str) -> tuple[int, Pattern, Share]:
    """Of one axis of one plan: the size of its groups, how they talk, and what they get."""
    _check_size(plan, cluster)
    layout, kind = layouts(plan)[axis].canonical(), np.asarray(_patterns(plan, axis))
    (share,) = _shares(network_of(cluster), layout, kind)
    return int(layout.size), Pattern(int(kind)), share


def load_of_axis(plan: Plan, cluster: Cluster, axis: str, sent: Column | None = None) -> AxisLoads:
    """What all groups of one axis of one plan put on every link; `sent` is what each rank sends to its group.

    Without `sent` loads are shares of that.
    """
    _check_size(plan, cluster)
    pattern = Pattern(int(_patterns(plan, axis)))
    return network_of(cluster).loads(layouts(plan)[axis], pattern, sent)


def load_of_stages(plan: Plan, cluster: Cluster, *, each: Bytes, ends: Bytes) -> AxisLoads:
    """What the stages of one plan's pipelines put on every link.

    Each sends `each` bytes to its neighbours on both sides, and the first and the last of them `ends` to one another.
    """
    _check_size(plan, cluster)
    stages = groups(layouts(plan)["pp"])
    forth = [(stages[:, :-1], stages[:, 1:], each), (stages[:, -1:], stages[:, :1], ends)]
    both = [*forth, *((target, source, size) for source, target, size in forth)]
    parts = [(source.ravel(), target.ravel(), np.full(source.size, float(size))) for source, target, size in both]
    return network_of(cluster).loads_of(Streams(*(np.concatenate(columns) for columns in zip(*parts, strict=True))))


class _Wired:
    """A cluster, compared by what its links are (records with mappings cannot be hashed)."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.key = (cluster.name, cluster.wan, *(_pool_key(pool) for pool in cluster.pools))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Wired) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _pool_key(pool: Pool) -> tuple[Hashable, ...]:
    node, fabric = pool.node, pool.node.fabric
    links = tuple(sorted(node.link_pairs.items()))
    return (pool.num_nodes, pool.site, *_plain(node), links, node.accelerator.pcie_bandwidth, *_plain(fabric))


def _plain(record: Node | Fabric) -> tuple[Hashable, ...]:
    values = (getattr(record, field.name) for field in fields(record))
    return tuple(value for value in values if isinstance(value, int | float | str))


@lru_cache(maxsize=32)
def _network(wired: _Wired) -> Network:
    return Network(wired.cluster)


@lru_cache(maxsize=32)
def _halves(wired: _Wired) -> Halves | None:
    return halves_of(wired.cluster)


def _check_size(plans: Plan, cluster: Cluster) -> None:
    most = int(np.max(plans.world_size))
    if most > cluster.world_size:
        raise SpecError(f"the plan needs {most} ranks, the cluster has {cluster.world_size}", where=cluster.name)


def _placements(plans: Plan) -> tuple[Plan, Column]:
    """The plans that differ in placement, and for every row of `plans` which of them it is."""
    columns = np.broadcast_arrays(*(np.atleast_1d(getattr(plans, name)) for name in PLACING))
    # The number of ranks, mostly the same for all, says of dp_replicate what the other degrees leave open.
    told = [
        np.atleast_1d(plans.world_size) if name == "dp_replicate" else c
        for name, c in zip(PLACING, columns, strict=True)
    ]
    found = distinct(told)
    chosen = {name: column[found.first].astype(np.int64) for name, column in zip(PLACING, columns, strict=True)}
    return Plan(**chosen), found.index


def _patterns(plans: Plan, axis: str) -> Int:
    """How the groups of an axis talk: experts and Ulysses all to all, ring attention to the next, stages in a chain.

    All others talk in rings that a library lays out.
    """
    if axis == "cp":
        context = np.asarray(plans.context_kind)
        patterns = [Pattern.ALL_TO_ALL, Pattern.NEIGHBOURS]
        return np.select([context == ContextKind.ULYSSES, context == ContextKind.RING], patterns, Pattern.RING)
    kinds = {"ep": Pattern.ALL_TO_ALL, "pp": Pattern.CHAIN}
    return np.full_like(plans.tp, kinds.get(axis, Pattern.RING))


def _axis_links(network: Network, layout: Layout, patterns: Int) -> GroupLinks:
    """The links of the layouts' groups, row for row."""
    layout, kinds = layout.canonical(), np.asarray(patterns)
    found = distinct([*map(np.asarray, layout.radices), kinds])
    one_each, kinds = found.of(layout), kinds[found.first]
    shares = _shares(network, one_each, kinds)
    pairs = (kinds == Pattern.CHAIN) & (one_each.size > 1)
    return GroupLinks(
        size=np.where(pairs, 2, one_each.size),
        local=np.array([share.local for share in shares]),
        local_bandwidth=np.array([share.local_limit.bandwidth for share in shares]),
        remote_bandwidth=np.array([share.remote_limit.bandwidth for share in shares]),
        local_latency=np.array([share.local_latency for share in shares]),
        remote_latency=np.array([share.remote_latency for share in shares]),
    )[found.index]


def _shares(network: Network, layout: Layout, kinds: Column) -> list[Share]:
    """The share of each row of a canonical layout."""
    layout, kinds = Layout(*map(np.atleast_1d, layout.radices)), np.atleast_1d(kinds)
    halves = _halves(_Wired(network.cluster))
    if halves is None:
        return shares(network, layout, kinds)
    fits = fitting(layout, halves.ranks, kinds)
    in_halves = iter(halves.shares(layout[fits], kinds[fits]))
    whole = iter(shares(network, layout[~fits], kinds[~fits]))
    return [next(in_halves if fit else whole) for fit in fits.tolist()]
