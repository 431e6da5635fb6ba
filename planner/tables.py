"""A measured quantity on a grid, interpolated between its points in log shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.quantities import Column, Number


@dataclass(frozen=True, eq=False)
class Table:
    """Values on a rectangular grid of positive coordinates.

    `axes` holds one ascending column per dimension, `values` an array of their shape.

    >>> table = Table(axes=(np.array([1.0, 100.0]),), values=np.array([0.2, 0.6]))
    >>> round(float(table.at(10.0)), 3)
    0.4
    """

    axes: tuple[Column, ...]
    values: Column

    @classmethod
    def of(cls, axes: Sequence[Sequence[float]], values: Sequence[float]) -> Table:
        """From plain lists; `values` in row-major order."""
        grid = tuple(np.asarray(axis, dtype=float) for axis in axes)
        return cls(grid, np.asarray(values, dtype=float).reshape([len(axis) for axis in grid]))

    def at(self, *coordinates: Number) -> Number:
        """Value at each point, linear in the logarithm of every coordinate; clamped to the grid's edge outside."""
        points = np.broadcast_arrays(*coordinates)
        cells = [_cell(axis, point) for axis, point in zip(self.axes, points, strict=True)]
        corners = self._corners([lower for lower, _ in cells])
        for _, share in cells:
            corners = corners[0] + share * (corners[1] - corners[0])
        return corners

    def _corners(self, lower: Sequence[Column]) -> Column:
        """Values at the corners of each point's cell, shape (2, ..., 2, points)."""
        dimensions = len(lower)
        index = []
        for axis, low in enumerate(lower):
            both = np.stack([low, low + 1])
            index.append(both.reshape([2 if i == axis else 1 for i in range(dimensions)] + list(low.shape)))
        return self.values[tuple(index)]


def _cell(axis: Column, coordinate: Number) -> tuple[Column, Number]:
    """Index of the grid cell and the position within it (0 to 1), both clamped."""
    if len(axis) == 1:
        raise ValueError("an axis needs at least two points")
    inside = np.minimum(np.maximum(coordinate, axis[0]), axis[-1])
    lower = np.minimum(np.searchsorted(axis, inside, side="right"), len(axis) - 1) - 1
    return lower, np.log(inside / axis[lower]) / np.log(axis[1:] / axis[:-1])[lower]
