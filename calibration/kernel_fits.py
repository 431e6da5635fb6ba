"""Models of single kernels fitted to measured times: what each predicts for shapes that it has not seen.

A fitter takes rows and returns a predictor, which takes rows and returns their times. Tables predict through the
planner's own formulas, so that their errors are those that an estimate will have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibration.grids import Array, fit_table
from calibration.kernel_data import Columns, Part, count, take
from calibration.tile_fits import fit_tiles
from planner.cost.flops import attention_flops, matmul_flops
from planner.cost.kernels import grouped_matmul_time, matmul_efficiency, matmul_time
from planner.estimate.kernels import tiled_efficiency
from planner.quantities import Number, Scalar, Seconds
from planner.spec.profile import MatmulTiles
from planner.tables import Table
from planner.validate.kernels_columns import up_width

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
GEMM_SMOOTHNESS = 0.2
ATTENTION_AXES = {
    "head_dim": [],
    "seq_len": [512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384],
    "sequences_x_heads": [8, 16, 32, 64, 128, 256, 512, 1536],
    "queries_per_key": [1, 4, 16, 96],
}
"""Head sizes are those that were measured; the last axis is left out where every head has its own keys."""
GROUPED_AXES = {
    "tokens_per_expert": [1, 8, 32, 64, 128, 256, 512, 1024, 4096],
    "intermediate_size": [512, 1024, 2048, 5120, 16384],
    "experts": [1, 4, 16, 64, 512],
    "sharing_ranks": [1, 8, 32, 256],
}
EXCHANGED_AXES = {"tokens_per_expert": [16, 64, 256, 1024, 4096], "intermediate_size": [768, 2048, 8192]}
"""Of a table for training, where a rank's tokens were exchanged before: what few rows tell of."""
GROUPED_SMOOTHNESS = 0.05


@dataclass(frozen=True)
class Gemm:
    """Matrix products in one precision, with a kernel's fixed time taken out of the shares.

    With `tiles`, shares are of what these leave of the peak.
    """

    part: Part
    precision: str
    overhead: Seconds = 0.0
    tiles: MatmulTiles | None = None

    def table(self, rows: Columns) -> Table:
        """Share of the dense peak by (m, n, k)."""
        shape = [rows[name] for name in GEMM_AXES]
        share = self._ideal(rows) / (rows["time"] - self.overhead) / self.cut(*shape)
        return fit_table(_axes(GEMM_AXES), shape, share, smoothness=GEMM_SMOOTHNESS)

    def cut(self, m: Array, n: Array, k: Array) -> Scalar:
        """What tiles leave of the peak, 1 without."""
        return tiled_efficiency(self.tiles, m, n, k, self.part.multiprocessors) if self.tiles else np.ones(len(m))

    def tiled(self, rows: Columns) -> Gemm:
        """The same with tiles fitted to the rows, their rates such that no share is above 1."""
        tiles = fit_tiles(self._ideal(rows) / (rows["time"] - self.overhead), rows, self.part.multiprocessors)
        found = replace(self, tiles=tiles)
        shape = [rows[name] for name in GEMM_AXES]
        most = float((self._ideal(rows) / (rows["time"] - self.overhead) / found.cut(*shape)).max())
        scaled = tuple((each[0], each[1], round(each[2] * most, 4)) for each in tiles.tiles)
        return replace(self, tiles=replace(tiles, tiles=scaled))

    def fit(self, rows: Columns) -> Predictor:
        """Predicts from `table`."""
        table = self.table(rows)
        return lambda new: self.time(new, self.efficiency(table, *(new[name] for name in GEMM_AXES)))

    def fit_tiled(self, rows: Columns) -> Predictor:
        """Predicts from `table` times tiles fitted to the same rows."""
        return self.tiled(rows).fit(rows)

    def efficiency(self, table: Table, m: Array, n: Array, k: Array) -> Scalar:
        """Share of the peak."""
        return table.at(m, n, k) * self.cut(m, n, k)

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

    def _ideal(self, rows: Columns) -> Seconds:
        return matmul_flops(rows["m"], rows["n"], rows["k"]) / self.part.peak[self.precision]

    def _shape(self, rows: Columns) -> Scalar:
        return matmul_efficiency(rows["m"], rows["n"], rows["k"], multiprocessors=self.part.multiprocessors)

    def _scaled(self, rows: Columns, shape: Callable[[Columns], Scalar]) -> Predictor:
        ideal = self._ideal(rows) / shape(rows)
        scale = np.median(ideal / (rows["time"] - self.overhead))
        return lambda new: self.time(new, shape(new) * scale)


