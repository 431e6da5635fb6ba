"""Operators that only move data: device memory bandwidth, and the norms, additions and activations of a layer."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibration.measure.timing import Bench, Operation
from calibration.measurements import Measured


def copy(bench: Bench, *, bytes: int) -> Measured:
    """Copies `bytes` bytes: as many read and as many written."""
    return _stream(bench, bytes, lambda source, target: lambda: target.copy_(source))


def triad(bench: Bench, *, bytes: int) -> Measured:
    """Adds to a tensor: target = target + 3 x source on `bytes` bytes: two reads and a write."""
    return _stream(bench, bytes, lambda source, target: lambda: target.add_(source, alpha=3.0))


def _stream(bench: Bench, size: int, make: Callable[[torch.Tensor, torch.Tensor], Operation]) -> Measured:
    source, target = (bench.random(size // 4) for _ in range(2))
    with torch.no_grad():
        return bench.time(make(source, target))
