"""What each link bears of some streams: those of the nodes, the uplinks of leaves and pods, the lines between sites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.quantities import BytesPerSecond, Column, Scalar, Seconds
from planner.spec.cluster import Cluster, Pool, Wiring
from planner.topology.graph import pod_uplink_bandwidth, uplink_bandwidth
from planner.topology.routes import Edge, Limit, Ways, Wires
from planner.topology.seats import Runs, Seats
from planner.topology.traffic import Outbound, Streams, ring_load

_ALIKE = 1e-9
"""Links whose times differ by less than this share are equally slow."""


@dataclass(frozen=True, eq=False)
class Tier:
    """Equal places, each with the same links: the nodes of a pool, its leaves, its pods, or all sites.

    `edges` are the links as the first place has them, one direction each; `load` has shape (places, edges).
    """

    place: str
    pool: int
    edges: tuple[Edge, ...]
    kinds: tuple[str, ...]
    capacity: Column
    load: Column

    def limit(self, part: Scalar) -> Limit | None:
        """The link that takes longest, for ranks that send `part` in the unit of the loads; None without a load.

        Of equally slow ones that which the fewest ranks share, and of these the outermost.
        """
        worst = self.load.max(axis=0, initial=0.0)
        busy = worst / self.capacity
        if not busy.any():
            return None
        slowest = np.flatnonzero(busy >= busy.max() * (1 - _ALIKE))[::-1]
        link = int(slowest[np.argmin(worst[slowest])])
        # Sums of shares such as 71 x 1/71 are to be 1.
        capacity, ranks = float(self.capacity[link]), float(f"{worst[link] / part:.12g}")
        here, there = self.edges[link]
        return Limit(capacity / ranks, ranks, capacity, self.kinds[link], (str(here[0]), str(there[0])))


Loads = tuple[Tier, ...]


def tightest(loads: Loads, part: Scalar) -> Limit:
    """The link of all tiers that takes longest, for ranks that send `part` in the unit of the loads."""
    limits = [limit for tier in loads if (limit := tier.limit(part))]
    slowest = min((limit.bandwidth for limit in limits), default=0.0)
    return min(
        (limit for limit in limits if limit.bandwidth <= slowest * (1 + _ALIKE)),
        key=lambda limit: limit.load,
        default=Limit(),
    )


def added(parts: Iterable[Loads]) -> Loads:
    """The loads of several streams together, tier by tier."""
    found: dict[tuple[str, int], Tier] = {}
    for tier in (tier for loads in parts for tier in loads):
        key = tier.place, tier.pool
        found[key] = replace(tier, load=found[key].load + tier.load) if key in found else tier
    return tuple(found.values())


def load_inside(pools: Sequence[Wires], streams: Streams, seat: Seats) -> tuple[Loads, Seconds]:
    """What streams within domains put on the links of nodes, and the longest way."""
    found = [_node_load(wires, streams, seat, pool) for pool, wires in enumerate(pools)]
    return tuple(tier for tier, _ in found), max(latency for _, latency in found)


def load_of_rings(pools: Sequence[Wires], where: Runs, seat: Seats, sent: Column) -> tuple[Loads, Column, Seconds]:
    """What the ring groups of meshes put on direct links, a mask of the members without such rings, and a hop.

    Members that direct links join in rings spread their traffic over the best set of these.
    """
    begins = np.flatnonzero(where.position.ravel() == 0)
    first, length = where.members.ravel()[begins], where.length.ravel()[begins]
    passed = sent[first] * ring_load(where).ravel()[begins]
    slots = np.bitwise_or.reduceat(1 << seat.slot[where.members.ravel()], begins)
    rest, loads, hop = length > 1, [], 0.0
    for pool, wires in enumerate(pools):
        load = np.zeros((seat.nodes(pool), len(wires.edges)))
        for code in np.unique(slots[rest & (seat.pool[first] == pool)]).tolist():
            rings = wires.rings(tuple(slot for slot in range(wires.node.gpus_per_node) if code >> slot & 1))
            if rings is not None:
                chosen = (seat.pool[first] == pool) & (slots == code)
                load += np.bincount(seat.node[first[chosen]], passed[chosen], len(load))[:, None] * rings
                rest, hop = rest & ~chosen, wires.node.link_latency
        loads.append(tier_of_nodes(wires, pool, load))
    return tuple(loads), np.repeat(rest, length).reshape(where.members.shape), hop


def load_across(pools: Sequence[Wires], streams: Outbound, seat: Seats, cluster: Cluster) -> tuple[Loads, Seconds]:
    """What streams between domains put on the links of nodes, on uplinks and between sites; and the longest way."""
    nodes = (
        tier_of_nodes(wires, pool, _over(wires.doors, streams, seat, pool=pool)) for pool, wires in enumerate(pools)
    )
    out, into = (np.array([getattr(w.doors, name) for w in pools]) for name in ("latency_out", "latency_in"))
    wan = (cluster.wan.latency if cluster.wan else 0.0) * (streams.off_site > 0)
    hops = out[seat.pool[streams.source]] + into[seat.pool[streams.target]] + wan
    tiers = (*nodes, *_uplinks(cluster, streams, seat), *_wan(cluster, streams, seat))
    return tiers, float(hops.max(initial=0.0))


def tier_of_nodes(wires: Wires, pool: int, load: Column) -> Tier:
    """The nodes of a pool, whose links bear `load` (nodes, links)."""
    return Tier("node", pool, wires.edges, wires.kinds, wires.capacity, load)


def _node_load(wires: Wires, streams: Streams, seat: Seats, pool: int) -> tuple[Tier, Seconds]:
    if wires.node.wiring == Wiring.SWITCH:
        used = bool((seat.pool[streams.source] == pool).any())
        latency = wires.ports.latency_out + wires.ports.latency_in if used else 0.0
        return tier_of_nodes(wires, pool, _over(wires.ports, streams, seat, pool=pool)), latency
    gpus, here = wires.node.gpus_per_node, seat.pool[streams.source] == pool
    source, target = streams.source[here], streams.target[here]
    cells = (seat.node[source] * gpus + seat.slot[source]) * gpus + seat.slot[target]
    pairs = np.bincount(cells, streams.load[here], minlength=seat.nodes(pool) * gpus**2).reshape(-1, gpus**2)
    used_pairs = np.flatnonzero(pairs.any(axis=0))
    ways = [wires.between(*divmod(pair, gpus)) for pair in used_pairs.tolist()]
    rows = np.array([row for row, _ in ways]).reshape(-1, len(wires.edges))
    latency = max((latency for _, latency in ways), default=0.0)
    return tier_of_nodes(wires, pool, pairs[:, used_pairs] @ rows), latency


def _over(ways: Ways, streams: Streams, seat: Seats, *, pool: int) -> Column:
    """What the streams of a pool put on its nodes' ways to a switch: shape (nodes, edges)."""
    out, into = (
        _by_slot(ranks, streams.load, seat, pool, len(ways.leaving)) for ranks in (streams.source, streams.target)
    )
    load: Column = out @ ways.leaving + into @ ways.entering
    return load


