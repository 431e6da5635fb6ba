"""The kernels of one accelerator under one profile: shapes in, seconds out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import kernels as cost
from planner.cost.flops import attention_flops
from planner.errors import SpecError
from planner.quantities import Bytes, BytesPerSecond, Count, FlopPerSecond, Seconds
from planner.spec.accelerator import Accelerator
from planner.spec.profile import Profile
from planner.tables import Table

BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}
"""Size of a matrix product's operand."""
HALF = {"fp8": "bf16", "mxfp8": "bf16", "nvfp4": "bf16"}
"""Precision of what stays in 16 bits (attention, head) while matrix products run in fewer."""
BACKWARD_ATTENTION = 2.5
"""FLOPs of fused attention's backward over its forward: five products instead of two. Dao 2023, section 3."""


@dataclass(frozen=True)
class Kernels:
    """Times of single kernels at one compute precision."""

    accelerator: Accelerator
    profile: Profile
    precision: str
    attention_backend: str

    @property
    def bandwidth(self) -> BytesPerSecond:
        """Memory bandwidth that a streaming kernel reaches."""
        return self.accelerator.memory_bandwidth * self.profile.memory_efficiency

    @property
    def half(self) -> Kernels:
        """The same accelerator at the precision of what is not quantized."""
        return Kernels(self.accelerator, self.profile, HALF.get(self.precision, self.precision), self.attention_backend)

    def peak(self, precision: str) -> FlopPerSecond:
        """Dense matrix peak. Raises SpecError where the accelerator has none."""
        known = self.accelerator.peak
        if precision not in known:
            has = ", ".join(sorted(known))
            raise SpecError(
                f"{self.accelerator.name} has no {precision} matrix units; it has: {has}", where="--precision"
            )
        return known[precision]

    def matmul(self, m: Count, n: Count, k: Count, count: Count = 1) -> Seconds:
        """`count` equal matrix products C[m, n] = A[m, k] B[k, n], one kernel each."""
        one = cost.matmul_time(
            m, n, k,
            peak=self.peak(self.precision),
            efficiency=self._gemm_table().at(m, n, k),
            memory_bandwidth=self.bandwidth,
            element_bytes=BYTES[self.precision],
            overhead=self.profile.kernel_overhead,
        )  # fmt: skip
        return count * one * self.profile.compute_scale

    def grouped_matmul(self, m: Count, n: Count, k: Count, groups: Count, *, width: Count) -> Seconds:
        """One kernel over the products of `groups` experts with m rows in all; `width` is an expert's inner size."""
        share = self.profile.grouped_matmul.at(m / groups, width) if self.profile.grouped_matmul else 1.0
        return self.profile.compute_scale * cost.grouped_matmul_time(
            m, n, k, groups,
            peak=self.peak(self.precision),
            efficiency=self._gemm_table().at(m, n, k),
            share=share,
            memory_bandwidth=self.bandwidth,
            element_bytes=BYTES[self.precision],
            overhead=self.profile.kernel_overhead,
        )  # fmt: skip

    def attention(self, batch: Count, queries: Count, keys: Count, heads: Count, dims: tuple[int, int],
                  *, causal: bool, window: int | None) -> tuple[Seconds, Seconds]:  # fmt: skip
        """Forward and backward of the attention core of one rank; `dims` are those of keys and of values.

        `queries` of the `keys` positions are the rank's own (ring context parallelism balances the causal mask).
        """
        unfused = self.attention_backend == "math"
        flops = attention_flops(
            batch, keys, heads, dims[0], dims[1],
            causal=0.0 if unfused else float(causal), window=np.inf if window is None else window,
        ) * queries / keys  # fmt: skip
        if unfused:
            return self._unfused(flops, batch * queries * keys * heads)
        efficiency = self._attention_table().at(max(dims), queries)
        peak = self.peak(HALF.get(self.precision, self.precision))
        forward = flops / (peak * efficiency)
        backward = forward * BACKWARD_ATTENTION / self.profile.attention_backward_efficiency
        scale, overhead = self.profile.compute_scale, self.profile.attention_overhead
        return scale * (forward + overhead), scale * (backward + overhead)

    def _gemm_table(self) -> Table:
        return self.profile.gemm.get(self.precision) or self.profile.gemm["bf16"]

    def _attention_table(self) -> Table:
        tables = self.profile.attention
        return tables.get(self.attention_backend) or next(iter(tables.values()))

    def _unfused(self, flops: Count, scores: Count) -> tuple[Seconds, Seconds]:
        half = self.half
        shared = {
            "peak": half.peak(half.precision),
            "efficiency": half._gemm_table().at(4096.0, 4096.0, 4096.0),
            "memory_bandwidth": self.bandwidth,
        }
        forward = cost.unfused_attention_time(flops, scores, **shared)
        backward = cost.unfused_attention_time(2 * flops, scores, **shared, bytes_per_score=cost.UNFUSED_BACKWARD_BYTES)
        return forward * self.profile.compute_scale, backward * self.profile.compute_scale

    def stream(self, traffic: Bytes) -> Seconds:
        """A kernel that only moves data."""
        return cost.memory_bound_time(traffic, self.bandwidth)
