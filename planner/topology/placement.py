"""Which ranks talk to each other: the groups of every axis, as integer columns.

Ranks are numbered axis by axis, the innermost fastest (`RankOrder`), and fill the cluster node by node. So a group is
an arithmetic pattern, and the groups of an axis are the classical reshaped arange.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from planner.errors import SpecError
from planner.quantities import Column
from planner.rows import Rows
from planner.spec.plan import AXES_OF_ORDER, Int, Plan, RankOrder

AXES = ("tp", "cp", "ep", "expert_tp", "pp", "dp_shard", "dp_replicate", "expert_shard", "expert_replicate")
"""The axes that have groups of their own; the fields of `Links`."""


@dataclass(frozen=True, eq=False)
class Layout(Rows):
    """How the groups of one axis lie in the numbering of ranks. Scalars or columns.

    A group is `near` ranks, `stride` apart, and the same again `far` times over, with `gap` such patterns of sister
    groups in between; the whole is repeated `repeats` times. A rank is therefore, counting in mixed radix,
    a + stride x (k + near x (b + gap x (j + far x c))), where k and j run within a group and a, b, c tell the sister
    groups apart. Most axes have far = gap = 1.
    """

    stride: Int
    near: Int
    gap: Int
    far: Int
    repeats: Int

    @property
    def size(self) -> Int:
        """Ranks per group."""
        return self.near * self.far

    @property
    def radices(self) -> tuple[Int, Int, Int, Int, Int]:
        """All fields, innermost first."""
        return self.stride, self.near, self.gap, self.far, self.repeats

    @property
    def world_size(self) -> Int:
        """Ranks of all groups."""
        return self.stride * self.near * self.gap * self.far * self.repeats

    def canonical(self) -> Layout:
        """The same groups in the one form that equal groups share: radices of one merged away."""
        single = self.far == 1
        gap, repeats = np.where(single, 1, self.gap), np.where(single, self.repeats * self.gap, self.repeats)
        inner = self.near == 1
        stride, gap = np.where(inner, self.stride * gap, self.stride), np.where(inner, 1, gap)
        joined = gap == 1
        near, far = np.where(joined, self.near * self.far, self.near), np.where(joined, 1, self.far)
        lone = near * far == 1
        stride, repeats = np.where(lone, 1, stride), np.where(lone, stride * repeats, repeats)
        return Layout(stride=stride, near=near, gap=gap, far=far, repeats=repeats)


def groups(layout: Layout) -> Column:
    """The ranks of every group of a scalar layout: one row a group, ascending, shape (groups, size).

    >>> groups(Layout(stride=2, near=2, gap=1, far=1, repeats=2)).tolist()
    [[0, 2], [1, 3], [4, 6], [5, 7]]
    """
    radices = (layout.repeats, layout.far, layout.gap, layout.near, layout.stride)
    ranks = np.arange(prod(int(radix) for radix in radices)).reshape(radices)
    return ranks.transpose(0, 2, 4, 1, 3).reshape(-1, int(layout.size))


def group_of(layout: Layout, rank: int) -> Column:
    """The ranks of the group that a rank belongs to, ascending.

    >>> group_of(Layout(stride=2, near=2, gap=1, far=1, repeats=2), rank=5).tolist()
    [5, 7]
    """
    stride, near, far = int(layout.stride), int(layout.near), int(layout.far)
    step = stride * near * int(layout.gap)
    first = rank - rank // stride % near * stride - rank // step % far * step
    return (first + step * np.arange(far)[:, None] + stride * np.arange(near)).ravel()


def layouts(plans: Plan) -> Mapping[str, Layout]:
    """The layout of every axis, row for row with the plans (scalars for one plan).

    Dense axes follow the rank order; `dp_shard` spans dp_shard x cp ranks. Experts divide the ranks of the
    tp x cp x dp_shard block in ascending order: expert_tp innermost, then ep, then expert_shard; where the rank order
    puts other axes inside the block and an expert axis fills its inner part unevenly, the axis takes their greatest
    common divisor there and the rest outside. Raises SpecError when the experts do not fill the block.
    """
    block = plans.tp * plans.cp * plans.dp_shard
    if np.any(block % (plans.ep * plans.expert_tp)):
        raise SpecError("ep x expert_tp must divide tp x cp x dp_shard")
    present = [RankOrder(code) for code in np.unique(plans.rank_order)]
    by_order = {order: _layouts_in(plans, order) for order in present}
    return {axis: _chosen(plans.rank_order, {order: by_order[order][axis] for order in present}) for axis in AXES}


def _chosen(orders: Int, by_order: Mapping[RankOrder, Layout]) -> Layout:
    """Row by row the layout of that row's rank order."""
    (_, chosen), *others = by_order.items()
    for order, layout in others:
        here = orders == order
        chosen = Layout(*(np.where(here, new, old) for new, old in zip(layout.radices, chosen.radices, strict=True)))
    return chosen


def _layouts_in(plans: Plan, order: RankOrder) -> dict[str, Layout]:
    world, sizes = plans.world_size, _axis_sizes(plans, order)
    lone = {axis: _pattern(sizes, {axis}, world) for axis in sizes}
    experts = _expert_layouts(plans, _pattern(sizes, {"tp", "cp", "dp_shard"}, world))
    shard = _pattern(sizes, {"cp", "dp_shard"}, world)
    return {**lone, **experts, "dp_shard": shard, "expert_replicate": lone["dp_replicate"]}


def _axis_sizes(plans: Plan, order: RankOrder) -> dict[str, Int]:
    """Size of every axis, innermost first."""
    names: list[str] = []
    for axis in AXES_OF_ORDER[order]:
        names += ["dp_shard", "dp_replicate"] if axis == "dp" else [axis]
    return {name: getattr(plans, name) for name in names}


def _pattern(sizes: Mapping[str, Int], members: Collection[str], world: Int) -> Layout:
    """The layout of the groups that span some axes; these form one run of neighbouring axes or two."""
    radices: list[Int] = [1, 1, 1, 1, 1]
    place, inside = 0, False
    for axis, size in sizes.items():
        if (axis in members) != inside:
            place, inside = place + 1, not inside
        radices[place] = radices[place] * size
    stride, near, gap, far = radices[:4]
    return Layout(stride=stride, near=near, gap=gap, far=far, repeats=world // (stride * near * gap * far))


def _expert_layouts(plans: Plan, block: Layout) -> dict[str, Layout]:
    """Divide the block (which begins at stride 1), expert_tp first; every axis takes what it can of the inner part."""
    stride, outside = block.stride, block.gap
    inner, outer = block.near, block.far
    divided = {}
    for axis, size in (("expert_tp", plans.expert_tp), ("ep", plans.ep), ("expert_shard", plans.expert_shard_group)):
        near = np.gcd(size, inner)
        far, inner = size // near, inner // near
        outer = outer // far
        repeats = block.repeats * outer
        divided[axis] = Layout(stride=stride, near=near, gap=inner * outside, far=far, repeats=repeats)
        stride, outside = stride * near, outside * far
    return divided
