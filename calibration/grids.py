"""Fits the values of an interpolation table to scattered measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags_array, eye_array, kron, vstack
from scipy.sparse.linalg import spsolve

from planner.tables import Table

Array = NDArray[Any]

OUTLIER = 0.08
"""Relative deviation from which a point counts less (Huber)."""
ROUNDS = 8
CLOSE = 2.0
"""Grid values nearer than this ratio count as this far apart: head sizes of 64 and 72 may run other kernels."""
FAINT = 1e-2
"""Pull of every grid value to the median of the data: keeps the solution unique where no point reaches."""


def fit_table(axes: Sequence[Array], points: Sequence[Array], values: Array, *, smoothness: float = 0.1) -> Table:
    """Grid values whose interpolation is nearest to `values` at `points`, in relative terms.

    Minimises Huber(log(interpolated / value)) plus the squared differences and curvatures of the values' logarithms
    along each axis per unit of its logarithm, times `smoothness`, by Gauss-Newton with reweighting. `points` holds one
    coordinate array per axis, each as long as `values`. The result stays between the smallest and the largest value
    seen, so that no corner without data runs away.
    """
    design, roughness = _design(axes, points), _roughness(axes) * smoothness
    penalty = roughness.T @ roughness + (FAINT * min(smoothness, 1.0)) ** 2 * eye_array(design.shape[1])
    centre = float(np.median(np.log(values)))
    solution = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        grid = np.exp(centre + solution)
        found = design @ grid
        error = np.log(values / found)
        weights = np.minimum(1, OUTLIER / np.maximum(np.abs(error), 1e-12))
        slope = diags_array(1 / found) @ design @ diags_array(grid)
        normal = slope.T @ diags_array(weights) @ slope + penalty
        solution = solution + spsolve(normal.tocsc(), slope.T @ (weights * error) - penalty @ solution)
        solution = np.clip(solution, np.log(values.min()) - centre, np.log(values.max()) - centre)
    return Table.of([axis.tolist() for axis in axes], np.exp(centre + solution).tolist())


def _design(axes: Sequence[Array], points: Sequence[Array]) -> Any:
    """Weight of each grid value (column) in the interpolation at each point (row)."""
    count = len(points[0])
    index, weight = np.zeros((1, count), dtype=int), np.ones((1, count))
    for axis, point in zip(axes, points, strict=True):
        inside = np.clip(point, axis[0], axis[-1])
        lower = np.minimum(np.searchsorted(axis, inside, side="right"), len(axis) - 1) - 1
        share = np.log(inside / axis[lower]) / np.log(axis[1:] / axis[:-1])[lower]
        index = np.concatenate([index * len(axis) + lower, index * len(axis) + lower + 1])
        weight = np.concatenate([weight * (1 - share), weight * share])
    rows = np.tile(np.arange(count), len(index))
    size = int(np.prod([len(axis) for axis in axes]))
    return csr_matrix((weight.ravel(), (rows, index.ravel())), shape=(count, size))


def _roughness(axes: Sequence[Array]) -> Any:
    """First and second differences along every axis, per unit of its logarithm."""
    parts = []
    for number, axis in enumerate(axes):
        gaps = np.maximum(np.diff(np.log(axis)), np.log(CLOSE))
        first = _difference(len(axis))
        parts.append(_along(axes, number, diags_array(1 / np.sqrt(gaps)) @ first))
        if len(axis) > 2:
            parts.append(_along(axes, number, _difference(len(gaps)) @ diags_array(1 / gaps) @ first))
    return vstack(parts).tocsr()


def _difference(length: int) -> Any:
    return diags_array([-1.0, 1.0], offsets=[0, 1], shape=(length - 1, length))


def _along(axes: Sequence[Array], number: int, operator: Any) -> Any:
    """An operator along one axis of values in row-major order."""
    before, after = (int(np.prod([len(axis) for axis in part])) for part in (axes[:number], axes[number + 1 :]))
    return kron(kron(eye_array(before), operator), eye_array(after))
