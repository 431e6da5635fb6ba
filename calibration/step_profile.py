"""What whole training steps add to their parts: few factors, fitted to measured steps with the parts as they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration.bounded_fit import Figure, Found, fit
from calibration.grids import Array
from calibration.record import Record
from calibration.steps_plan import Step
from planner.catalogue.stacks import stack
from planner.quantities import Scalar, Seconds
from planner.spec.cluster import Cluster
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.validate.predict import Alike, stacked

FACTORS = {
    "compute_scale": (0.2, 0.5, 5.0),
    "elementwise_scale": (0.4, 0.2, 20.0),
    "launch_time": (0.5, 1e-6, 1e-3),
    "fixed_time": (1.0, 1e-5, 1.0),
}
BULK_SCALE = "bulk_scale"
"""What bytes on the wire take in a step over what they take alone: each call finds a connection that has been idle."""
BULK_LIMITS = (0.15, 0.5, 3.0)
"""Spread of the logarithm about the parts' figure, and bounds."""
LAUNCHES: Mapping[str, tuple[Seconds, Callable[[Step], bool]]] = {
    "tp_launch_time": (2e-2, lambda step: step.tp > 1),
    "pp_launch_time": (5e-3, lambda step: step.pp > 1),
    "fsdp_launch_time": (5e-3, lambda step: step.sharding != "none"),
    "recompute_launch_time": (5e-3, lambda step: step.recompute == "full"),
    "update_launch_time": (2e-3, lambda step: True),
}
"""What no part tells and may be nothing: how much it may be, and which steps tell of it."""
MOST_LAUNCH: Seconds = 1.0
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
    return predictor(steps, cluster, stack(profile.stack))(profile)


def predictor(steps: Sequence[TimedStep], cluster: Cluster, software: Stack) -> Callable[[Profile], Array]:
    """From a profile to the step times that the planner predicts; steps of one model at once."""
    groups = defaultdict[Any, list[int]](list)
    for row, each in enumerate(steps):
        groups[each.step.job].append(row)
    alike = [_alike(rows, [steps[row].step for row in rows], cluster, software) for rows in groups.values()]

    def times(profile: Profile) -> Array:
        found = np.zeros(len(steps))
        for group in alike:
            found[group.rows] = group.times(profile).total
        return found

    return times


def _alike(rows: list[int], steps: Sequence[Step], cluster: Cluster, software: Stack) -> Alike:
    plans = stacked([step.plan for step in steps])
    return Alike(rows, steps[0].model, cluster, steps[0].workload, software, plans)


def fitted_factors(steps: Sequence[TimedStep], cluster: Cluster, profile: Profile) -> Found | None:
    """The factors that make the planner's step times those that were measured; None of too few steps."""
    steps = [each for each in steps if each.step.dtype in cluster.accelerator.peak]
    if len(steps) < FEWEST:
        return None
    figures = {name: _figure(getattr(profile, name), *limits) for name, limits in FACTORS.items()}
    figures |= _launch_figures(steps, profile)

    if any(each.step.ranks > 1 for each in steps):
        figures[BULK_SCALE] = _figure(1.0, *BULK_LIMITS)
    times = predictor(steps, cluster, stack(profile.stack))

    def predicted(values: Mapping[str, float]) -> Array:
        return times(with_values(profile, values))

    return fit(figures, np.array([each.seconds for each in steps]), predicted)


def _launch_figures(steps: Sequence[TimedStep], profile: Profile) -> dict[str, Figure]:
    """Figures of the host that some step tells of."""
    return {
        name: Figure(getattr(profile, name), spread, 0.0, MOST_LAUNCH, may_vanish=True)
        for name, (spread, tells) in LAUNCHES.items()
        if any(tells(each.step) for each in steps)
    }


def _figure(start: float, spread: Scalar, lowest: float, highest: float) -> Figure:
    return Figure(min(max(start, 1.001 * lowest), 0.999 * highest), spread, lowest, highest)


def with_factors(profile: Profile, found: Found) -> Profile:
    """The profile with fitted factors, and the error that steps have which did not enter their own prediction.

    Steps that leave the compute scale open calibrate nothing: level and error stay.
    """
    made = with_values(profile, found.values)
    if "compute_scale" in found.held:
        return made
    error = max(LEAST_ERROR, found.left_out)
    return replace(made, level="calibrated", error=error, plan_error=min(profile.plan_error, error))


def with_values(profile: Profile, values: Mapping[str, float]) -> Profile:
    """The profile with some figures set, and the bandwidth of all collectives scaled."""
    own = {name: value for name, value in values.items() if name != BULK_SCALE}
    longer = values.get(BULK_SCALE, 1.0)
    collectives = {
        key: replace(fit, efficiency=fit.efficiency / longer, low_latency_share=fit.low_latency_share / longer)
        for key, fit in profile.collectives.items()
    }
    return replace(profile, collectives=collectives, **own)  # type: ignore[arg-type]
