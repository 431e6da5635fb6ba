"""Pipeline stages, and the schedule that runs them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    get_schedule_class,
)

from .model import Decoder, plain
from .optimizer import local
from .settings import PIPELINE_SCHEDULES, Plan

V_SHAPED = ("zb_v", "dualpipe_v")
"""Schedules whose second chunks run through the ranks backwards."""
Loss = Callable[[Tensor, Tensor], Tensor]
Schedule = PipelineScheduleSingle | PipelineScheduleMulti


def stage_numbers(plan: Plan, rank: int) -> list[int]:
    """The stages that a pipeline rank holds, in the order of the data flow."""
    stages = plan.pp * plan.virtual_stages
    if plan.schedule in V_SHAPED:
        return [rank, stages - 1 - rank]
    return list(range(rank, stages, plan.pp))


def stage_layers(num_layers: int, plan: Plan) -> list[range]:
    """The layers of every stage, as the planner deals them.

    >>> stage_layers(5, Plan(pp=2, first_stage_layers=3, last_stage_layers=2))
    [range(0, 3), range(3, 5)]
    """
    per_rank = _layers_per_rank(num_layers, plan)
    chunks = plan.virtual_stages
    sizes = [
        _chunk_size(per_rank[rank], chunk, chunks, longest_last=rank == 0)
        for chunk in range(chunks)
        for rank in _ranks_in_order(plan, chunk)
    ]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def pipeline_schedule(stages: list[PipelineStage], plan: Plan, loss: Loss) -> Schedule:
    """The schedule of the plan over this rank's stages."""
    kind = get_schedule_class(PIPELINE_SCHEDULES[plan.schedule])
    several = issubclass(kind, PipelineScheduleMulti)
    return kind(stages if several else stages[0], n_microbatches=plan.num_microbatches, loss_fn=loss)


def run_step(schedule: Schedule, stages: list[PipelineStage], tokens: Tensor, targets: Tensor) -> Tensor:
    """Forward and backward of all micro-batches; the mean loss on the rank of the last stage, 0 elsewhere."""
    first, last = any(stage.is_first for stage in stages), any(stage.is_last for stage in stages)
    losses: list[Tensor] = []
    inputs = (tokens,) if first else ()
    if last:
        schedule.step(*inputs, target=targets, losses=losses)
    else:
        schedule.step(*inputs)
    return torch.stack([plain(loss) for loss in losses]).mean() if last else torch.zeros((), device=tokens.device)


def share_tied_gradients(parts: list[Decoder], group: dist.ProcessGroup) -> None:
    """Sum the gradients of embedding and head, one parameter that the first and the last stage both hold."""
    modules = [module for part in parts for module in (part.embedding, part.head) if module is not None]
    gradients = [local(module.weight.grad) for module in modules if module.weight.grad is not None]
    if len(gradients) == 2:  # both on one rank, as in V-shaped schedules
        total = gradients[0] + gradients[1]
        for gradient in gradients:
            gradient.copy_(total)
    elif gradients:
        _add_from(gradients[0], group, 0 if group.rank() else group.size() - 1)


def _add_from(mine: Tensor, group: dist.ProcessGroup, peer: int) -> None:
    """Swap a tensor with another rank of the group, and add."""
    theirs, other = torch.empty_like(mine), dist.get_global_rank(group, peer)
    swaps = [dist.P2POp(dist.isend, mine.contiguous(), other, group), dist.P2POp(dist.irecv, theirs, other, group)]
    for work in dist.batch_isend_irecv(swaps):
        work.wait()
    mine.add_(theirs)


def _ranks_in_order(plan: Plan, chunk: int) -> list[int]:
    backwards = plan.schedule in V_SHAPED and chunk % 2 == 1
    return list(reversed(range(plan.pp))) if backwards else list(range(plan.pp))


def _layers_per_rank(num_layers: int, plan: Plan) -> list[int]:
    """The first and last rank as the plan says (0: an even share); of the others the first ones hold one more."""
    pp = plan.pp
    if pp == 1:
        return [num_layers]
    first, last = plan.first_stage_layers or num_layers // pp, plan.last_stage_layers or num_layers // pp
    if pp == 2:
        return [num_layers - last, last]
    each, longer = divmod(num_layers - first - last, pp - 2)
    return [first, *(each + (i < longer) for i in range(pp - 2)), last]


def _chunk_size(layers: int, chunk: int, chunks: int, *, longest_last: bool) -> int:
    """Layers of one chunk; where they do not divide, the first rank's first chunk and the last's last are short."""
    position = chunks - 1 - chunk if longest_last else chunk
    return (layers - position + chunks - 1) // chunks
