"""How many layers each chunk of a pipeline holds, in the order of the data flow."""

from __future__ import annotations

from planner.estimate.stages import layers_per_rank
from planner.spec.plan import Plan


def stage_sizes(num_layers: int, plan: Plan) -> list[int]:
    """Layers of chunk 0 of every rank, then of chunk 1, and so on.

    A rank's layers that do not divide by its chunks make its last chunks longer on the first rank, and its first ones
    elsewhere, so that embedding and head stand beside the short ones.

    >>> stage_sizes(10, Plan(pp=4)), stage_sizes(126, Plan(pp=2, virtual_stages=2, first_stage_layers=63))
    ([2, 3, 3, 2], [31, 32, 32, 31])
    """
    chunks = int(plan.virtual_stages)
    ranks = layers_per_rank(num_layers, int(plan.pp), int(plan.first_stage_layers), int(plan.last_stage_layers))
    dealt = [_dealt(layers, chunks, longest_last=rank == 0) for rank, layers in enumerate(ranks)]
    return [sizes[chunk] for chunk in range(chunks) for sizes in dealt]


def _dealt(layers: int, chunks: int, *, longest_last: bool) -> list[int]:
    each, longer = divmod(layers, chunks)
    sizes = [each + 1] * longer + [each] * (chunks - longer)
    return sizes[::-1] if longest_last else sizes


def is_even(num_layers: int, plan: Plan) -> bool:
    """Whether all chunks hold as many layers."""
    return len(set(stage_sizes(num_layers, plan))) == 1
