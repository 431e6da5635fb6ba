"""How the library of a part cuts matrix products into tiles, fitted to measured times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from calibration.grids import Array
from calibration.kernel_data import Columns
from planner.estimate.kernels import tiled_efficiency
from planner.quantities import Count
from planner.spec.profile import MatmulTiles

SHAPES = ((64, 64), (128, 64), (128, 128), (192, 128), (256, 128), (256, 256))
"""Output tiles that are tried, in both orientations with one rate."""
START = (0.5, 0.6, 0.75, 0.8, 0.85, 0.85, 150.0)
"""Rates of the tiles, and the depth at which a tile's rate is half."""
START_EXPONENT = 0.7
PULL = 0.02
"""Weight of the start, so that a tile that is never the best keeps a rate."""
NOISE = 0.05


def fit_tiles(share: Array, rows: Columns, multiprocessors: Count) -> MatmulTiles:
    """Tiles whose share of the peak is nearest to `share` in relative terms; large deviations count like their size."""
    start = np.append(np.log(START), START_EXPONENT)

    def deviations(point: Array) -> Array:
        found = tiled_efficiency(_tiles(point), rows["m"], rows["n"], rows["k"], multiprocessors)
        return np.append(np.log(found / share), PULL * (point - start))

    lowest, highest = np.append(start[:-1] - 3.0, 0.0), np.append(start[:-1] + 3.0, 1.0)
    found = least_squares(deviations, start, bounds=(lowest, highest), loss="soft_l1", f_scale=NOISE, max_nfev=60)
    tiles = _tiles(found.x)
    return replace(tiles, half_rate_depth=round(tiles.half_rate_depth), wave_exponent=round(tiles.wave_exponent, 2))


def _tiles(point: Array) -> MatmulTiles:
    rates = np.exp(point[: len(SHAPES)])
    both = [
        (float(rows), float(columns), float(rate))
        for shape, rate in zip(SHAPES, rates, strict=True)
        for rows, columns in sorted({shape, shape[::-1]})
    ]
    return MatmulTiles(tuple(both), float(np.exp(point[-2])), float(point[-1]))
