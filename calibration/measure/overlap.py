"""A collective beside matrix products: what the two take from each other."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist

from calibration.measure.timing import Bench
from calibration.measurements import Measured


def overlap(bench: Bench, *, bytes: int, size: int, dtype: str) -> Measured:
    """An all-reduce of `bytes` bytes over all ranks beside as many products of `size` cubed as take as long alone.

    `parts` holds what each takes alone.
    """
    message = torch.zeros(bytes // 4, device=bench.device)
    rows, weights = (bench.random(size, size, dtype=dtype) for _ in range(2))
    communication = bench.time(lambda: dist.all_reduce(message))
    one = bench.time(lambda: rows @ weights)
    repeats = max(1, round(communication.value / one.value))

    def compute() -> None:
        for _ in range(repeats):
            rows @ weights

    def both() -> None:
        handle = dist.all_reduce(message, async_op=True)
        compute()
        handle.wait()

    alone = bench.time(compute)
    parts = {"communication": communication.value, "compute": alone.value}
    return replace(bench.time(both), parts=parts)
