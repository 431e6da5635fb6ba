"""The kernels of one accelerator under one profile: shapes in, seconds out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from planner.cost import kernels as cost
from planner.cost.flops import FLASH_BACKWARD, MATMUL_BACKWARD, attention_flops
from planner.errors import SpecError
from planner.quantities import Bytes, BytesPerSecond, Count, Flop, FlopPerSecond, Scalar, Seconds
from planner.spec.accelerator import Accelerator
from planner.spec.profile import MatmulTiles, Profile
from planner.tables import Table

BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}
"""Size of a matrix product's operand."""
HALF = {"fp8": "bf16", "mxfp8": "bf16", "nvfp4": "bf16"}
"""Precision of what stays in 16 bits (attention, head) while matrix products run in fewer."""


@dataclass(frozen=True)
class AttentionCore:
    """Scores and their product with the values on one rank: `queries` of the `keys` positions of each sequence.

    Ring context parallelism balances the causal mask, so that each rank has its share of the work.
    """

    batch: Count
    queries: Count
    keys: Count
    heads: Count
    key_value_heads: Count
    key_dim: Count
    value_dim: Count
    causal: bool
    window: int | None = None

    def flops(self, *, masked: bool) -> Flop:
        """Forward FLOPs; `masked` where the kernel computes the masked part too."""
        window = np.inf if self.window is None or masked else self.window
        causal = float(self.causal and not masked)
        whole = attention_flops(
            self.batch, self.keys, self.heads, self.key_dim, self.value_dim, causal=causal, window=window
        )
        return whole * self.queries / self.keys

    @property
    def scores(self) -> Count:
        """Entries of the score matrices."""
        return self.batch * self.queries * self.keys * self.heads

    def traffic(self, element_bytes: Bytes) -> Bytes:
        """Forward memory traffic of a fused kernel."""
        read = self.key_value_heads * (self.key_dim + self.value_dim)
        return cost.attention_traffic(
            self.batch * self.queries,
            self.heads * self.key_dim,
            read,
            self.heads * self.value_dim,
            element_bytes=element_bytes,
        )


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
            efficiency=self.product_efficiency(m, n, k),
            memory_bandwidth=self.bandwidth,
            element_bytes=BYTES[self.precision],
            overhead=self.profile.kernel_overhead,
        )  # fmt: skip
        return count * one * self.profile.compute_scale

    def grouped_matmul(
        self, m: Count, n: Count, k: Count, groups: Count, *, width: Count, sharing_ranks: Count = 1
    ) -> Seconds:
        """One kernel over the products of `groups` experts with m rows in all; `width` is an expert's inner size.

        `sharing_ranks` read the same tokens and each work on their own experts' only; 1 where tokens were exchanged.
        """
        table = self.profile.grouped_matmul
        share = _at(table, m / groups, width, groups, sharing_ranks) if table else 1.0
        return self.profile.compute_scale * cost.grouped_matmul_time(
            m, n, k, groups,
            peak=self.peak(self.precision),
            efficiency=self.product_efficiency(m, n, k),
            share=share,
            memory_bandwidth=self.bandwidth,
            element_bytes=BYTES[self.precision],
            overhead=self.profile.kernel_overhead,
        )  # fmt: skip

    def attention(self, core: AttentionCore) -> tuple[Seconds, Seconds]:
        """Forward and backward of attention."""
        return self._unfused(core) if self.attention_backend == "math" else self._fused(core)

    def _fused(self, core: AttentionCore) -> tuple[Seconds, Seconds]:
        flops, half = core.flops(masked=False), self.half
        traffic = core.traffic(max(BYTES[half.precision], 2.0))
        efficiency = _at(
            self._attention_table(),
            np.maximum(core.key_dim, core.value_dim),
            core.queries,
            core.batch * core.heads,
            core.heads / core.key_value_heads,
        )
        rates = {
            "peak": half.peak(half.precision),
            "memory_bandwidth": self.bandwidth,
            # One kernel for each block of keys that a ring passes on.
            "overhead": self.profile.attention_overhead * core.keys / core.queries,
        }
        forward = cost.attention_time(flops, traffic, efficiency=efficiency, **rates)
        slower = efficiency * self.profile.attention_backward_efficiency
        backward = cost.attention_time(FLASH_BACKWARD * flops, 2 * traffic, efficiency=slower, **rates)
        return self._attention_scale * forward, self._attention_scale * backward

    def _unfused(self, core: AttentionCore) -> tuple[Seconds, Seconds]:
        flops, half = core.flops(masked=True), self.half
        rates = {
            "peak": half.peak(half.precision),
            "efficiency": half.product_efficiency(4096.0, 4096.0, 4096.0) * cost.aligned_share(core.key_dim),
            "memory_bandwidth": self.bandwidth,
        }
        forward = cost.unfused_attention_time(flops, core.scores, **rates)
        backward = cost.unfused_attention_time(
            MATMUL_BACKWARD * flops, core.scores, **rates, bytes_per_score=cost.UNFUSED_BACKWARD_BYTES
        )
        return self._attention_scale * forward, self._attention_scale * backward

    @property
    def _attention_scale(self) -> Scalar:
        return self.profile.compute_scale * self.profile.attention_scale

    def product_efficiency(self, m: Count, n: Count, k: Count) -> Scalar:
        """Share of the dense peak that one product's arithmetic reaches, its fixed time apart."""
        precision = self.precision if self.precision in self.profile.gemm else "bf16"
        share, cut = self.profile.gemm[precision].at(m, n, k), self.profile.matmul_tiles.get(precision)
        return share if cut is None else share * tiled_efficiency(cut, m, n, k, self.accelerator.multiprocessors)

    def _attention_table(self) -> Table:
        tables = self.profile.attention
        return tables.get(self.attention_backend) or next(iter(tables.values()))

    def stream(self, traffic: Bytes) -> Seconds:
        """A kernel that only moves data."""
        return cost.memory_bound_time(traffic, self.bandwidth)


def tiled_efficiency(cut: MatmulTiles, m: Count, n: Count, k: Count, multiprocessors: Count) -> Scalar:
    """What the best of a part's tiles leaves of the peak."""
    waves = {"half_rate_depth": cut.half_rate_depth, "wave_exponent": cut.wave_exponent}
    each = (
        rate * cost.tile_efficiency(m, n, k, rows=rows, columns=columns, multiprocessors=multiprocessors, **waves)
        for rows, columns, rate in cut.tiles
    )
    return reduce(np.maximum, each)


def _at(table: Table, *coordinates: Count) -> Scalar:
    """The value at a point; a table may leave out the last axes."""
    return table.at(*coordinates[: len(table.axes)])