def _by_slot(ranks: Column, load: Column, seat: Seats, pool: int, gpus: int) -> Column:
    """The load that begins (or ends) at each accelerator of each node of a pool: shape (nodes, accelerators)."""
    here = seat.pool[ranks] == pool
    cells = seat.node[ranks[here]] * gpus + seat.slot[ranks[here]]
    return np.bincount(cells, load[here], minlength=seat.nodes(pool) * gpus).reshape(-1, gpus)


def _uplinks(cluster: Cluster, streams: Outbound, seat: Seats) -> Iterator[Tier]:
    """Leaf to spine and pod to core."""
    for code, pool in enumerate(cluster.pools):
        fabric, here = pool.node.fabric, seat.pool == code
        for name, above, places, load in (
            ("leaf", "pod" if fabric.nodes_per_pod else "spine", seat.leaf, streams.off_leaf),
            ("pod", "spine", seat.pod, streams.off_pod),
        ):
            if here.any() and fabric.nics_per_node and (name == "leaf" or fabric.nodes_per_pod):
                both = _both_ways(streams, load, places, here)
                yield _tier_above(name, code, (name, above), (fabric.kind, _capacity(name, pool)), both)


def _capacity(name: str, pool: Pool) -> BytesPerSecond:
    """Of all uplinks of one leaf or pod. Without leaves of whole nodes a rank has the leaves of all its rails."""
    fabric = pool.node.fabric
    if name == "pod":
        return pod_uplink_bandwidth(fabric)
    rails = 1 if fabric.nodes_per_leaf else max(fabric.nics_per_node // pool.node.gpus_per_node, 1)
    return uplink_bandwidth(pool) * rails


def _wan(cluster: Cluster, streams: Outbound, seat: Seats) -> Iterator[Tier]:
    """All streams that leave or enter a site share its line."""
    if cluster.wan is not None:
        both = _both_ways(streams, streams.off_site, seat.site, np.ones(len(seat.site), dtype=bool))
        yield _tier_above("site", 0, ("spine", "wan"), ("wan", cluster.wan.bandwidth), both)


def _both_ways(streams: Outbound, load: Column, places: Column, here: Column) -> Column:
    """The load up and down of each place where ranks of the mask sit: shape (places, 2)."""
    numbers = np.flatnonzero(np.bincount(places[here]))
    sides = []
    for ranks in (streams.source, streams.target):
        of_pool = here[ranks]
        found = np.bincount(places[ranks[of_pool]], load[of_pool], minlength=int(numbers.max()) + 1)
        sides.append(found[numbers])
    return np.stack(sides, axis=1)


def _tier_above(name: str, pool: int, ends: tuple[str, str], link: tuple[str, BytesPerSecond], load: Column) -> Tier:
    kind, capacity = link
    edges: tuple[Edge, ...] = (((ends[0], 0), (ends[1], 0)), ((ends[1], 0), (ends[0], 0)))
    return Tier(name, pool, edges, (kind, kind), np.full(2, capacity), load)
