"""Where each rank sits, and how many ranks are enough to look at."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from planner.quantities import Column
from planner.spec.cluster import Cluster, Pool
from planner.spec.plan import Int
from planner.topology.graph import leaf_of, nics_of, numbered_pools
from planner.topology.placement import Layout


@dataclass(frozen=True, eq=False)
class Seats:
    """One entry per rank. Nodes are counted within their pool; all other numbers are the cluster's own."""

    pool: Column
    node: Column
    slot: Column
    """Which accelerator of the node."""
    domain: Column
    """Link domain: a node, or the nodes that share a switch."""
    leaf: Column
    """Leaf switch of the nearest NIC."""
    unit: Column
    """What is reached without the spine: the nodes under one leaf, or all nodes of a rail-optimised pool."""
    site: Column
    nodes: tuple[int, ...]
    """Nodes that have ranks, per pool."""


def seats(cluster: Cluster, ranks: int) -> Seats:
    """The seats of the first ranks; nodes are filled in order, pool by pool."""
    sites = {site: code for code, site in enumerate(dict.fromkeys(pool.site for pool in cluster.pools))}
    parts = [
        _pool_seats(pool, code, first=first, site=sites[pool.site])
        for code, (first, pool) in enumerate(numbered_pools(cluster))
    ]
    columns = {name: np.concatenate([part[name] for part in parts])[:ranks] for name in parts[0]}
    nodes = [int(columns["node"][columns["pool"] == code].max(initial=-1)) + 1 for code in range(len(parts))]
    return Seats(**columns, nodes=tuple(nodes))


def _pool_seats(pool: Pool, code: int, *, first: int, site: int) -> dict[str, Any]:
    """Numbers of domains, leaves and units start at the pool's first node, so that no two pools share one."""
    node, fabric = pool.node, pool.node.fabric
    rank = np.arange(pool.num_nodes * node.gpus_per_node)
    index, slot = np.divmod(rank, node.gpus_per_node)
    nearest = np.array([min(nics_of(node, i), default=0) for i in range(node.gpus_per_node)])[slot]
    leaf = leaf_of(fabric, index, nearest)
    unit = first + (leaf if fabric.nodes_per_leaf else np.zeros_like(rank))
    return {
        "pool": np.full_like(rank, code),
        "node": index,
        "slot": slot,
        "domain": first + index // node.domain_nodes,
        "leaf": unit * max(fabric.nics_per_node, 1) + (0 if fabric.nodes_per_leaf else nearest),
        "unit": unit,
        "site": np.full_like(rank, site),
    }


@dataclass(frozen=True, eq=False)
class Runs:
    """Groups cut into runs of members that sit together; arrays of shape (groups, members)."""

    members: Column
    length: Column
    """Members of the run."""
    position: Column
    """Of the member within its run."""

    @property
    def spread(self) -> Column:
        """Groups that are in several runs."""
        return self.length[:, 0] < self.length.shape[1]


def runs(members: Column, place: Column) -> Runs:
    """Cut groups wherever a member's place (a column over ranks) differs from the one before."""
    where = place[members]
    new = np.ones(where.shape, dtype=bool)
    new[:, 1:] = where[:, 1:] != where[:, :-1]
    starts = np.flatnonzero(new)
    run = np.cumsum(new) - 1
    length = np.diff(starts, append=where.size)[run]
    position = np.arange(where.size) - starts[run]
    return Runs(members, length.reshape(where.shape), position.reshape(where.shape))


def period(cluster: Cluster) -> int:
    """After how many ranks the cluster looks the same again; 0 when it never does.

    It never does when it has several pools, or when all nodes share the oversubscribed leaves of their rails.
    """
    node, fabric = cluster.node, cluster.node.fabric
    thin = fabric.oversubscription > 1
    if len(cluster.pools) > 1 or (thin and not fabric.nodes_per_leaf):
        return 0
    return lcm(node.domain_nodes, fabric.nodes_per_leaf if thin else 1) * node.gpus_per_node


def folded(layout: Layout, cycle: int, *, keep_groups: Int) -> Layout:
    """A smaller layout whose groups meet the same links under the same load; `cycle` is the cluster's period.

    A radix that counts steps of s ranks sees the cluster repeat after q = cycle / gcd(s, cycle) steps. Counts of sister
    groups are cut to q and the remainder, counts of members to 2 q and the remainder: every step keeps its place
    within a period, the ends of groups lie where they lay, and groups that spanned periods still do. `keep_groups`
    marks rows whose groups must keep their size.
    """
    if not cycle:
        return layout
    stride = _cut(layout.stride, 1, cycle)
    near = np.where(keep_groups, layout.near, _cut(layout.near, stride, cycle, periods=2))
    gap = _cut(layout.gap, stride * near, cycle)
    far = np.where(keep_groups, layout.far, _cut(layout.far, stride * near * gap, cycle, periods=2))
    repeats = _cut(layout.repeats, stride * near * gap * far, cycle)
    return Layout(stride=stride, near=near, gap=gap, far=far, repeats=repeats)


def _cut(count: Int, step: Int, cycle: int, *, periods: int = 1) -> Int:
    steps = cycle // np.gcd(step, cycle)
    return np.where(count >= periods * steps, periods * steps + count % steps, count)
