"""A profile fitted to few training runs: each factor starts where the profile has it and moves as far as runs demand.

Published kernels, collectives and campaigns of like parts and stacks are the start; each factor has a prior of its own
width about it, so that one run moves what moves all runs alike, and only several runs that differ tell factors apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from calibration.steps import STEP, Prior
from planner.catalogue.collectives import collective_fits
from planner.catalogue.learned import FACTORS, Learned
from planner.errors import SpecError
from planner.quantities import Column, Count, Scalar
from planner.spec.cluster import Fabric
from planner.spec.profile import Profile
from planner.validate.predict import alike
from planner.validate.runs import MeasuredRun

PRIORS = {
    "compute_scale": Prior(0.2, 0.5, 4.0),
    "attention_scale": Prior(0.2, 0.3, 5.0),
    "elementwise_scale": Prior(0.35, 0.2, 8.0),
    "overlap_penalty": Prior(0.2, 0.1, 0.95, logarithmic=False),
    "launch_time": Prior(0.5, 1e-6, 1e-3),
    "fixed_time": Prior(1.0, 1e-4, 2.0),
    "link_scale": Prior(0.2, 0.5, 5.0),
    "network_scale": Prior(0.5, 0.3, 20.0),
}
"""How far each factor may be from that of the nearest campaign, and its bounds."""
NOISE: Scalar = 0.02
"""A run differs from itself by 1 to 3 % (MLPerf, fms-acceleration); beyond it deviations count like their size."""
ROUNDS = 12
"""Steps of a fit."""
OPEN: Scalar = 0.7
"""A factor is open where the runs leave it more than this part of the uncertainty that it had before."""
LEAST_ERROR: Scalar = 0.04
"""No prediction is surer than this after few runs."""


@dataclass(frozen=True)
class FewRunsFit:
    """The fitted profile; of the factors, which the runs told and which stayed as they were.

    `error` is the standard deviation of the logarithm that further runs of the campaign may be expected to have.
    """

    profile: Profile
    factors: Mapping[str, float]
    told: tuple[str, ...]
    untold: tuple[str, ...]
    runs: Count
    error: Scalar


def fit_few(profile: Profile, runs: Sequence[MeasuredRun]) -> Profile:
    """The profile with factors that make predictions of some runs meet what was measured. Raises as `few_runs_fit`."""
    return few_runs_fit(profile, runs).profile


def few_runs_fit(profile: Profile, runs: Sequence[MeasuredRun]) -> FewRunsFit:
    """As `fit_few`, with what the runs told and what they left open.

    Raises SpecError where no run can be used: timed, not out of memory, on the profile's accelerator, under its stack.
    """
    usable = [run for run in runs if _usable(run, profile)]
    if not usable:
        raise SpecError(f"none of {len(runs)} runs was timed on {profile.accelerator} under {profile.stack}")
    times, target = predictor(profile, usable), np.log([run.measured_step_time for run in usable])
    start = Learned.of(profile)
    origin, spread, bounds = _encoded(start)

    def residuals(values: Column) -> Column:
        far = (np.log(times(_decoded(start, values))) - target) / NOISE
        # The root of soft_l1, so that priors beside it stay squares.
        softened = np.sign(far) * np.sqrt(2 * (np.sqrt(1 + far**2) - 1))
        return np.append(softened, (values - origin) / spread)

    inside = np.clip(origin, bounds[0] + 1e-6, bounds[1] - 1e-6)
    found = least_squares(residuals, inside, bounds=bounds, diff_step=STEP, x_scale=spread, max_nfev=ROUNDS)
    return _made(profile, _decoded(start, found.x), found, spread, len(usable))


def predictor(profile: Profile, runs: Sequence[MeasuredRun]) -> Callable[[Learned], Column]:
    """From factors to step times of runs, with the profile's kernels and collectives under them."""
    groups = [(group, _on_fabric(profile, group.cluster.node.fabric)) for group in alike(runs)]

    def times(factors: Learned) -> Column:
        found = np.zeros(len(runs))
        for group, own in groups:
            found[group.rows] = group.times(factors.applied(own)).total
        return found

    return times


def _on_fabric(profile: Profile, fabric: Fabric) -> Profile:
    """The profile with published collectives for kinds of links that it does not have."""
    return replace(profile, collectives={**collective_fits(fabric), **profile.collectives})


def _usable(run: MeasuredRun, profile: Profile) -> bool:
    if run.configuration is None or run.oom or run.measured_step_time <= 0:
        return False
    return (run.accelerator, run.configuration.stack.name) == (profile.accelerator, profile.stack)


def _encoded(start: Learned) -> tuple[Column, Column, Column]:
    """Factors as they are fitted, how far each may be from there, and the bounds, widened to hold the start."""
    priors = [PRIORS[name] for name in FACTORS]
    origin = np.array([prior.encoded(getattr(start, name)) for name, prior in zip(FACTORS, priors, strict=True)])
    low = np.array([prior.encoded(prior.low) for prior in priors])
    high = np.array([prior.encoded(prior.high) for prior in priors])
    bounds = np.array([np.minimum(low, origin - 1e-3), np.maximum(high, origin + 1e-3)])
    return origin, np.array([prior.spread for prior in priors]), bounds


def _decoded(start: Learned, values: Column) -> Learned:
    return replace(start, **{name: PRIORS[name].decoded(value) for name, value in zip(FACTORS, values, strict=True)})


def _made(profile: Profile, factors: Learned, found: Any, spread: Column, runs: Count) -> FewRunsFit:
    """The profile with its factors, told and untold ones told apart by what the runs leave of the priors' widths."""
    slopes = found.jac[:runs]
    far = found.fun[:runs] * NOISE
    scale = max(1.0, float(np.sqrt(np.mean(far**2))) / NOISE)
    left = np.linalg.inv(slopes.T @ slopes / scale**2 + np.diag(spread**-2.0))
    share = np.sqrt(np.diag(left)) / spread
    told = tuple(name for name, part in zip(FACTORS, share, strict=True) if part <= OPEN)
    untold = tuple(name for name in FACTORS if name not in told)
    # What a run like these would be off by if it had not been fitted: its noise, and what it leaves open itself.
    own = np.clip(np.einsum("ij,jk,ik->i", slopes, left, slopes) / scale**2, 0.0, 0.9)
    error = max(LEAST_ERROR, float(np.sqrt(np.mean((far / (1 - own)) ** 2))))
    note = f"factors fitted to {runs} training runs; open still: {', '.join(untold) or 'none'}"
    fitted = replace(
        factors.applied(profile),
        level="calibrated" if "compute_scale" in told else profile.level,
        error=error,
        plan_error=min(profile.plan_error, error),
        notes=(*profile.notes, note),
    )
    return FewRunsFit(fitted, {name: getattr(factors, name) for name in FACTORS}, told, untold, runs, error)
