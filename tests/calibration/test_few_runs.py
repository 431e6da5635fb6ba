"""A profile fitted to few runs: what moves, what stays, and how well the rest of published campaigns is then met."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.few_runs import PRIORS, few_runs_fit, fit_few, predictor
from calibration.steps import campaigns
from planner.catalogue.learned import FACTORS, Learned, learned
from planner.catalogue.profiles import profile
from planner.errors import SpecError
from planner.validate.runs import read_runs

EXTRACT = Path(__file__).parents[1] / "data" / "runs.csv"
FULL_TABLE = Path(__file__).parents[2] / "../shared/data/throughput.csv"
DRAWS = 4


def without(source, accelerator, stack):
    """The profile of a pair as it would be if a source had never been read."""
    others = {key: one for key, one in learned().items() if source not in one.sources}
    return profile(accelerator, stack, campaigns=others)


@pytest.fixture(scope="module")
def runs():
    """The runs of one pair, of several shapes."""
    return campaigns(read_runs(EXTRACT))["h100-sxm", "llm-foundry"]


@pytest.fixture(scope="module")
def start():
    return without("mosaic-llm-foundry", "h100-sxm", "llm-foundry")


def retimed(start, runs, **factors):
    """The same runs as if they had taken what some factors say."""
    times = predictor(start, runs)(replace(Learned.of(start), **factors))
    return [replace(run, measured_step_time=float(time)) for run, time in zip(runs, times, strict=True)]


def errors(start, found, runs):
    """Relative errors of a fit on runs."""
    times = predictor(start, runs)(replace(Learned.of(start), **found.factors))
    return np.abs(times / [run.measured_step_time for run in runs] - 1)


def test_runs_that_took_what_is_expected_leave_every_factor_where_it_was(start, runs):
    found = few_runs_fit(start, retimed(start, runs))
    for name in FACTORS:
        assert found.factors[name] == pytest.approx(getattr(Learned.of(start), name), rel=0.03), name


def test_one_slow_run_moves_what_moves_all_runs(start, runs):
    slow = retimed(start, runs, compute_scale=1.2 * start.compute_scale)
    found = few_runs_fit(start, slow[:1])
    assert found.factors["compute_scale"] > 1.05 * start.compute_scale
    assert np.median(errors(start, found, slow[1:])) < 0.06


def test_more_runs_meet_further_runs_better_and_tell_more_factors(start, runs):
    taken = retimed(start, runs, compute_scale=1.25 * start.compute_scale, attention_scale=1.4, fixed_time=0.05)
    few, many = few_runs_fit(start, taken[:1]), few_runs_fit(start, taken[:-2])
    assert errors(start, many, taken[-2:]).mean() < min(errors(start, few, taken[-2:]).mean(), 0.03)
    assert len(many.told) >= len(few.told)


def test_one_wild_run_hardly_moves_the_others(start, runs):
    taken = retimed(start, runs)
    taken[0] = replace(taken[0], measured_step_time=20 * taken[0].measured_step_time)
    others = errors(start, few_runs_fit(start, taken), taken[1:])
    assert np.median(others) < 0.05
    assert others.max() < 0.4


def test_factors_stay_within_bounds_whatever_the_runs_say(start, runs):
    absurd = [replace(run, measured_step_time=1e4 * run.measured_step_time) for run in runs[:3]]
    found = few_runs_fit(start, absurd)
    for name, prior in PRIORS.items():
        assert 0.99 * prior.low <= found.factors[name] <= 1.01 * prior.high, name


def test_what_the_runs_do_not_tell_is_said_and_stays(start, runs):
    alone = [run for run in runs if run.configuration.cluster.num_nodes == 1]
    found = few_runs_fit(start, retimed(start, alone, compute_scale=1.1 * start.compute_scale))
    assert found.factors["network_scale"] == pytest.approx(1.0)
    assert {"network_scale", "launch_time"} <= set(found.untold)
    assert set(found.told) | set(found.untold) == set(FACTORS)
    assert f"fitted to {len(alone)} training runs; open still: " in found.profile.notes[-1]


def test_the_fitted_profile_predicts_as_the_fit_does(start, runs):
    taken = retimed(start, runs, compute_scale=1.3 * start.compute_scale)[:4]
    found = few_runs_fit(start, taken)
    assert found.profile.level == "calibrated"
    assert found.profile.error < start.error
    again = predictor(found.profile, taken)(Learned.of(found.profile))
    assert again == pytest.approx(predictor(start, taken)(replace(Learned.of(start), **found.factors)))


def test_runs_of_other_hardware_and_runs_that_failed_teach_nothing(start, runs):
    with pytest.raises(SpecError, match="none of 2 runs was timed on h100-sxm under llm-foundry"):
        fit_few(start, [replace(runs[0], accelerator="b200-sxm"), replace(runs[1], oom=True)])
    mixed = retimed(start, runs, compute_scale=1.2 * start.compute_scale)[:2]
    foreign = [replace(runs[4], accelerator="b200-sxm", measured_step_time=1e6)]
    assert few_runs_fit(start, mixed + foreign).factors == few_runs_fit(start, mixed).factors


CAMPAIGNS = {
    ("mosaic-llm-foundry", "a100-sxm-80gb", "llm-foundry"): 0.04,
    ("fms-acceleration-a100", "a100-sxm-80gb", "hf-fsdp"): 0.055,
    ("bigscience-tr11-prequel", "a100-sxm-80gb", "megatron-deepspeed"): 0.06,
    ("simumax-b200", "b200-sxm", "megatron-core"): 0.05,
}
"""Campaigns, and the error over draws of five runs that is allowed: the median draw's median."""


@pytest.mark.slow
@pytest.mark.skipif(not FULL_TABLE.exists(), reason="needs the full table of published runs")
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_five_runs_of_a_campaign_tell_its_others(campaign, record_property):
    source, accelerator, stack = campaign
    rows = [run for run in campaigns(read_runs(FULL_TABLE))[accelerator, stack] if run.source_id == source]
    start, random, medians = without(*campaign), np.random.default_rng(0), []
    for _ in range(DRAWS):
        drawn = random.choice(len(rows), 5, replace=False)
        found = few_runs_fit(start, [rows[row] for row in drawn])
        medians.append(np.median(np.delete(errors(start, found, rows), drawn)))
    record_property("median_error_of_each_draw", medians)
    assert np.median(medians) < CAMPAIGNS[campaign]
