"""What published training runs teach of each (accelerator, stack): factors on kernels, links and host.

    python -m calibration.steps TABLE.csv planner/catalogue/profiles [--report]

TABLE.csv has the columns of docs/validate.md. The factors of `planner.catalogue.learned.Learned` are fitted by scipy to
the planner's own step time, pair by pair, with starting values from which they depart as far as the runs demand.
`--report` prints what is reached on the half of each pair's runs that was not fitted.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from planner.catalogue.learned import FACTORS, IN_UNITS, Learned
from planner.catalogue.profiles import unlearned_profile
from planner.quantities import Column, to_base
from planner.spec.profile import Profile
from planner.validate.predict import alike
from planner.validate.runs import MeasuredRun, read_runs
from planner.validate.scores import half, score

NOISY = ("bigscience-v100",)
"""Sources that teach nothing: these runs were repeated with up to 40 % between them."""
FEWEST = 4
"""Runs that make a pair."""
MOST = 160
"""Runs of a pair that are fitted: more would take longer and teach the same, and one source would outweigh others."""
NOISE = 0.05
"""Relative errors beyond this count like their size, not its square."""
ONE_NODE = ("nanotron",)
"""Stacks that are fitted to runs on one node: across nodes their published steps take 2 to 50 times what links allow,
in no order that a factor on the network would give, so only the error tells of them."""
ROUNDS = 6
"""Steps of a fit; with more, held-out errors fall for some pairs and rise for as many."""
SLOW_TO_SETTLE = {"megatron-deepspeed": 20}
"""Steps of stacks whose fit is still on its way by then: two campaigns of one pair that pull against each other."""
STEP = 2e-2
"""Of a derivative, in the logarithm."""


@dataclass(frozen=True)
class Prior:
    """How far a factor may lie from its start (standard deviation, in the logarithm or not), and its bounds."""

    spread: float
    low: float
    high: float
    logarithmic: bool = True

    def encoded(self, value: float) -> float:
        """The factor as it is fitted."""
        return float(np.log(value)) if self.logarithmic else value

    def decoded(self, value: float) -> float:
        """The factor itself."""
        return float(np.exp(value)) if self.logarithmic else float(value)


PRIORS = {
    "compute_scale": Prior(0.15, 0.8, 3.0),
    "attention_scale": Prior(0.25, 0.5, 4.0),
    "elementwise_scale": Prior(0.35, 0.3, 4.0),
    "overlap_penalty": Prior(0.25, 0.15, 0.9, logarithmic=False),
    "launch_time": Prior(0.7, 1e-6, 3e-4),
    "fixed_time": Prior(1.0, 1e-4, 2.0),
    "link_scale": Prior(0.25, 0.8, 4.0),
    "network_scale": Prior(0.5, 0.8, 20.0),
}
"""Wide where software decides (host, fixed costs, networks), narrow where kernels were timed."""


def campaigns(runs: Sequence[MeasuredRun]) -> dict[tuple[str, str], list[MeasuredRun]]:
    """Runs that can be fitted by (accelerator, stack): those that state everything and were timed."""
    found: dict[tuple[str, str], list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        known = run.configuration and run.complete and run.measured_step_time and not run.oom
        if known and run.source_id not in NOISY:
            found[run.accelerator, run.stack].append(run)
    return {key: rows for key, rows in sorted(found.items()) if len(rows) >= FEWEST}


def fitted(runs: Sequence[MeasuredRun]) -> Learned:
    """The factors that make predictions of runs of one pair meet what was measured."""
    start = Learned.of(unlearned(runs[0]))
    runs = _fittable(runs)
    measured, chosen = _times(runs), _spread_out(runs)
    times, target = predictor([runs[row] for row in chosen]), np.log(measured[chosen])
    origin = np.array([PRIORS[name].encoded(getattr(start, name)) for name in FACTORS])
    priors = [PRIORS[name] for name in FACTORS]
    bounds = np.array([[p.encoded(p.low) for p in priors], [p.encoded(p.high) for p in priors]])
    spread = np.array([p.spread for p in priors])

    def residuals(values: Column) -> Column:
        far = np.log(times(_decoded(start, values))) - target
        return np.concatenate([far / NOISE, (values - origin) / spread])

    steps = SLOW_TO_SETTLE.get(runs[0].stack, ROUNDS)
    found = least_squares(
        residuals, np.clip(origin, bounds[0] + 1e-6, bounds[1] - 1e-6),
        bounds=bounds, loss="soft_l1", diff_step=STEP, x_scale=spread, max_nfev=steps,
    )  # fmt: skip
    return _decoded(start, found.x)


def _decoded(start: Learned, values: Column) -> Learned:
    return replace(start, **{name: PRIORS[name].decoded(value) for name, value in zip(FACTORS, values, strict=True)})


def _fittable(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """All runs, or those on one node where more nodes teach nothing."""
    one_node = [run for run in runs if run.configuration and run.configuration.cluster.num_nodes == 1]
    return one_node if runs[0].stack in ONE_NODE and len(one_node) >= FEWEST else list(runs)


def _spread_out(runs: Sequence[MeasuredRun]) -> Column:
    """Rows that are fitted: of each source the same number, if it has so many, spread evenly over its rows."""
    sources = np.array([run.source_id for run in runs])
    each = MOST // len(set(sources))
    rows = [np.flatnonzero(sources == source) for source in sorted(set(sources))]
    return np.concatenate([own[np.linspace(0, len(own) - 1, min(len(own), each)).astype(int)] for own in rows])


def unlearned(run: MeasuredRun) -> Profile:
    """What a run is predicted with before anything is learned."""
    assert run.configuration is not None
    return unlearned_profile(run.configuration.cluster, run.stack)


def _times(runs: Sequence[MeasuredRun]) -> Column:
    return np.array([run.measured_step_time for run in runs])


def predicted(runs: Sequence[MeasuredRun], factors: Learned) -> Column:
    """Step times of runs of one pair under some factors."""
    return predictor(runs)(factors)


def predictor(runs: Sequence[MeasuredRun]) -> Callable[[Learned], Column]:
    """From factors to step times of runs of one pair; what factors do not change is found once."""
    groups = [(group, unlearned_profile(group.cluster, group.stack.name)) for group in alike(runs)]

    def times(factors: Learned) -> Column:
        found = np.zeros(len(runs))
        for group, profile in groups:
            found[group.rows] = group.times(factors.applied(profile)).total
        return found

    return times


def held_out(runs: Sequence[MeasuredRun]) -> Column:
    """Step times of each half of the runs as the other half teaches; 0 where that is too few."""
    first, times = half([run.id for run in runs]), np.zeros(len(runs))
    for known in (first, ~first):
        teachers, others = np.flatnonzero(known), np.flatnonzero(~known)
        if len(teachers) >= 2 and len(others):
            times[others] = predicted([runs[row] for row in others], fitted([runs[row] for row in teachers]))
    return times


def learned(runs: Sequence[MeasuredRun]) -> tuple[Learned, Column]:
    """The factors of a pair with their errors, and the step times of what was held out.

    Where half of the runs predict the other half no better than what was known before, they contradict each other, and
    the factors stay where they start.
    """
    unseen, start = held_out(runs), Learned.of(unlearned(runs[0]))
    known, measured, before = unseen > 0, _times(runs), predicted(runs, start)
    better = score(measured[known], unseen[known]).median < score(measured[known], before[known]).median
    far = np.log(np.where(known & better, unseen, before) / measured)
    jobs = np.unique([str(run.job) for run in runs], return_inverse=True)[1]
    own = far - np.array([np.median(far[jobs == job]) for job in jobs])
    error = _deviation(far)
    return replace(
        fitted(runs) if better else start,
        error=error,
        plan_error=min(_deviation(own[np.bincount(jobs)[jobs] > 1]), error),
        runs=len(runs),
        sources=tuple(sorted({run.source_id for run in runs})),
    ), unseen


def _deviation(far: Column) -> float:
    """A standard deviation such that 80 % lie within 1.28 of it; 0 where there is nothing."""
    return float(np.quantile(np.abs(far), 0.8) / 1.2816) if len(far) else 0.0


def toml(one: Learned) -> str:
    """The file of a pair."""
    lines = [HEADER, *(f"{key} = {value:.4g}" for key, value in _in_units(one).items())]
    lines += [f"error = {one.error:.3g}", f"plan_error = {one.plan_error:.3g}", f"runs = {one.runs}"]
    names = ", ".join(f'"{name}"' for name in one.sources)
    return "\n".join([*lines, f"sources = [{names}]", ""])


def _in_units(one: Learned) -> dict[str, float]:
    """The factors by the keys of their file, times in the units that these name."""
    units = {name: IN_UNITS.get(name, "") for name in FACTORS}
    return {
        f"{name}_{unit}" if unit else name: getattr(one, name) / (to_base(1.0, unit) if unit else 1.0)
        for name, unit in units.items()
    }


HEADER = """\
# Factors that published runs teach (calibration/steps.py), or where they start if the runs contradict each other;
# `error` is of runs held out, a standard deviation of the logarithm. docs/accuracy.md has more."""


def report(name: str, runs: Sequence[MeasuredRun], one: Learned, unseen: Column) -> str:
    """One line of Markdown: what was reached before anything was learned, on what was held out, and the factors."""
    measured = _times(runs)
    before, after = score(measured, predicted(runs, Learned.of(unlearned(runs[0])))), score(measured, unseen)
    figures = " | ".join(f"{100 * each.median:.1f} / {100 * each.p90:.0f} %" for each in (before, after))
    factors = " | ".join(f"{value:.3g}" for value in _in_units(one).values())
    return f"| {name} | {len(runs)} | {figures} | {factors} |"


def main() -> None:
    """Read the arguments, fit, and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="stacks")
    parser.add_argument("--report", action="store_true", help="print what is reached, pair by pair")
    arguments = parser.parse_args()
    for (accelerator, stack), runs in campaigns(read_runs(arguments.table)).items():
        if arguments.only and stack not in arguments.only:
            continue
        one, unseen = learned(runs)
        path = arguments.folder / accelerator / f"{stack}.toml"
        if arguments.report:
            print(report(f"{accelerator} {stack}", runs, one, unseen), flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(toml(one), encoding="utf-8")


if __name__ == "__main__":
    main()
