"""From measurements of single kernels to what a profile says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.grids import Array, fit_table
from calibration.measurement_plan import TINY_GEMM
from calibration.measurements import Measured
from calibration.record import Record
from planner.cost.flops import matmul_flops
from planner.estimate.stage_time import EAGER_OPERATORS
from planner.quantities import BytesPerSecond, FlopPerSecond, Scalar, Seconds
from planner.tables import Table

SMOOTHNESS = 0.02
"""Of fitted tables: repeats have taken most of the noise out, so that a point counts nearly alone."""
LEAST_SHARE = 1e-3
"""Below which a share says that something else was measured."""
COPY_TRAFFIC, TRIAD_TRAFFIC = 2.0, 3.0
"""Bytes moved per byte of the tensor."""
SAME = {"bf16": ("bf16", "fp16"), "fp32": ("fp32",), "tf32": ("tf32",), "fp16": ("fp16",)}
"""Precision that was measured -> those that have its shares."""

Rows = Sequence[tuple[Mapping[str, Any], Measured]]


def bandwidth(record: Record) -> BytesPerSecond | None:
    """Memory bandwidth of the faster of copy and triad; None where neither was measured."""
    rates = [
        traffic * parameters["bytes"] / measured.value
        for name, traffic in (("copy", COPY_TRAFFIC), ("triad", TRIAD_TRAFFIC))
        for parameters, measured in record.results(name)
    ]
    return max(rates, default=None)


def rates(record: Record) -> dict[str, FlopPerSecond]:
    """Precision -> the highest rate of a matrix product."""
    found: dict[str, FlopPerSecond] = {}
    for parameters, measured in record.results("gemm"):
        rate = _flops(parameters) / measured.value
        found[parameters["dtype"]] = max(rate, found.get(parameters["dtype"], 0.0))
    return found


def _flops(parameters: Mapping[str, Any]) -> Scalar:
    return matmul_flops(*(float(parameters[axis]) for axis in ("m", "n", "k")))


def kernel_overhead(rows: Rows) -> Seconds | None:
    """The fixed part of a matrix product: the time of one that computes nothing to speak of."""
    tiny = [measured.value for parameters, measured in rows if _shape(parameters) == TINY_GEMM]
    return min(tiny, default=None)


def gemm_tables(record: Record, peak: Mapping[str, FlopPerSecond], overhead: Seconds) -> dict[str, Table]:
    """Precision -> share of the peak by (m, n, k), of the precisions with products of at least two sizes an axis."""
    found: dict[str, Table] = {}
    for precision in peak:
        rows = [row for row in record.results("gemm") if row[0]["dtype"] == precision and _shape(row[0]) != TINY_GEMM]
        shapes = np.array([_shape(parameters) for parameters, _ in rows], dtype=float).reshape(-1, 3)
        axes = [np.unique(column) for column in shapes.T]
        if min(len(axis) for axis in axes) < 2:
            continue
        times = np.array([measured.value for _, measured in rows])
        share = matmul_flops(*shapes.T) / peak[precision] / np.maximum(times - overhead, 0.1 * times)
        table = shares_table(axes, list(shapes.T), share)
        found |= dict.fromkeys(SAME[precision], table)
    return found


def shares_table(axes: Sequence[Array], points: Sequence[Array], share: Array) -> Table:
    """A table of shares of a peak through measured points, between LEAST_SHARE and 1."""
    return fit_table(axes, points, np.clip(share, LEAST_SHARE, 1.0), smoothness=SMOOTHNESS)


def _shape(parameters: Mapping[str, Any]) -> tuple[int, int, int]:
    return parameters["m"], parameters["n"], parameters["k"]


def launch_time(record: Record) -> Seconds | None:
    """Host time per operator: that of a tiny layer's forward over the operators that the planner counts in it."""
    layers = record.results("tiny_layer")
    return layers[-1][1].value / EAGER_OPERATORS if layers else None
