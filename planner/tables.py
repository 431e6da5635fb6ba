"""A measured quantity on a grid, interpolated between its points in log shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

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
        cells = [_cell(axis, coordinate) for axis, coordinate in zip(self.axes, coordinates, strict=True)]
        total: Number = 0.0
        for corner in product((0, 1), repeat=len(cells)):
            weight: Number = 1.0
            for (_, share), upper in zip(cells, corner, strict=True):
                weight = weight * (share if upper else 1 - share)
            index = tuple(lower + upper for (lower, _), upper in zip(cells, corner, strict=True))
            total = total + weight * self.values[index]
        return total


def _cell(axis: Column, coordinate: Number) -> tuple[Column, Number]:
    """Index of the grid cell and the position within it (0 to 1), both clamped."""
    if len(axis) == 1:
        raise ValueError("an axis needs at least two points")
    inside = np.clip(coordinate, axis[0], axis[-1])
    lower = np.clip(np.searchsorted(axis, inside, side="right") - 1, 0, len(axis) - 2)
    return lower, np.log(inside / axis[lower]) / np.log(axis[lower + 1] / axis[lower])
