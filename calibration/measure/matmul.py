"""Matrix products by shape and precision."""

from __future__ import annotations

import torch

from calibration.measure.timing import DTYPES, Bench
from calibration.measurements import Measured


def gemm(bench: Bench, *, dtype: str, m: int, n: int, k: int) -> Measured:
    """C[m, n] = A[m, k] B[k, n], the weights as a linear layer keeps them; operands come from memory each time."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    size = DTYPES[dtype].itemsize * (m * k + n * k)
    turns = bench.turns(lambda: (bench.random(m, k, dtype=dtype), bench.random(n, k, dtype=dtype)), size)

    def product() -> torch.Tensor:
        rows, weights = next(turns)
        return torch.nn.functional.linear(rows, weights)

    with torch.no_grad():
        return bench.time(product)
