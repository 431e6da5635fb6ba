"""Which layers each pipeline rank holds, by kind of layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from planner.estimate.factor import STAGES, distinct_plans
from planner.estimate.records import Role
from planner.quantities import Column
from planner.spec.model import Model
from planner.spec.plan import Plan


@dataclass(frozen=True)
class Stages:
    """Layers by kind on the three pipeline ranks that can be the fullest or the slowest.

    `layers` has shape (kinds, roles, rows); `has_embedding` and `has_head` are 0 or 1, shape (roles, rows); `rank` is
    the pipeline rank of each role, shape (roles, rows). `total` counts all layers by kind, shape (kinds,).
    With one stage all roles are the same rank; with two, the middle is the first.
    """

    layers: Column
    has_embedding: Column
    has_head: Column
    rank: Column
    total: Column


def stages(model: Model, plans: Plan) -> Stages:
    """Layers of each role for plan columns of n rows."""
    splits = distinct_plans(plans, STAGES)
    weights = tuple(layer.parameters(model.hidden_size) for layer, _ in model.layer_kinds)
    columns = (np.asarray(getattr(plans, name))[splits.first].tolist() for name in STAGES)
    table = np.stack([_role_layers(model.layer_pattern, weights, _Split(*key)) for key in zip(*columns, strict=True)])
    pp = np.asarray(plans.pp)
    rank = np.stack([np.zeros_like(pp), np.where(pp > 2, 1, 0), pp - 1])
    return Stages(
        layers=splits.spread(np.moveaxis(table, 0, -1)),
        has_embedding=(rank == 0).astype(float),
        has_head=(rank == pp - 1).astype(float),
        rank=rank,
        total=np.array([count for _, count in model.layer_kinds], dtype=float),
    )


@dataclass(frozen=True)
class Layout:
    """How layers are dealt to stages: the number on each stage and the pipeline rank of each, as the data flows."""

    sizes: tuple[int, ...]
    rank_of: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """First layer of each stage."""
        return [0, *accumulate(self.sizes)][:-1]


def layout(num_layers: int, plan: Plan, *, chunks: int | None = None, v_shape: bool = False) -> Layout:
    """The layout of one plan, or that of as many `chunks` a rank; in a V the second chunk's stages run backwards.

    >>> layout(8, Plan(pp=2), chunks=2, v_shape=True)
    Layout(sizes=(2, 2, 2, 2), rank_of=(0, 1, 1, 0))
    """
    pp, first, last = (int(each) for each in (plan.pp, plan.first_stage_layers, plan.last_stage_layers))
    count = chunks or int(plan.virtual_stages)
    sizes = chunk_sizes(layers_per_rank(num_layers, pp, first, last), count)
    down = list(range(pp))
    if v_shape:
        return Layout(tuple(sizes[:pp] + sizes[: pp - 1 : -1]), tuple(down + down[::-1]))
    return Layout(tuple(sizes), tuple(down * count))


def all_ranks(model: Model, plan: Plan, dealt: Layout | None = None) -> Stages:
    """Layers of every pipeline rank of one plan, in place of the three roles."""
    dealt = dealt or layout(len(model.layer_pattern), plan)
    kinds = np.eye(len(model.layer_kinds))[list(model.layer_pattern)]
    rank = np.arange(max(dealt.rank_of) + 1)[:, None]
    layers = np.zeros((len(rank), len(model.layer_kinds)))
    for owner, begin, size in zip(dealt.rank_of, dealt.starts, dealt.sizes, strict=True):
        layers[owner] += kinds[begin : begin + size].sum(axis=0)
    return Stages(
        layers=layers.T[:, :, None],
        has_embedding=(rank == dealt.rank_of[0]).astype(float),
        has_head=(rank == dealt.rank_of[-1]).astype(float),
        rank=rank,
        total=np.array([count for _, count in model.layer_kinds], dtype=float),
    )


def layers_per_rank(num_layers: int, pp: int, first: int = 0, last: int = 0) -> list[int]:
    """Layers on each pipeline rank: the first and last as given (0: an even share), the longest others first.

    >>> layers_per_rank(80, 4), layers_per_rank(126, 4, first=31, last=31)
    ([20, 20, 20, 20], [31, 32, 32, 31])
    """
    if pp == 1:
        return [num_layers]
    first, last = first or num_layers // pp, last or num_layers // pp
    if pp == 2:
        return [num_layers - last, last]
    each, longer = divmod(num_layers - first - last, pp - 2)
    return [first, *(each + (i < longer) for i in range(pp - 2)), last]


@dataclass(frozen=True)
class _Split:
    """How layers are dealt to pipeline ranks."""

    pp: int
    virtual_stages: int
    first: int
    last: int


@lru_cache(maxsize=4096)
def _role_layers(pattern: tuple[int, ...], weights: tuple[int, ...], split: _Split) -> Column:
    """Layer counts of shape (kinds, roles) for one split; `weights` are the parameters of one layer of each kind."""
    per_rank = _layers_by_rank(np.eye(len(weights))[list(pattern)], split)
    middle = 1 + int(np.argmax(per_rank[1:-1] @ np.array(weights, dtype=float))) if split.pp > 2 else 0
    chosen = {Role.FIRST: 0, Role.MIDDLE: middle, Role.LAST: split.pp - 1}
    return per_rank[[chosen[role] for role in Role]].T


def _layers_by_rank(kinds: Column, split: _Split) -> Column:
    """Layer counts of shape (ranks, kinds): each rank's layers are dealt to it in `virtual_stages` chunks."""
    per_rank = layers_per_rank(len(kinds), split.pp, split.first, split.last)
    sizes = chunk_sizes(per_rank, split.virtual_stages)
    ends = np.cumsum(sizes)
    counts = np.zeros((split.pp, kinds.shape[1]))
    for stage, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        counts[stage % split.pp] += kinds[end - size : end].sum(axis=0)
    return counts


def chunk_sizes(per_rank: list[int], chunks: int) -> list[int]:
    """Layers of chunk 0 of every rank, then of chunk 1, and so on: the order of the data flow.

    A rank's layers that do not divide by its chunks make its last chunks longer on the first rank, and its first ones
    elsewhere, so that embedding and head stand beside the short ones.

    >>> chunk_sizes([2, 3, 3, 2], 1), chunk_sizes([63, 63], 2)
    ([2, 3, 3, 2], [31, 32, 32, 31])
    """
    return [
        _chunk_size(layers, chunk, chunks, longest_last=rank == 0)
        for chunk in range(chunks)
        for rank, layers in enumerate(per_rank)
    ]


def _chunk_size(layers: int, chunk: int, chunks: int, *, longest_last: bool) -> int:
    """Layers of one chunk; where they do not divide, the first rank's first chunk and the last's last are short."""
    position = chunks - 1 - chunk if longest_last else chunk
    return (layers - position + chunks - 1) // chunks
