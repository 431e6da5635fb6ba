"""From measurements of single kernels to what a profile says of them, through the planner's cost functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from calibration.grids import Array, fit_table
from calibration.measurement_plan import OPERATORS, TINY_GEMM, TINY_SEQUENCE
from calibration.measurements import Measured
from calibration.record import Record
from planner.cost import kernels as cost
from planner.cost.flops import FLASH_BACKWARD, attention_flops, matmul_flops
from planner.estimate.host import EAGER_OPERATORS
from planner.estimate.kernels import BYTES
from planner.estimate.layer_time import EAGER_FACTOR
from planner.quantities import Bytes, BytesPerSecond, Flop, FlopPerSecond, Scalar, Seconds
from planner.tables import Table

SMOOTHNESS = 0.02
"""Of fitted tables: repeats have taken most of the noise out, so that a point counts nearly alone."""
LEAST_SHARE = 1e-3
"""Below which a share says that something else was measured."""
COPY_TRAFFIC, TRIAD_TRAFFIC = 2.0, 3.0
"""Bytes moved per byte of the tensor."""
SAME = {"bf16": ("bf16", "fp16"), "fp32": ("fp32",), "tf32": ("tf32",), "fp16": ("fp16",)}
"""Precision that was measured -> those that have its shares."""
MEMORY_BOUND = 0.9
"""Share of a product's time that its memory traffic takes from which on it says nothing of arithmetic."""
ALIKE: Scalar = 4.0
"""Compute and communication of an overlap have to be of a like size, or the longer hides what they take from each
other."""

Row = tuple[Mapping[str, Any], Measured]
Rows = Sequence[Row]
Tables = Mapping[str, Table]


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
        rate = float(matmul_flops(*_shape(parameters))) / measured.value
        found[parameters["dtype"]] = max(rate, found.get(parameters["dtype"], 0.0))
    return found


def kernel_overhead(record: Record) -> Seconds | None:
    """The fixed part of a matrix product: the time of one that computes nothing to speak of."""
    tiny = [measured.value for parameters, measured in record.results("gemm") if _shape(parameters) == TINY_GEMM]
    return min(tiny, default=None)


@dataclass(frozen=True)
class Products:
    """Timed matrix products in one precision, with what their shares of the peak are reckoned by."""

    rows: Rows
    precision: str
    peak: FlopPerSecond
    stream: BytesPerSecond
    overhead: Seconds

    def table(self, like: Table) -> Table:
        """Share of the peak by (m, n, k).

        A product that memory holds back tells of its arithmetic only that it is no slower: there the share is what
        the others say, if that is more.
        """
        shapes = np.array([_shape(parameters) for parameters, _ in self.rows], dtype=float).T
        times = np.array([measured.value for _, measured in self.rows])
        net = np.maximum(times - self.overhead, 0.1 * times)
        share, points = matmul_flops(*shapes) / self.peak / net, list(shapes)
        m, n, k = shapes
        held_back = (m * k + k * n + m * n) * BYTES[self.precision] / self.stream > MEMORY_BOUND * net
        if held_back.any() and not held_back.all():
            others = shares([point[~held_back] for point in points], share[~held_back], like=like)
            share = np.where(held_back, np.maximum(share, others.at(*points)), share)
        return shares(points, share, like=like)


def gemm_tables(
    record: Record, peak: Mapping[str, FlopPerSecond], *, stream: BytesPerSecond, overhead: Seconds, known: Tables
) -> dict[str, Table]:
    """Precision -> share of the peak by (m, n, k), of the precisions that were measured."""
    found: dict[str, Table] = {}
    for precision in peak:
        rows = [row for row in record.results("gemm") if row[0]["dtype"] == precision and _shape(row[0]) != TINY_GEMM]
        if rows:
            table = Products(rows, precision, peak[precision], stream, overhead).table(known[precision])
            found |= dict.fromkeys(SAME[precision], table)
    return found


