"""A few positive figures fitted to times: robust, bounded, and held where the times do not tell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from calibration.grids import Array
from planner.quantities import Count, Scalar

NOISE: Scalar = 0.02
"""Relative deviations beyond this count like their size, not its square."""
TOLD: Scalar = 0.05
"""A figure is told by the times where they leave its logarithm no more uncertain than this."""
OPEN: Scalar = 0.5
"""A figure is held at its start where the times leave it this part of the uncertainty that it had before."""


ENOUGH: Mapping[str, float] = {"ftol": 1e-5, "xtol": 1e-4, "max_nfev": 40}
"""Where a fit ends: times are known to a percent or so, and what they leave open has a long flat valley."""


@dataclass(frozen=True)
class Figure:
    """A figure before it is fitted: where it starts, how far off it may be (of the logarithm), and its bounds.

    Of one that may be nothing at all (`may_vanish`) the spread is in its own unit, and it is told where it is at least
    twice as large as it is uncertain.
    """

    start: float
    spread: float
    lowest: float
    highest: float
    may_vanish: bool = False

    def encoded(self, value: float) -> float:
        """The value as it is fitted, such that a priori it is off by about one."""
        return value / self.spread if self.may_vanish else float(np.log(value)) / self.spread

    def decoded(self, point: float) -> float:
        """The inverse of `encoded`."""
        return point * self.spread if self.may_vanish else float(np.exp(point * self.spread))

    def unsure(self, point: float, left: Scalar) -> Scalar:
        """What of its uncertainty is left, given how far off a fitted point may still be."""
        return left / max(abs(point), left / 10) if self.may_vanish else left


@dataclass(frozen=True)
class Found:
    """Figures after the fit. `told` are those that the times decide each by itself.

    Of the others those that the times leave open were held at their starts (`held`); of the rest only the sum of what
    they add is known. `error` is the median relative deviation of the times that is left, `left_out` the standard
    deviation of their logarithms from what the other times alone would give.
    """

    values: Mapping[str, float]
    told: frozenset[str]
    held: frozenset[str]
    error: Scalar
    n: Count
    left_out: Scalar = 0.0

    @property
    def untold(self) -> tuple[str, ...]:
        """The figures that the times do not decide by themselves."""
        return tuple(sorted(set(self.values) - self.told))


def fit(figures: Mapping[str, Figure], times: Array, predicted: Callable[[Mapping[str, float]], Array]) -> Found:
    """The figures that make `predicted` and their starts most likely together.

    While the times leave a figure about as uncertain as it was, the least certain is held at its start, and the others
    are fitted again.
    """
    free, held, told = dict(figures), dict[str, float](), frozenset[str]()
    values, left_out = (
        dict[str, float](),
        float(np.std(np.log(predicted({n: f.start for n, f in figures.items()}) / times))),
    )
    while free:
        values, spread_left, left_out = _fitted(free, times, lambda some: predicted({**held, **some}))
        unsure = {name: free[name].unsure(free[name].encoded(values[name]), spread_left[name]) for name in free}
        if not held:
            told = frozenset(
                name for name in free if unsure[name] * (free[name].may_vanish or free[name].spread) <= TOLD
            )
        worst = max(unsure, key=lambda name: unsure[name])
        if unsure[worst] <= OPEN:
            break
        held[worst] = free.pop(worst).start
    together = held | {name: values[name] for name in free}
    return Found(together, told, frozenset(held), _error(predicted(together), times), len(times), left_out)


def _error(predicted: Array, times: Array) -> Scalar:
    return float(np.median(np.abs(predicted / times - 1)))


def _fitted(
    figures: Mapping[str, Figure], times: Array, predicted: Callable[[Mapping[str, float]], Array]
) -> tuple[dict[str, float], dict[str, Scalar], Scalar]:
    """The best values, how far off each may still be (as encoded), and how far off left out times are (logarithms)."""
    each = list(figures.values())
    start = np.array([figure.encoded(figure.start) for figure in each])
    bounds = [[figure.encoded(getattr(figure, end)) for figure in each] for end in ("lowest", "highest")]

    def values(point: Array) -> dict[str, float]:
        return {name: figure.decoded(float(x)) for (name, figure), x in zip(figures.items(), point, strict=True)}

    def deviations(point: Array) -> Array:
        return np.log(predicted(values(point)) / times) / NOISE

    def robust(point: Array) -> Array:
        far = deviations(point)
        # The root of soft_l1, so that priors beside it stay squares.
        softened = np.sign(far) * np.sqrt(2 * (np.sqrt(1 + far**2) - 1))
        return np.append(softened, point - start)

    # From the middle of what may be: at its bound a figure that may vanish has nowhere to go.
    inside = np.where([figure.may_vanish for figure in each], np.maximum(start, 0.1), start)
    found = least_squares(robust, np.clip(inside, bounds[0], bounds[1]), bounds=bounds, **ENOUGH)
    scale = max(1.0, float(np.median(np.abs(deviations(found.x)))) / 0.6745)
    slopes = found.jac[: len(times)] / scale
    left = np.linalg.inv(slopes.T @ slopes + np.eye(len(each)))
    far = deviations(found.x) * NOISE
    # A time's own weight in its prediction: without it the deviation grows by this much (to first order).
    own = np.clip(np.einsum("ij,jk,ik->i", slopes, left, slopes), 0.0, 0.9)
    alone = float(np.sqrt(np.mean((far / (1 - own)) ** 2)))
    return values(found.x), dict(zip(figures, np.sqrt(np.diag(left)).tolist(), strict=True)), alone
