"""Models of single kernels fitted to measured times: what each predicts for shapes that it has not seen.

A fitter takes rows and returns a predictor, which takes rows and returns their times. Tables predict through the
planner's own formulas, so that their errors are those that an estimate will have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.grids import Array, fit_table
from calibration.kernel_data import Columns, Part, count, take
from planner.cost.flops import attention_flops, matmul_flops
from planner.cost.kernels import grouped_matmul_time, matmul_efficiency, matmul_time
from planner.quantities import Number, Scalar, Seconds
from planner.tables import Table

Predictor = Callable[[Columns], Number]
Fitter = Callable[[Columns], Predictor]

HELD_OUT = 0.2
MEMORY_EFFICIENCY = 0.82
BYTES = {"bf16": 2.0, "fp8": 1.0}
GEMM_AXES = {
    "m": [256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
    "n": [512, 1024, 2048, 4096, 8192, 16384, 65536],
    "k": [512, 1024, 2048, 4096, 8192, 16384, 65536],
}
SEQ_LENS = [512, 1024, 2048, 4096, 8192, 16384]
GROUPED_AXES = {"tokens_per_expert": [16, 64, 256, 1024, 4096], "intermediate_size": [768, 2048, 8192]}


@dataclass(frozen=True)
class Gemm:
    """Matrix products in one precision, with a kernel's fixed time taken out of the shares."""

    part: Part
    precision: str
    overhead: Seconds = 0.0

    def table(self, rows: Columns) -> Table:
        """Share of the dense peak by (m, n, k)."""
        m, n, k = (rows[name] for name in GEMM_AXES)
        share = matmul_flops(m, n, k) / (rows["time"] - self.overhead) / self.part.peak[self.precision]
        return fit_table(_axes(GEMM_AXES), [m, n, k], share)

    def fit(self, rows: Columns) -> Predictor:
        """Predicts from `table`."""
        table = self.table(rows)
        return lambda new: self.time(new, table.at(new["m"], new["n"], new["k"]))

    def fit_parametric(self, rows: Columns) -> Predictor:
        """Predicts from the parametric shape factor times one efficiency."""
        return self._scaled(rows, self._shape)

    def fit_constant(self, rows: Columns) -> Predictor:
        """Predicts from one efficiency."""
        return self._scaled(rows, lambda new: np.ones(count(new)))

    def time(self, rows: Columns, efficiency: Scalar) -> Seconds:
        """The planner's formula."""
        return matmul_time(
            rows["m"],
            rows["n"],
            rows["k"],
            peak=self.part.peak[self.precision],
            efficiency=efficiency,
            memory_bandwidth=self.part.memory_bandwidth * MEMORY_EFFICIENCY,
            element_bytes=BYTES[self.precision],
            overhead=self.overhead,
        )

    def _shape(self, rows: Columns) -> Scalar:
        return matmul_efficiency(rows["m"], rows["n"], rows["k"], multiprocessors=self.part.multiprocessors)

    def _scaled(self, rows: Columns, shape: Callable[[Columns], Scalar]) -> Predictor:
        ideal = matmul_flops(rows["m"], rows["n"], rows["k"]) / self.part.peak[self.precision] / shape(rows)
        scale = np.median(ideal / (rows["time"] - self.overhead))
        return lambda new: self.time(new, shape(new) * scale)


@dataclass(frozen=True)
class CausalAttention:
    """Forward of fused causal attention: share of the 16-bit peak on the FLOPs that the kernel computes."""

    part: Part
    overhead: Seconds = 0.0

    def share(self, rows: Columns) -> Array:
        """Measured share of the peak, the fixed time taken out."""
        return np.asarray(self.ideal(rows) / (rows["time"] - self.overhead))

    def ideal(self, rows: Columns) -> Seconds:
        """Time at the peak."""
        dim = rows["head_dim"]
        return attention_flops(rows["batch"], rows["seq_len"], rows["heads"], dim, dim) / self.part.peak["bf16"]

    def table(self, rows: Columns) -> Table:
        """Share by (head_dim, seq_len); a part measured at one head size gets that curve at twice the size too."""
        dims = np.unique(rows["head_dim"])
        dims = dims if len(dims) > 1 else np.array([dims[0], 2 * dims[0]])
        axes = [dims, np.array(SEQ_LENS, dtype=float)]
        return fit_table(axes, [rows["head_dim"], rows["seq_len"]], self.share(rows))

    def fit(self, rows: Columns) -> Predictor:
        """Predicts from `table`."""
        table = self.table(rows)
        return lambda new: self.ideal(new) / table.at(new["head_dim"], new["seq_len"]) + self.overhead

    def fit_constant(self, rows: Columns) -> Predictor:
        """Predicts from one efficiency."""
        share = np.median(self.share(rows))
        return lambda new: self.ideal(new) / share + self.overhead


@dataclass(frozen=True)
class Grouped:
    """A gated expert block as two grouped products, relative to plain products of the same rows."""

    gemm: Gemm
    plain: Table

    def time(self, rows: Columns, share: Scalar) -> Seconds:
        """The planner's formula: gate and up in one product, then down; `share` 1 means as fast as plain ones."""
        hidden, width = rows["hidden"], rows["intermediate"]
        up, down = (self._product(rows, n, k, share) for n, k in ((2 * width, hidden), (hidden, width)))
        return up + down

    def table(self, rows: Columns) -> Table:
        """Share of the plain products' rate by (tokens per expert, intermediate size), at most 1."""
        share = np.minimum(self.time(rows, 1.0) / rows["time"], 1.0)
        return fit_table(_axes(GROUPED_AXES), self._points(rows), share)

    def fit(self, rows: Columns) -> Predictor:
        """Predicts from `table`."""
        table = self.table(rows)
        return lambda new: self.time(new, table.at(*self._points(new)))

    def fit_plain(self, rows: Columns) -> Predictor:
        """Predicts as if grouping cost nothing."""
        return lambda new: self.time(new, np.ones(count(new)))

    def _product(self, rows: Columns, n: Array, k: Array, share: Scalar) -> Seconds:
        tokens = rows["tokens"] * rows["topk"] / rows["ep"]
        return grouped_matmul_time(
            tokens,
            n,
            k,
            rows["experts"] / rows["ep"],
            peak=self.gemm.part.peak[self.gemm.precision],
            efficiency=self.plain.at(tokens, n, k),
            share=share,
            memory_bandwidth=self.gemm.part.memory_bandwidth * MEMORY_EFFICIENCY,
            element_bytes=BYTES[self.gemm.precision],
            overhead=self.gemm.overhead,
        )

    def _points(self, rows: Columns) -> list[Array]:
        return [rows["tokens"] * rows["topk"] / rows["experts"], rows["intermediate"]]


def held_out_error(rows: Columns, fitters: Mapping[str, Fitter]) -> dict[str, Any]:
    """Median and 90th percentile of |predicted / measured - 1| on a random fifth of the rows, by fitter."""
    test = np.random.default_rng(0).random(count(rows)) < HELD_OUT
    seen, unseen = take(rows, ~test), take(rows, test)
    error = {name: np.abs(fitter(seen)(unseen) / unseen["time"] - 1) for name, fitter in fitters.items()}
    summary = {name: {"median": _quantile(e, 0.5), "p90": _quantile(e, 0.9)} for name, e in error.items()}
    return {"points": int(test.sum())} | summary


def _quantile(errors: Array, share: float) -> float:
    return round(float(np.quantile(errors, share)), 4)


def _axes(named: Mapping[str, list[int]]) -> list[Array]:
    return [np.array(axis, dtype=float) for axis in named.values()]
