"""How many layers each chunk of a pipeline holds, in the order of the data flow."""

from __future__ import annotations

from planner.estimate.stages import chunk_sizes, layers_per_rank
from planner.spec.plan import Plan


def stage_sizes(num_layers: int, plan: Plan) -> list[int]:
    """Layers of chunk 0 of every rank, then of chunk 1, and so on, as the estimate deals them.

    >>> stage_sizes(10, Plan(pp=4)), stage_sizes(126, Plan(pp=2, virtual_stages=2, first_stage_layers=63))
    ([2, 3, 3, 2], [31, 32, 32, 31])
    """
    ranks = layers_per_rank(num_layers, int(plan.pp), int(plan.first_stage_layers), int(plan.last_stage_layers))
    return chunk_sizes(ranks, int(plan.virtual_stages))


def is_even(num_layers: int, plan: Plan) -> bool:
    """Whether all chunks hold as many layers."""
    return len(set(stage_sizes(num_layers, plan))) == 1