def attention_table(
    rows: Rows, peak: FlopPerSecond, overhead: Seconds, like: Table
) -> tuple[Table | None, Scalar | None]:
    """Share of the peak in forward by (head_dim, seq_len, sequences x heads), and backward's rate over forward's."""
    forward = {_size(parameters): measured for parameters, measured in rows if parameters["direction"] == "forward"}
    backward = {_size(parameters): measured for parameters, measured in rows if parameters["direction"] == "backward"}
    sizes = [size for size in forward if size[1] != TINY_SEQUENCE]
    if not sizes:
        return None, None
    times = np.maximum([forward[size].value - overhead for size in sizes], 0.1 * forward[sizes[0]].value / len(sizes))
    share = np.array([_attention_flops(size) for size in sizes]) / peak / times
    both = [(size, _attention_flops(size) / (forward[size].value - overhead)) for size in sizes if size in backward]
    ratios = [FLASH_BACKWARD * _attention_flops(size) / (backward[size].value - overhead) / rate for size, rate in both]
    points = [np.array([size[axis] for size in sizes], dtype=float) for axis in range(3)]
    return shares(points, share, like=like), median(ratios) if ratios else None


def attention_overhead(rows: Rows) -> Seconds | None:
    """The fixed part of an attention kernel: the time of one over a few tokens."""
    tiny = [measured.value for parameters, measured in rows if parameters["seq_len"] == TINY_SEQUENCE]
    return min(tiny, default=None)


def _size(parameters: Mapping[str, Any]) -> tuple[int, int, int]:
    return parameters["head_dim"], parameters["seq_len"], parameters["heads"]


def _attention_flops(size: tuple[int, int, int]) -> Flop:
    head_dim, seq_len, heads = size
    return float(attention_flops(1, seq_len, heads, head_dim, head_dim, causal=1.0))


def shares(points: Sequence[Array], share: Array, *, like: Table) -> Table:
    """A table of shares of a peak through measured points, between LEAST_SHARE and 1.

    Last axes on which all points agree are left out if two others have several values each. Points that are too few
    for a grid scale the table that is known instead.
    """
    limited = np.clip(share, LEAST_SHARE, 1.0)
    axes = [np.unique(point) for point in points]
    while len(axes) > 2 and len(axes[-1]) == 1 and len(points) != len(like.axes):
        axes.pop()
    dimensions = len(axes)
    if min(len(axis) for axis in axes) >= 2:
        return fit_table(axes, points[:dimensions], limited, smoothness=SMOOTHNESS)
    there = [points[axis] if axis < len(points) else np.ones_like(share) for axis in range(len(like.axes))]
    factor = float(np.median(limited / like.at(*there)))
    return Table(like.axes, np.clip(like.values * factor, LEAST_SHARE, 1.0))


def _shape(parameters: Mapping[str, Any]) -> tuple[int, int, int]:
    return parameters["m"], parameters["n"], parameters["k"]


def launch_time(record: Record) -> Seconds | None:
    """Host time per operator: that of a tiny layer's forward over the operators that the planner counts in it."""
    layers = record.results("tiny_layer")
    return layers[-1][1].value / EAGER_OPERATORS if layers else None


def elementwise_scale(record: Record, stream: BytesPerSecond) -> Scalar | None:
    """Time of a layer's uncompiled operators over what the planner takes them to move; None until all were measured."""
    rows = {parameters["operator"]: (parameters, measured) for parameters, measured in record.results("elementwise")}
    if not set(OPERATORS) <= set(rows):
        return None
    taken = sum(rows[name][1].value for name in OPERATORS)
    moved = sum(_traffic(rows[name][0]) for name in OPERATORS)
    return taken / (EAGER_FACTOR * moved / stream)


def _traffic(parameters: Mapping[str, Any]) -> Bytes:
    tokens, width, element = parameters["tokens"], parameters["width"], BYTES[parameters["dtype"]]
    by_operator = {
        "norm": cost.norm_traffic(tokens, width, element_bytes=element),
        "residual": cost.residual_traffic(tokens, width, element_bytes=element),
        "activation": cost.activation_traffic(tokens, width, 1.0, element_bytes=element),
        "rotary": cost.rotary_traffic(tokens, width, element_bytes=element),
    }
    return float(by_operator[parameters["operator"]])


def overlap_penalty(record: Record) -> Scalar | None:
    """The share of the shorter of compute and communication that overlap does not hide.

    None where they were not measured, or too unlike.
    """
    found = []
    for _, measured in record.results("overlap"):
        short, long = sorted(measured.parts[name] for name in ("compute", "communication"))
        if short * ALIKE >= long:
            found.append(min(1.0, max(0.0, (measured.value - long) / short)))
    return median(found) if found else None
