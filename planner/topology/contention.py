"""What every group of an axis gets while all its sister groups talk at once.

The traffic of all groups is laid on the links; a link with capacity c that bears the traffic of l ranks gives each of
them c / l, and the most loaded link of all decides. So one slow link anywhere (the slowest pool that the groups touch,
the group that straddles a node boundary worst) holds the whole axis back, as it does in a synchronous step. Links
inside a domain and links between domains are told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from planner.quantities import BytesPerSecond, Column, Seconds
from planner.spec.cluster import Cluster, Pool, Wiring
from planner.topology.graph import pod_uplink_bandwidth, uplink_bandwidth
from planner.topology.patterns import Pattern
from planner.topology.placement import Layout, groups
from planner.topology.routes import Doors, Limit, Routes
from planner.topology.seats import Runs, Seats, period, runs, seats

Radices = tuple[int, int, int, int, int]
"""Stride, near, gap, far and repeats of a `Layout`."""


class Share(NamedTuple):
    """What the worst group of an axis gets: members per domain, the links that limit a rank, latencies of a hop."""

    local: int
    local_limit: Limit
    remote_limit: Limit
    local_latency: Seconds
    remote_latency: Seconds


@dataclass(frozen=True, eq=False)
class Traffic:
    """What leaves the domains: one entry per stream, from a rank to a rank.

    Loads count in units of the remote traffic of the rank that has the most.
    """

    source: Column
    target: Column
    load: Column
    off_unit: Column
    """The part of the load that crosses a spine."""
    off_pod: Column
    off_site: Column


class Network:
    """A cluster with all that was found out about it: routes, seats of ranks, shares of layouts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.routes = Routes(cluster)
        self.period = period(cluster)
        self.own_way_out = _own_way_out(self.routes)
        self.seats = seats(cluster)
        self.share = lru_cache(maxsize=2**16)(self._share)

    def _share(self, radices: Radices, pattern: Pattern) -> Share:
        layout = Layout(*radices)
        members, seat = groups(layout), self.seats.first(int(layout.world_size))
        parts = runs(members, seat.domain)
        crosses = bool(parts.spread.any())
        local = int(parts.length.min())
        if pattern == Pattern.CHAIN:
            local = 1 if crosses else min(2, local)
        inside = _local(self.routes, pattern, parts, seat) if local > 1 else (Limit(), 0.0)
        across = self._across(pattern, parts, seat) if crosses else (Limit(), 0.0)
        return Share(local, inside[0], across[0], inside[1], across[1])

    def _across(self, pattern: Pattern, parts: Runs, seat: Seats) -> tuple[Limit, Seconds]:
        """The tightest limit and the longest hop between domains."""
        if self.own_way_out:
            return self.own_way_out
        traffic = _TRAFFIC[pattern](parts, seat)
        limits = [*_doors(self.routes, traffic, seat), *_uplinks(self.cluster, traffic, seat)]
        limits += _wan(self.cluster, traffic, seat)
        return min(limits), _remote_latency(self, traffic, seat)


def _own_way_out(routes: Routes) -> tuple[Limit, Seconds] | None:
    """Limit and latency of a rank's way to another domain where no two ranks share any link of it; else None."""
    fabric, doors = routes.pools[0].node.fabric, routes.doors[0]
    users = (doors.leaving > 0).sum(axis=0) + (doors.entering > 0).sum(axis=0)
    if len(routes.pools) > 1 or fabric.thin_blocks or not users.size or users.max() > 1:
        return None
    loads = (doors.leaving + doors.entering).max(axis=0)
    return _worst(routes, doors, loads), doors.latency_out + doors.latency_in


def _ring_traffic(parts: Runs, seat: Seats) -> Traffic:
    """As many rotated rings as the domain with the fewest members has: each leaves and enters by another member."""
    members, position = parts.members[parts.spread], parts.position[parts.spread]
    rings = parts.length[parts.spread].min(axis=1, initial=members.shape[1])
    chosen = position < rings[:, None]
    source, count = members[chosen], chosen.sum(axis=1)
    row = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    offset = np.arange(source.size) - begin[row]
    return _streams(source, source[begin[row] + (offset + rings[row]) % count[row]], seat)


