"""What whole training steps add to their parts: few factors, fitted to measured steps with the parts as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.bounded_fit import Figure, Found, fit
from calibration.grids import Array
from calibration.record import Record
from calibration.steps_plan import Step
from planner.catalogue.stacks import stack
from planner.estimate.step_time import step_time
from planner.quantities import Scalar, Seconds
from planner.spec.cluster import Cluster
from planner.spec.profile import Profile
from planner.topology.group_links import group_links

FACTORS = {
    "compute_scale": (0.2, 0.5, 5.0),
    "elementwise_scale": (0.4, 0.2, 20.0),
    "launch_time": (0.5, 1e-6, 1e-3),
    "fixed_time": (1.0, 1e-5, 1.0),
}
"""Spread of the logarithm about the parts' figure, and bounds."""
FEWEST = 3
"""Steps below which factors stay."""
LEAST_ERROR: Scalar = 0.05
"""No prediction of a step is surer than this, whatever few small steps say."""


@dataclass(frozen=True)
class TimedStep:
    """A step and the time that it took."""

    step: Step
    seconds: Seconds


def timed_steps(record: Record) -> list[TimedStep]:
    """All measured steps."""
    return [TimedStep(Step.of(row), measured.value) for row, measured in record.results("training_step")]


def step_times(steps: Sequence[TimedStep], cluster: Cluster, profile: Profile) -> Array:
    """What the planner predicts for steps under a profile."""
    software = stack(profile.stack)
    return np.array(
        [
            float(
                step_time(
                    each.step.model,
                    each.step.plan,
                    each.step.workload,
                    cluster,
                    group_links(each.step.plan, cluster),
                    profile=profile,
                    stack=software,
                ).total
            )
            for each in steps
        ]
    )


def fitted_factors(steps: Sequence[TimedStep], cluster: Cluster, profile: Profile) -> Found | None:
    """The factors that make the planner's step times those that were measured; None of too few steps."""
    steps = [each for each in steps if each.step.dtype in cluster.accelerator.peak]
    if len(steps) < FEWEST:
        return None
    figures = {name: _figure(getattr(profile, name), *limits) for name, limits in FACTORS.items()}

    def predicted(values: Mapping[str, float]) -> Array:
        return step_times(steps, cluster, replace(profile, **values))

    return fit(figures, np.array([each.seconds for each in steps]), predicted)


def _figure(start: float, spread: Scalar, lowest: float, highest: float) -> Figure:
    return Figure(min(max(start, 1.001 * lowest), 0.999 * highest), spread, lowest, highest)


def with_factors(profile: Profile, found: Found) -> Profile:
    """The profile with fitted factors, and the error that steps have which did not enter their own prediction."""
    error = max(LEAST_ERROR, found.left_out)
    return replace(profile, **found.values, level="calibrated", error=error, plan_error=min(profile.plan_error, error))
