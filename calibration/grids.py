"""Fits the values of an interpolation table to scattered measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.tables import Table

Array = NDArray[Any]

OUTLIER = 0.08
"""Relative deviation from which a point counts less (Huber)."""
ROUNDS = 5


def fit_table(axes: Sequence[Array], points: Sequence[Array], values: Array, *, smoothness: float = 0.3) -> Table:
    """Grid values whose interpolation is nearest to `values` at `points`, in relative terms.

    Minimises Huber((interpolated - value) / value) plus the squared second differences along each axis, weighted by
    `smoothness`, by reweighted least squares. `points` holds one coordinate array per axis, each as long as `values`.
    The result stays between the smallest and the largest value seen, so that no corner without data runs away.
    """
    design, roughness = _design(axes, points), _roughness([len(axis) for axis in axes])
    penalty = (smoothness / np.median(values)) ** 2 * roughness.T @ roughness
    weights: Array = 1 / values
    solution: Array = np.full(design.shape[1], np.median(values))
    for _ in range(ROUNDS):
        rows = design * weights[:, None]
        solution = np.linalg.solve(rows.T @ rows + penalty, rows.T @ (weights * values))
        deviation = np.abs(design @ solution / values - 1)
        weights = np.sqrt(np.minimum(1, OUTLIER / np.maximum(deviation, 1e-12))) / values
    return Table.of([axis.tolist() for axis in axes], np.clip(solution, values.min(), values.max()).tolist())


def _design(axes: Sequence[Array], points: Sequence[Array]) -> Array:
    """Weight of each grid value (column) in the interpolation at each point (row)."""
    shape = [len(axis) for axis in axes]
    units = np.eye(int(np.prod(shape)))
    columns = [Table(tuple(axes), unit.reshape(shape)).at(*points) for unit in units]
    return np.stack(columns, axis=1)


def _roughness(shape: Sequence[int]) -> Array:
    """Second differences of the grid values along every axis; first differences where an axis has two points.

    A millionth of the identity keeps the solution unique where no point reaches.
    """
    size = int(np.prod(shape))
    grid = np.eye(size).reshape(*shape, size)
    parts = [np.diff(grid, n=min(2, length - 1), axis=axis).reshape(-1, size) for axis, length in enumerate(shape)]
    return np.concatenate([*parts, 1e-6 * np.eye(size)])