def _chain_traffic(parts: Runs, seat: Seats) -> Traffic:
    source, target = parts.members[:, :-1].ravel(), parts.members[:, 1:].ravel()
    crosses = seat.domain[source] != seat.domain[target]
    return _streams(source[crosses], target[crosses], seat)


def _streams(source: Column, target: Column, seat: Seats) -> Traffic:
    off = ((place[source] != place[target]).astype(float) for place in (seat.leaf, seat.pod, seat.site))
    return Traffic(source, target, np.ones(source.size), *off)


def _all_to_all_traffic(parts: Runs, seat: Seats) -> Traffic:
    """Every rank sends to all ranks outside its domain alike, and receives as much.

    Within a rail-optimised pool or pod nothing crosses a spine, since a message first moves inside its node to the
    accelerator on the receiver's rail (NCCL's PXN).
    """
    members, near = parts.members[parts.spread], parts.length[parts.spread]
    source, site = members.ravel(), seat.site[members]
    off_domain = members.shape[1] - near
    off_unit, off_pod = (_peers_beyond(members, near, place, seat) for place in (seat.unit, seat.pod))
    off_site = (site[:, :, None] != site[:, None, :]).sum(axis=2) if site.any() else np.zeros(site.shape)
    most = off_domain.max(initial=1)
    return Traffic(source, source, *((peers / most).ravel() for peers in (off_domain, off_unit, off_pod, off_site)))


def _peers_beyond(members: Column, near: Column, place: Column, seat: Seats) -> Column:
    """How many of a member's group are neither in its domain, where it has `near`, nor at the same place."""
    there = runs(members, place).length
    both = runs(members, seat.domain * len(place) + place).length
    return members.shape[1] - (near + there - both)


_TRAFFIC = {
    Pattern.RING: _ring_traffic,
    Pattern.CHAIN: _chain_traffic,
    Pattern.ALL_TO_ALL: _all_to_all_traffic,
}


def _local(routes: Routes, pattern: Pattern, parts: Runs, seat: Seats) -> tuple[Limit, Seconds]:
    """The tightest limit and the longest hop inside any domain."""
    if len(routes.pools) == 1 and routes.pools[0].node.wiring == Wiring.SWITCH:
        return routes.switched(0)
    together = np.zeros(len(seat.pool), dtype=bool)
    together[parts.members] = parts.length > 1
    group = np.zeros(len(seat.pool), dtype=np.int64)
    group[parts.members] = np.arange(len(parts.members))[:, None]
    found = [(Limit(), 0.0)]
    for pool in np.flatnonzero(np.bincount(seat.pool[together])).tolist():
        node = routes.pools[pool].node
        if node.wiring == Wiring.SWITCH:
            found.append(routes.switched(pool))
            continue
        for division in _divisions(group[seat.pool == pool], node.gpus_per_node):
            found.append(routes.local(pool, pattern, division))
    return min(limit for limit, _ in found), max(latency for _, latency in found)


def _divisions(group: Column, gpus: int) -> set[tuple[tuple[int, ...], ...]]:
    """The distinct ways in which nodes are divided among groups, groups with one member there left out."""
    spare = -1 - np.arange(-len(group) % gpus)
    rows = np.concatenate([group, spare]).reshape(-1, gpus)
    first_of_group = (rows[:, :, None] == rows[:, None, :]).argmax(axis=2)
    return {_division(labels) for labels in set(map(tuple, first_of_group.tolist()))}


