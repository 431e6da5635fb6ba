"""Operators that only move data: device memory bandwidth, and the norms, additions and activations of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from calibration.measure.timing import DTYPES, Bench, Operation
from calibration.measurements import Measured
from planner.emit.trainer.attention import rotary_table, rotated

HEAD_DIM = 64
"""Of the heads that are rotated; their number makes up the width."""


def copy(bench: Bench, *, bytes: int) -> Measured:
    """Copies `bytes` bytes: as many read and as many written."""
    return _stream(bench, bytes, lambda source, target: lambda: target.copy_(source))


def triad(bench: Bench, *, bytes: int) -> Measured:
    """Adds three times one tensor of `bytes` bytes to another: two reads and a write."""
    return _stream(bench, bytes, lambda source, target: lambda: target.add_(source, alpha=3.0))


def _stream(bench: Bench, size: int, make: Callable[[torch.Tensor, torch.Tensor], Operation]) -> Measured:
    source, target = (bench.random(size // 4) for _ in range(2))
    with torch.no_grad():
        return bench.time(make(source, target))


def elementwise(bench: Bench, *, operator: str, dtype: str, tokens: int, width: int) -> Measured:
    """One operator of a layer on (tokens, width), forward and uncompiled, as the project's trainer writes it."""
    size = 2 * tokens * width * DTYPES[dtype].itemsize
    turns = bench.turns(lambda: [bench.random(1, tokens, width, dtype=dtype, grad=True) for _ in range(2)], size)
    compute = OPERATORS[operator](bench, (tokens, width), dtype)
    return bench.time(lambda: compute(*next(turns)))


Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _norm(bench: Bench, shape: tuple[int, int], dtype: str) -> Binary:
    weight = bench.random(shape[1], dtype=dtype, grad=True)
    return lambda first, _second: torch.nn.functional.rms_norm(first, shape[1:], weight)


def _residual(_bench: Bench, _shape: tuple[int, int], _dtype: str) -> Binary:
    return torch.add


def _activation(_bench: Bench, _shape: tuple[int, int], _dtype: str) -> Binary:
    return lambda gate, up: torch.nn.functional.silu(gate) * up


def _rotary(bench: Bench, shape: tuple[int, int], _dtype: str) -> Binary:
    tokens, width = shape
    table = rotary_table(torch.arange(tokens, device=bench.device), HEAD_DIM)
    return lambda first, _second: rotated(first.view(1, tokens, width // HEAD_DIM, HEAD_DIM).transpose(1, 2), table)


OPERATORS: Mapping[str, Callable[[Bench, tuple[int, int], str], Binary]] = {
    "norm": _norm,
    "residual": _residual,
    "activation": _activation,
    "rotary": _rotary,
}
