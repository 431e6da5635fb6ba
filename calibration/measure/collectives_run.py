"""Collectives by size and group, all groups at once, as the axes of a plan talk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from calibration.measure.ranks import groups
from calibration.measure.timing import Bench, Operation
from calibration.measurements import Measured

# Their names from torch 2.13 on, and those before.
ALL_GATHER = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
ELEMENT_BYTES = 4
"""All in fp32, which every backend reduces."""


def collective(name: str) -> Callable[..., Measured]:
    """The measurement of a collective of that name: `bytes` as nccl-tests counts them, `ranks` to a group."""

    def measured(bench: Bench, *, bytes: int, ranks: int, stride: int = 1) -> Measured:
        group = bench.ranks.group(ranks, stride)
        return bench.time(MAKE[name](bench, bytes, ranks, group))

    return measured


def send_recv(bench: Bench, *, bytes: int, ranks: int = 2, stride: int = 1) -> Measured:
    """Half of the way there and back between the two ranks of every pair."""
    group = bench.ranks.group(ranks, stride)
    pair = next(pair for pair in groups(bench.ranks.world, ranks, stride) if bench.ranks.rank in pair)
    other, leads = pair[1 - pair.index(bench.ranks.rank)], pair[0] == bench.ranks.rank
    message = bench.random(max(1, bytes // ELEMENT_BYTES))

    def there_and_back() -> None:
        if leads:
            dist.send(message, other, group=group)
            dist.recv(message, other, group=group)
        else:
            dist.recv(message, other, group=group)
            dist.send(message, other, group=group)

    both = bench.time(there_and_back)
    return Measured(both.value / 2, both.spread, both.n)


def _all_reduce(bench: Bench, size: int, _ranks: int, group: Any) -> Operation:
    # Zeros stay zeros, where random values that are summed again and again would overflow.
    whole = torch.zeros(max(1, size // ELEMENT_BYTES), device=bench.device)
    return lambda: dist.all_reduce(whole, group=group)


def _all_gather(bench: Bench, size: int, ranks: int, group: Any) -> Operation:
    part = _part(bench, size, ranks)
    whole = torch.empty(part.numel() * ranks, device=bench.device)
    return lambda: ALL_GATHER(whole, part, group=group)


def _reduce_scatter(bench: Bench, size: int, ranks: int, group: Any) -> Operation:
    part = _part(bench, size, ranks)
    whole = bench.random(part.numel() * ranks)
    return lambda: REDUCE_SCATTER(part, whole, group=group)


def _all_to_all(bench: Bench, size: int, ranks: int, group: Any) -> Operation:
    count = max(1, size // ELEMENT_BYTES // ranks) * ranks
    sent, received = bench.random(count), torch.empty(count, device=bench.device)
    return lambda: dist.all_to_all_single(received, sent, group=group)


def _part(bench: Bench, size: int, ranks: int) -> torch.Tensor:
    return bench.random(max(1, size // ELEMENT_BYTES // ranks))


MAKE: Mapping[str, Callable[[Bench, int, int, Any], Operation]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