def _division(labels: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    parts: defaultdict[int, list[int]] = defaultdict(list)
    for slot, label in enumerate(labels):
        parts[label].append(slot)
    return tuple(tuple(part) for part in parts.values() if len(part) > 1)


def _doors(routes: Routes, traffic: Traffic, seat: Seats) -> Iterator[Limit]:
    """The most loaded edge between accelerators and leaf switches, per pool: PCIe, sockets, NICs."""
    for pool, doors in enumerate(routes.doors):
        shape = (seat.nodes(pool), routes.pools[pool].node.gpus_per_node)
        out, into = (_by_slot(ranks, traffic.load, seat, pool, shape) for ranks in (traffic.source, traffic.target))
        loads = (out @ doors.leaving + into @ doors.entering).max(axis=0, initial=0.0)
        if loads.any():
            yield _worst(routes, doors, loads)


def _worst(routes: Routes, doors: Doors, loads: Column) -> Limit:
    worst = int(np.argmax(loads / doors.capacity))
    return Limit.of(routes.links, doors.edges[worst], float(loads[worst]))


def _by_slot(ranks: Column, load: Column, seat: Seats, pool: int, shape: tuple[int, int]) -> Column:
    """The load that begins (or ends) at each accelerator of each node of a pool: shape (nodes, accelerators)."""
    here = seat.pool[ranks] == pool
    cells = seat.node[ranks[here]] * shape[1] + seat.slot[ranks[here]]
    return np.bincount(cells, load[here], minlength=shape[0] * shape[1]).reshape(shape)


def _uplinks(cluster: Cluster, traffic: Traffic, seat: Seats) -> Iterator[Limit]:
    """Leaf to spine and pod to core, where these are oversubscribed (else what is below always is the limit)."""
    for code, pool in enumerate(cluster.pools):
        for place, off, capacity, ends in _thin_tiers(pool, traffic, seat):
            for ranks, way in ((traffic.source, ends), (traffic.target, ends[::-1])):
                here = seat.pool[ranks] == code
                load = float(np.bincount(place[ranks[here]], off[here], minlength=1).max())
                if load:
                    yield Limit(capacity / load, load, capacity, pool.node.fabric.kind, way)


def _thin_tiers(
    pool: Pool, traffic: Traffic, seat: Seats
) -> Iterator[tuple[Column, Column, BytesPerSecond, tuple[str, str]]]:
    """Of each oversubscribed tier: where ranks sit, what leaves there, the uplinks' bandwidth and what they join."""
    fabric = pool.node.fabric
    if fabric.oversubscription > 1:
        # Without leaves of whole nodes a rank has the leaves of all its rails.
        rails = 1 if fabric.nodes_per_leaf else max(fabric.nics_per_node // pool.node.gpus_per_node, 1)
        above = "pod" if fabric.nodes_per_pod else "spine"
        yield seat.leaf, traffic.off_unit, uplink_bandwidth(pool) * rails, ("leaf", above)
    if fabric.pod_oversubscription > 1:
        yield seat.pod, traffic.off_pod, pod_uplink_bandwidth(fabric), ("pod", "spine")


def _wan(cluster: Cluster, traffic: Traffic, seat: Seats) -> Iterator[Limit]:
    """All streams of the axis that leave or enter a site share its line."""
    if cluster.wan is None or not traffic.off_site.any():
        return
    for ranks, ends in ((traffic.source, ("spine", "wan")), (traffic.target, ("wan", "spine"))):
        load = float(np.bincount(seat.site[ranks], traffic.off_site).max())
        yield Limit(cluster.wan.bandwidth / load, load, cluster.wan.bandwidth, "wan", ends)


def _remote_latency(network: Network, traffic: Traffic, seat: Seats) -> Seconds:
    doors = network.routes.doors
    out, into = np.array([door.latency_out for door in doors]), np.array([door.latency_in for door in doors])
    wan = network.cluster.wan.latency if network.cluster.wan else 0.0
    hops = out[seat.pool[traffic.source]] + into[seat.pool[traffic.target]] + wan * (traffic.off_site > 0)
    return float(hops.max())
