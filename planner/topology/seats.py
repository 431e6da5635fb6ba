"""Where each rank sits, and how many ranks are enough to look at."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import lcm
from typing import Any

import numpy as np

from planner.quantities import Column
from planner.spec.cluster import Cluster, Pool
from planner.spec.plan import Int
from planner.topology.graph import leaf_of, nics_of, numbered_pools, pod_of
from planner.topology.patterns import Pattern
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
    """What is reached without a spine: the nodes under one leaf, or all nodes of a rail-optimised pod or pool."""
    pod: Column
    site: Column

    def first(self, ranks: int) -> Seats:
        """The seats of the first ranks only."""
        return Seats(*(getattr(self, field.name)[:ranks] for field in fields(self)))

    def nodes(self, pool: int) -> int:
        """How many nodes of a pool have ranks."""
        return int(self.node[self.pool == pool].max(initial=-1)) + 1


def seats(cluster: Cluster) -> Seats:
    """The seats of all ranks; nodes are filled in order, pool by pool."""
    sites = {site: code for code, site in enumerate(dict.fromkeys(pool.site for pool in cluster.pools))}
    parts = [
        _pool_seats(pool, code, first=first, site=sites[pool.site])
        for code, (first, pool) in enumerate(numbered_pools(cluster))
    ]
    return Seats(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _pool_seats(pool: Pool, code: int, *, first: int, site: int) -> dict[str, Any]:
    """Numbers of domains, leaves and units start at the pool's first node, so that no two pools share one."""
    node, fabric = pool.node, pool.node.fabric
    rank = np.arange(pool.num_nodes * node.gpus_per_node)
    index, slot = np.divmod(rank, node.gpus_per_node)
    nearest = np.array([min(nics_of(node, i), default=0) for i in range(node.gpus_per_node)])[slot]
    leaf, pod = leaf_of(fabric, index, nearest), first + pod_of(fabric, index)
    unit = first + leaf if fabric.nodes_per_leaf else pod
    return {
        "pool": np.full_like(rank, code),
        "node": index,
        "slot": slot,
        "domain": first + index // node.domain_nodes,
        "leaf": unit * max(fabric.nics_per_node, 1) + (0 if fabric.nodes_per_leaf else nearest),
        "unit": unit,
        "pod": pod,
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
    node = cluster.node
    if len(cluster.pools) > 1:
        return 0
    return lcm(node.domain_nodes, *node.fabric.thin_blocks) * node.gpus_per_node


def folded(layout: Layout, cycle: int, patterns: Int) -> Layout:
    """A smaller layout whose groups meet the same links under the same load; `cycle` is the cluster's period.

    Members that lie a period or more apart are alone wherever they sit, whatever the distance: three of them show a
    first, a middle and a last one. Otherwise a radix that counts steps of s ranks sees the cluster repeat after
    q = cycle / gcd(s, cycle) steps. Members are cut to 2 q (3 q in a chain, which has ends) and the remainder, sister
    groups between them to q and the remainder, repeats to q: every step keeps its place within a period, the ends of
    groups lie where they lay, and groups that spanned periods still fill one. An all-to-all keeps its size, on which
    the share of traffic that leaves depends.
    """
    if not cycle:
        return layout
    alone = layout.stride >= cycle
    kept, periods = alone | (patterns == Pattern.ALL_TO_ALL), np.where(patterns == Pattern.CHAIN, 3, 2)
    stride = np.minimum(layout.stride, cycle)
    near = np.where(alone, np.minimum(layout.size, 3), layout.near)
    near = np.where(kept, near, _cut(near, stride, cycle, periods=periods))
    gap = np.where(alone, 1, _cut(layout.gap, stride * near, cycle, periods=1))
    far = np.where(kept, layout.far, _cut(layout.far, stride * near * gap, cycle, periods=periods))
    far = np.where(alone, 1, far)
    once = np.where(alone, 1, cycle // np.gcd(stride * near * gap * far, cycle))
    return Layout(stride=stride, near=near, gap=gap, far=far, repeats=np.minimum(layout.repeats, once))


def _cut(count: Int, step: Int, cycle: int, *, periods: Int) -> Int:
    steps = cycle // np.gcd(step, cycle)
    return np.where(count >= periods * steps, periods * steps + count % steps, count)
