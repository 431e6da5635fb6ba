"""What the parallel groups of a cluster get of its links, for the usual layouts or one that is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from planner.cost.collectives import bus_bandwidth
from planner.errors import SpecError, unknown_name
from planner.explain.words import short_name
from planner.quantities import GB
from planner.spec.cluster import Cluster
from planner.spec.plan import ContextKind, Plan, RankOrder, Schedule, Sharding
from planner.topology.group_links import group_links


@dataclass(frozen=True)
class GroupWiring:
    """One kind of group under one layout; bandwidths in GB/s, one direction, None where no such link is used."""

    layout: str
    group: str
    ranks: int
    in_one_domain: int
    inside_gb_per_s: float | None
    between_gb_per_s: float | None
    bus_gb_per_s: float
    latency_us: float


def layouts(cluster: Cluster, degrees: dict[str, int]) -> list[Plan]:
    """The layout asked for, or without any: tensor groups of 1, 2, 4 ... up to a node, the rest data-parallel.

    Raises SpecError where the degrees do not divide the cluster.
    """
    world = cluster.world_size
    if degrees:
        return [_layout(world, **degrees)]
    node = cluster.node.gpus_per_node
    sizes = [2**power for power in range(node.bit_length()) if node % 2**power == 0 and world % 2**power == 0]
    return [_layout(world, tp=size) for size in sizes]


def _layout(world: int, *, tp: int = 1, pp: int = 1, cp: int = 1, dp_replicate: int = 1) -> Plan:
    inner = tp * pp * cp * dp_replicate
    if inner < 1 or world % inner:
        raise SpecError(f"tp x pp x cp x dp_replicate is {inner}, which does not divide {world} GPUs")
    shards = world // inner
    return Plan(
        tp=tp,
        pp=pp,
        cp=cp,
        dp_shard=shards,
        dp_replicate=dp_replicate,
        sharding=Sharding.ZERO3 if shards * cp > 1 else Sharding.NONE,
        schedule=Schedule.ONE_F_ONE_B if pp > 1 else Schedule.NONE,
        context_kind=ContextKind.RING if cp > 1 else ContextKind.NONE,
    )


def rank_order_of(name: str) -> RankOrder:
    """The rank order of a name such as tp_cp_dp_pp. Raises SpecError."""
    known = [order.name.lower() for order in RankOrder]
    if name.lower() not in known:
        raise unknown_name("rank order", name, known, where="--rank-order")
    return RankOrder[name.upper()]


def wiring(cluster: Cluster, plans: list[Plan], order: RankOrder = RankOrder.TP_CP_DP_PP) -> Iterator[GroupWiring]:
    """Every group of more than one rank, layout by layout, its sister groups talking at the same time."""
    for plan in plans:
        links = group_links(replace(plan, rank_order=int(order)).columns(), cluster)[0]
        for field in fields(links):
            if field.name.startswith("expert"):
                continue
            group = getattr(links, field.name)
            if group.size > 1:
                yield _group(short_name(plan), field.name, group)


def _group(layout: str, name: str, group: Any) -> GroupWiring:
    crosses = group.size > group.local
    ring = bus_bandwidth(
        group=group.size,
        local=group.local,
        local_bandwidth=group.local_bandwidth,
        remote_bandwidth=group.remote_bandwidth,
    )
    return GroupWiring(
        layout=layout,
        group=name,
        ranks=int(group.size),
        in_one_domain=int(group.local),
        inside_gb_per_s=float(group.local_bandwidth) / GB if group.local > 1 else None,
        between_gb_per_s=float(group.remote_bandwidth) / GB if crosses else None,
        bus_gb_per_s=float(ring) / GB,
        latency_us=float(group.remote_latency if crosses else group.local_latency) * 1e6,
    )
