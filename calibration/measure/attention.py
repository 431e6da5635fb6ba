"""Attention by backend, head size and length, forward and backward."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from calibration.measure.timing import DTYPES, Bench
from calibration.measurements import Measured

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
"""Kernels that are asked for by name; sdpa is torch's own choice."""
BACKWARD = "backward"


def attention(
    bench: Bench, *, backend: str, dtype: str, head_dim: int, seq_len: int, heads: int, direction: str
) -> Measured:
    """Causal attention of one sequence with as many key-value heads as heads; `direction` is forward or backward.

    Forward keeps what backward needs.
    """
    scores = 3 * seq_len if backend == "math" else 0
    size = heads * seq_len * (4 * head_dim + scores) * DTYPES[dtype].itemsize

    def operands() -> list[torch.Tensor]:
        return [bench.random(1, heads, seq_len, head_dim, dtype=dtype, grad=True) for _ in range(3)]

    def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    with _only(backend):
        if direction != BACKWARD:
            turns = bench.turns(operands, size)
            return bench.time(lambda: forward(*next(turns)))

        def done() -> tuple[torch.Tensor, list[torch.Tensor]]:
            inputs = operands()
            return forward(*inputs), inputs

        passes, gradient = bench.turns(done, 2 * size), bench.random(1, heads, seq_len, head_dim, dtype=dtype)

        def backward() -> None:
            output, inputs = next(passes)
            torch.autograd.grad(output, inputs, gradient, retain_graph=True)

        return bench.time(backward)


def _only(backend: str) -> AbstractContextManager[None]:
    return sdpa_kernel(BACKENDS[backend]) if backend in BACKENDS else nullcontext()
