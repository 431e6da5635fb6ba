"""The optimizer's step."""

from __future__ import annotations

import torch

from calibration.measure.timing import Bench
from calibration.measurements import Measured

TENSORS = 16
"""Into which the parameters are divided."""


def adamw(bench: Bench, *, implementation: str, parameters: int) -> Measured:
    """A step of AdamW over fp32 parameters, gradients and states; `implementation` is fused or foreach."""
    weights = [bench.random(parameters // TENSORS, grad=True) for _ in range(TENSORS)]
    for weight in weights:
        weight.grad = bench.random(parameters // TENSORS)
    optimizer = torch.optim.AdamW(
        weights, lr=1e-4, fused=implementation == "fused", foreach=implementation == "foreach"
    )
    return bench.time(optimizer.step)
