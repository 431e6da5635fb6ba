"""Rank orders that lay the ranks out alike, so that one of them stands for all."""

from __future__ import annotations

import numpy as np

from planner.quantities import Column
from planner.spec.cluster import Cluster, Wiring
from planner.spec.plan import AXES_OF_ORDER, Plan, RankOrder

AXES = ("tp", "cp", "dp", "pp")


def distinct_orders(plans: Plan, cluster: Cluster, orders: tuple[int, ...] = tuple(RankOrder)) -> Column:
    """Which of `orders` (ascending codes) differ from all before them: a mask of shape (plans, orders).

    Two orders are alike when the axes of more than one rank follow one another in the same sequence. Where every
    accelerator of a link domain is on one switch the sequence inside the domain makes no difference, and where the
    network between domains is the same between all of them neither does the sequence outside: then two orders are
    alike when each axis has as many ranks inside the domain.
    """
    layouts = np.stack([_layout(plans, order, cluster) for order in orders])
    same = (layouts[:, None] == layouts[None, :]).all(axis=2)
    earlier = np.tril(np.ones((len(orders), len(orders)), dtype=bool), k=-1)
    return ~(same & earlier[:, :, None]).any(axis=1).T


def first_alike(plans: Plan, cluster: Cluster) -> Column:
    """The lowest rank order that lays each plan out as its own does."""
    layouts = np.stack([_layout(plans, order, cluster) for order in RankOrder])
    own = np.take_along_axis(layouts, np.asarray(plans.rank_order)[None, None, :], axis=0)
    return (layouts == own).all(axis=1).argmax(axis=0)


def _layout(plans: Plan, order: int, cluster: Cluster) -> Column:
    """What tells layouts apart, shape (figures, plans): ranks of each axis inside a domain, then the two sequences."""
    axes = AXES_OF_ORDER[RankOrder(order)]
    sizes = {axis: np.broadcast_to(getattr(plans, axis), len(plans)) for axis in axes}
    domain = min(cluster.node.gpus_per_node * cluster.node.domain_nodes, cluster.world_size)
    inside, regular = _inside(axes, sizes, domain)
    outside = {axis: sizes[axis] // inside[axis] for axis in axes}
    whole = _sequence(axes, sizes)
    near = np.where(regular & _inside_is_flat(cluster), 0, _sequence(axes, inside))
    far = np.where(regular & _outside_is_flat(cluster), 0, _sequence(axes, outside))
    return np.stack([*(inside[axis] for axis in AXES), *(np.where(regular, part, whole) for part in (near, far))])


def _inside(axes: tuple[str, ...], sizes: dict[str, Column], domain: int) -> tuple[dict[str, Column], Column]:
    """Ranks of each axis inside one domain, and whether every domain holds the same block of ranks."""
    room = np.full(len(sizes["tp"]), domain)
    regular = np.ones(len(room), dtype=bool)
    inside = {}
    for axis in axes:
        inside[axis] = np.gcd(sizes[axis], room)
        room = room // inside[axis]
        regular &= (inside[axis] == sizes[axis]) | (room == 1)
    return inside, regular


def _sequence(axes: tuple[str, ...], sizes: dict[str, Column]) -> Column:
    """The order of the axes that have more than one rank, as a number."""
    number = np.zeros(len(sizes["tp"]), dtype=np.int64)
    for axis in axes:
        number = np.where(sizes[axis] > 1, number * 5 + AXES.index(axis) + 1, number)
    return number


def _inside_is_flat(cluster: Cluster) -> bool:
    return cluster.node.wiring is Wiring.SWITCH


def _outside_is_flat(cluster: Cluster) -> bool:
    """Whether all domains are equally near: one pool, and no border of a thin leaf or pod between its nodes."""
    borders = any(0 < nodes < cluster.num_nodes for nodes in cluster.node.fabric.thin_blocks)
    return len(cluster.pools) == 1 and not borders
