"""The processes that measure together, and how they agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist


@dataclass
class Ranks:
    """This process among those that measure at the same time; one alone needs no process group."""

    device: torch.device
    rank: int = 0
    world: int = 1
    local_world: int = 1
    """Ranks on this host."""
    _groups: dict[tuple[int, ...], Any] = field(default_factory=dict)

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def most(self, *values: float) -> list[float]:
        """The largest of each value over all ranks; every rank has to call this."""
        if self.world == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(together, op=dist.ReduceOp.MAX)
        return together.tolist()

    def told(self, thing: Any) -> Any:
        """What the first rank says, on every rank."""
        if self.world == 1:
            return thing
        box = [thing]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def group(self, size: int, stride: int = 1) -> Any:
        """The process group of this rank among groups of `size` ranks, `stride` apart, that cover all ranks.

        Every rank has to call this in the same order.
        """
        mine = None
        for members in groups(self.world, size, stride):
            if members not in self._groups:
                self._groups[members] = dist.new_group(list(members))
            if self.rank in members:
                mine = self._groups[members]
        return mine


def groups(world: int, size: int, stride: int = 1) -> list[tuple[int, ...]]:
    """Ranks divided into groups as the axis of a plan does: neighbours in a group are `stride` apart.

    >>> groups(8, 2, 4)
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    """
    block = size * stride
    return [
        tuple(range(start + offset, start + offset + block, stride))
        for start in range(0, world, block)
        for offset in range(stride)
    ]
