"""What every group of an axis gets while all its sister groups talk at once.

The traffic of all groups is laid on the links; a link with capacity c that bears the traffic of l ranks gives each of
them c / l, and the most loaded link of all decides. So one slow link anywhere (the slowest pool that the groups touch,
the group that straddles a node boundary worst) holds the whole axis back, as it does in a synchronous step. Links
inside a domain and links between domains are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from planner.quantities import Column, Seconds
from planner.spec.cluster import Cluster, Wiring
from planner.topology.loads import Loads, added, load_across, load_inside, load_of_rings, tier_of_nodes, tightest
from planner.topology.patterns import Pattern
from planner.topology.placement import Layout, groups
from planner.topology.routes import Limit, Wires, wires
from planner.topology.seats import Runs, Seats, period, runs, seats
from planner.topology.traffic import (
    Parts,
    Streams,
    inbound,
    outbound,
    parts_of,
    streams_across,
    streams_inside,
)

Radices = tuple[int, int, int, int, int]
"""Stride, near, gap, far and repeats of a `Layout`."""


class Share(NamedTuple):
    """What the worst group of an axis gets: members per domain, the links that limit a rank, latencies of a hop.

    `parts` are what a rank sends inside and across of all that it sends.
    """

    local: int
    local_limit: Limit
    remote_limit: Limit
    local_latency: Seconds
    remote_latency: Seconds
    parts: Parts


class AxisLoads(NamedTuple):
    """What the groups of an axis put on the links, inside domains and between them, and the longest ways."""

    inside: Loads
    across: Loads
    latency_across: Seconds
    latency_inside: Seconds

    @property
    def together(self) -> Loads:
        """Both, link by link."""
        return added((self.inside, self.across))


class Network:
    """A cluster with all that was found out about it: routes, seats of ranks, shares of layouts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pools = wires(cluster)
        self.period = period(cluster)
        self.seats = seats(cluster)
        self.port = _port(self.pools)
        self.own_way_out = _own_way_out(cluster, self.pools)
        self.share = lru_cache(maxsize=2**16)(self._share)

    def loads(self, layout: Layout, pattern: Pattern, sent: Column | None = None) -> AxisLoads:
        """What all groups of a scalar layout put on the links.

        `sent` is what each rank sends to its group; without it the loads count in units of that.
        """
        where, seat = self._where(layout)
        each = np.ones(int(layout.world_size)) if sent is None else sent
        inside, way = self._inside(pattern, where, seat, each)
        across = streams_across(pattern, where, seat).times(each)
        return AxisLoads(inside, *load_across(self.pools, across, seat, self.cluster), way)

    def _inside(self, pattern: Pattern, where: Runs, seat: Seats, sent: Column) -> tuple[Loads, Seconds]:
        """Rings spread over direct links where these join their members; every other message takes its route."""
        if pattern != Pattern.RING or all(pool.node.wiring != Wiring.MESH for pool in self.pools):
            return load_inside(self.pools, streams_inside(pattern, where).times(sent), seat)
        rings, rest, hop = load_of_rings(self.pools, where, seat, sent)
        routed, way = load_inside(self.pools, streams_inside(pattern, where, rest).times(sent), seat)
        return added((rings, routed)), max(hop, way)

    def loads_of(self, streams: Streams) -> AxisLoads:
        """What streams between any ranks put on the links."""
        inside, way = load_inside(self.pools, inbound(streams, self.seats), self.seats)
        across = outbound(streams, self.seats)
        return AxisLoads(inside, *load_across(self.pools, across, self.seats, self.cluster), way)

    def _share(self, radices: Radices, pattern: Pattern) -> Share:
        layout = Layout(*radices)
        where, seat = self._where(layout)
        crosses, local = bool(where.spread.any()), int(where.length.min())
        if int(layout.size) == 1:
            return Share(1, Limit(), Limit(), 0.0, 0.0, Parts(0.0, 0.0))
        parts = parts_of(pattern, where)
        if pattern == Pattern.CHAIN:
            local = 1 if crosses else min(2, local)
        inside, across, near, far = Limit(), Limit(), 0.0, 0.0
        if local > 1 and self.port:
            inside, near = _through(self.port[0], pattern, where), self.port[1]
        elif local > 1:
            loads, near = self._inside(pattern, where, seat, np.ones(int(layout.world_size)))
            inside = tightest(loads, parts.inside)
        if crosses and self.own_way_out:
            across, far = self.own_way_out
        elif crosses:
            loads, far = load_across(self.pools, streams_across(pattern, where, seat), seat, self.cluster)
            across = tightest(loads, parts.across)
        return Share(local, inside, across, near, far, parts)

    def _where(self, layout: Layout) -> tuple[Runs, Seats]:
        """The members of all groups by the domains that they are in, and the seats of as many ranks."""
        seat = self.seats.first(int(layout.world_size))
        return runs(groups(layout), seat.domain), seat


def _own_way_out(cluster: Cluster, pools: Sequence[Wires]) -> tuple[Limit, Seconds] | None:
    """Limit and latency of a rank's way to another domain where no two ranks share any link of it; else None.

    Then it is the same whoever talks to whom, and no load has to be added up.
    """
    doors = pools[0].doors
    each = doors.leaving + doors.entering
    users = (each > 0).sum(axis=0)
    if len(pools) > 1 or cluster.node.fabric.thin_blocks or not users.any() or users.max() > 1:
        return None
    return tightest((tier_of_nodes(pools[0], 0, each.max(axis=0)[None]),), 1.0), doors.latency_out + doors.latency_in


def _port(pools: Sequence[Wires]) -> tuple[Limit, Seconds] | None:
    """Limit and latency of a rank's way through the switch of its domain, where all accelerators have one; else None.

    A port bears the traffic of its own rank only.
    """
    if len(pools) > 1 or pools[0].node.wiring != Wiring.SWITCH:
        return None
    ports = pools[0].ports
    each = (ports.leaving + ports.entering).max(axis=0)
    return tightest((tier_of_nodes(pools[0], 0, each[None]),), 1.0), ports.latency_out + ports.latency_in


def _through(port: Limit, pattern: Pattern, where: Runs) -> Limit:
    """The port of the rank that has most to send inside its domain, for the one by which an axis is judged."""
    if pattern != Pattern.ALL_TO_ALL:
        return port
    ranks = float(f"{(where.length.max() - 1) / (where.length.min() - 1):.12g}")
    return port._replace(bandwidth=port.capacity / ranks, load=ranks)