@dataclass(frozen=True)
class Attention:
    """Forward of a fused attention kernel: share of the 16-bit peak on the FLOPs that it computes."""

    part: Part
    overhead: Seconds = 0.0

    def share(self, rows: Columns) -> Array:
        """Measured share of the peak, the fixed time taken out."""
        return np.asarray(self.ideal(rows) / (rows["time"] - self.overhead))

    def ideal(self, rows: Columns) -> Seconds:
        """Time at the peak."""
        dim, causal = rows["head_dim"], (rows["causal"] == "True").astype(float)
        flops = attention_flops(rows["batch"], rows["seq_len"], rows["heads"], dim, dim, causal=causal)
        return flops / self.part.peak["bf16"]

    def table(self, rows: Columns) -> Table:
        """Share by (head_dim, seq_len, sequences x heads, query heads per key-value head)."""
        axes = self._axes(rows)
        return fit_table(axes, self._points(rows)[: len(axes)], self.share(rows))

    def fit(self, rows: Columns) -> Predictor:
        """Predicts from `table`."""
        table = self.table(rows)
        return lambda new: self.ideal(new) / table.at(*self._points(new)[: len(table.axes)]) + self.overhead

    def fit_constant(self, rows: Columns) -> Predictor:
        """Predicts from one efficiency."""
        share = np.median(self.share(rows))
        return lambda new: self.ideal(new) / share + self.overhead

    def _axes(self, rows: Columns) -> list[Array]:
        """A part measured at one head size gets that curve at twice the size too."""
        dims = np.unique(rows["head_dim"])
        dims = dims if len(dims) > 1 else np.array([dims[0], 2 * dims[0]])
        shared = bool((rows["heads"] != rows["kv_heads"]).any())
        return [dims, *_axes(ATTENTION_AXES)[1 : 4 if shared else 3]]

    def _points(self, rows: Columns) -> list[Array]:
        heads = rows["heads"]
        return [rows["head_dim"], rows["seq_len"], rows["batch"] * heads, heads / rows["kv_heads"]]


@dataclass(frozen=True)
class Grouped:
    """An expert block as two grouped products, relative to plain products of the same rows.

    `axes` are `GROUPED_AXES` or the first of them.
    """

    gemm: Gemm
    plain: Table
    axes: Mapping[str, list[int]] = field(default_factory=lambda: GROUPED_AXES)

    def time(self, rows: Columns, share: Scalar) -> Seconds:
        """The planner's formula: gate (if any) and up in one product, then down; plain ones have `share` 1."""
        hidden, width = rows["hidden"], rows["intermediate"]
        up, down = (self._product(rows, n, k, share) for n, k in ((up_width(hidden, width), hidden), (hidden, width)))
        return up + down

    def table(self, rows: Columns) -> Table:
        """Share of the plain products' rate; above 1 where the weights stay in the cache."""
        fixed = 2 * self.gemm.overhead
        share = (self.time(rows, 1.0) - fixed) / (rows["time"] - fixed)
        return fit_table(_axes(self.axes), self._points(rows), share, smoothness=GROUPED_SMOOTHNESS)

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
            efficiency=self.gemm.efficiency(self.plain, tokens, n, k),
            share=share,
            memory_bandwidth=self.gemm.part.memory_bandwidth * MEMORY_EFFICIENCY,
            element_bytes=BYTES[self.gemm.precision],
            overhead=self.gemm.overhead,
        )

    def _points(self, rows: Columns) -> list[Array]:
        per_expert = rows["tokens"] * rows["topk"] / rows["experts"]
        points = [per_expert, rows["intermediate"], rows["experts"] / rows["ep"], rows["ep"]]
        return points[: len(self.axes)]


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
