"""Collectives that gradients flow through."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Context = Any


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Context, rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        context.splits = (received, sent, group)
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(context: Context, *gradients: Tensor) -> Any:
        received, sent, group = context.splits
        return _AllToAll.apply(gradients[0], sent, received, group), None, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Context, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        whole = part.new_empty((group.size() * part.shape[0], *part.shape[1:]))
        dist.all_gather_into_tensor(whole, part.contiguous(), group=group)
        return whole.unflatten(0, (group.size(), -1))

    @staticmethod
    def backward(context: Context, *gradients: Tensor) -> Any:
        part = torch.empty_like(gradients[0][0])
        dist.reduce_scatter_tensor(part, gradients[0].flatten(0, 1).contiguous(), group=context.group)
        return part, None


def all_to_all(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    """Rows exchanged: `sent[i]` of them, in order, to rank i of the group, `received[i]` from it."""
    result: Tensor = _AllToAll.apply(rows, received, sent, group)
    return result


def gather(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The parts of all ranks, stacked in front: shape (ranks, *part.shape). Backward sums and scatters."""
    result: Tensor = _Gather.apply(part, group)
    return result
