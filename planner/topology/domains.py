"""Large clusters with thin leaves or pods, evaluated in two halves that each need few ranks.

Below are the link domains, as if everything above them were wide enough: they look the same after one domain. Above is
the network with one rank for each whole domain: there layouts that differ inside domains only are one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.quantities import Column
from planner.spec.cluster import Cluster, Fabric, Node, Wiring
from planner.spec.plan import Int
from planner.topology.contention import Network, Share
from planner.topology.patterns import Pattern
from planner.topology.placement import Layout
from planner.topology.routes import Limit
from planner.topology.seats import folded

_PATTERNS = tuple(Pattern)
_SHARED_EVENLY = (Pattern.RING, Pattern.ALL_TO_ALL)
"""Patterns in which all of a group's members in a domain send out alike; in the others one of them does."""


@dataclass(frozen=True, eq=False)
class Halves:
    """The networks of both halves, and how many ranks a domain has."""

    below: Network
    above: Network
    ranks: int

    def shares(self, layout: Layout, kinds: Column) -> list[Share]:
        """The share of each row of a canonical layout that fills whole domains (see `whole_domains`)."""
        coarse, _ = whole_domains(layout, self.ranks)
        pairs = zip(shares(self.below, layout, kinds), shares(self.above, coarse, kinds), strict=True)
        return [self._tighter(below, above.remote_limit) for below, above in pairs]

    def _tighter(self, below: Share, above: Limit) -> Share:
        """What holds a rank back of both; the limit above is that of a whole domain."""
        if below.remote_limit.bandwidth <= above.bandwidth / self.ranks * (1 + 1e-9):
            return below
        # Where a leaf serves a rail, it has one of so many parts of what the domain sends.
        node = self.below.cluster.node
        rails = min(node.fabric.nics_per_node, node.gpus_per_node) if not node.fabric.nodes_per_leaf else 1
        parts = rails if "leaf" in above.ends else 1
        load, capacity = above.load * self.ranks / parts, above.capacity / parts
        return below._replace(remote_limit=above._replace(bandwidth=capacity / load, load=load, capacity=capacity))


def halves_of(cluster: Cluster) -> Halves | None:
    """Both halves of a cluster; None where nothing above its domains is thin, or a part of it is not like the rest."""
    node, fabric = cluster.node, cluster.node.fabric
    if len(cluster.pools) > 1 or not fabric.thin_blocks or any(block % node.domain_nodes for block in _blocks(fabric)):
        return None
    gpus, nics = node.gpus_per_node, fabric.nics_per_node
    if not fabric.nodes_per_leaf and nics % gpus and gpus % nics:  # rails that unequal numbers of accelerators share
        return None
    wide = replace(fabric, oversubscription=1.0, pod_oversubscription=1.0)
    return Halves(
        below=Network(_with_node(cluster, replace(node, fabric=wide), cluster.num_nodes)),
        above=Network(_with_node(cluster, _domain(node), -(-cluster.num_nodes // node.domain_nodes))),
        ranks=node.gpus_per_node * node.domain_nodes,
    )


def whole_domains(layout: Layout, ranks: int) -> tuple[Layout, Column]:
    """The layout over domains of so many ranks, and where it fills them: every domain then holds the same block.

    >>> [int(radix) for radix in whole_domains(Layout(stride=2, near=8, gap=1, far=1, repeats=3), 8)[0].radices]
    [1, 2, 1, 1, 3]
    """
    rest: Int = np.full_like(layout.stride, ranks)
    fills: Int = np.ones_like(layout.stride, dtype=bool)
    radices = []
    for radix in layout.radices:
        inside = np.gcd(radix, rest)
        rest = rest // inside
        fills = fills & ((inside == radix) | (rest == 1))
        radices.append(radix // inside)
    return Layout(*radices).canonical(), np.asarray(fills & (rest == 1))


def fitting(layout: Layout, ranks: int, kinds: Column) -> Column:
    """The rows that halves can evaluate: groups fill whole domains, and all members in a domain send out alike."""
    alone = np.asarray(layout.stride % ranks == 0)
    return whole_domains(layout, ranks)[1] & (alone | np.isin(kinds, _SHARED_EVENLY))


def shares(network: Network, layout: Layout, kinds: Column) -> list[Share]:
    """The share of each row of a canonical layout, each found on as few ranks as show it."""
    small = folded(layout, network.period, kinds)
    columns = (np.atleast_1d(radix).tolist() for radix in (*small.radices, kinds))
    return [network.share(tuple(radices), _PATTERNS[kind]) for *radices, kind in zip(*columns, strict=True)]


def _blocks(fabric: Fabric) -> tuple[int, int]:
    return fabric.nodes_per_leaf, fabric.nodes_per_pod


def _with_node(cluster: Cluster, node: Node, number: int) -> Cluster:
    return replace(cluster, pools=(replace(cluster.pools[0], node=node, num_nodes=number),))


def _domain(node: Node) -> Node:
    """A whole link domain as a node of one rank with one NIC."""
    fabric, nodes = node.fabric, node.domain_nodes
    return replace(
        node,
        accelerator=replace(node.accelerator, pcie_bandwidth=0.0),
        gpus_per_node=1,
        wiring=Wiring.SWITCH,
        domain_nodes=1,
        sockets=1,
        gpus_per_pcie_switch=0,
        fabric=replace(
            fabric,
            nics_per_node=1,
            nic_bandwidth=fabric.node_bandwidth * nodes,
            # Whole domains stay on their rails, which reach every node where there are no pods.
            oversubscription=fabric.oversubscription if any(_blocks(fabric)) else 1.0,
            nodes_per_leaf=fabric.nodes_per_leaf // nodes,
            nodes_per_pod=fabric.nodes_per_pod // nodes,
        ),
    )
