"""Intervals, ties and verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from planner.estimate.interval import (
    Verdict,
    memory_interval,
    outcome,
    p_faster,
    p_fits,
    step_time_interval,
    tie,
    verdict,
)
from planner.spec.profile import Profile

PROFILE = Profile("h100-sxm", "pytorch", "datasheet", {}, {}, {}, error=0.2, plan_error=0.05, memory_error=0.05)


def test_eighty_percent_of_log_normal_errors_lie_inside_the_interval():
    interval = step_time_interval(1.0, PROFILE)
    measured = np.exp(0.2 * np.random.default_rng(0).standard_normal(100_000))
    assert np.mean((measured > interval.low) & (measured < interval.high)) == pytest.approx(0.8, abs=0.01)


def test_a_better_profile_gives_a_narrower_interval():
    wide, narrow = step_time_interval(1.0, PROFILE), step_time_interval(1.0, replace(PROFILE, error=0.03))
    assert narrow.high - narrow.low < wide.high - wide.low


def test_equal_plans_tie_and_one_twice_as_slow_does_not():
    assert p_faster(1.0, 1.0, PROFILE) == 0.5
    assert tie(1.0, 1.0, PROFILE)
    assert not tie(1.0, 2.0, PROFILE)


def test_overlapping_intervals_alone_make_no_tie():
    assert step_time_interval(1.0, PROFILE).high > step_time_interval(1.15, PROFILE).low
    assert not tie(1.0, 1.15, PROFILE)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.84, Verdict.FITS), (0.9, Verdict.TIGHT), (0.96, Verdict.DOES_NOT_FIT)]
)
def test_verdicts_change_at_85_and_95_percent(share, expected):
    assert verdict(share * 80e9, 80e9) == expected


def test_chance_to_fit_is_one_half_at_the_limit_and_grows_with_room():
    assert p_fits(80e9, 80e9, PROFILE) == 0.5
    assert p_fits(40e9, 80e9, PROFILE) > 0.999
    assert memory_interval(40e9, PROFILE).high < 80e9


def test_no_measured_run_took_more_than_there_is():
    interval = memory_interval(78e9, PROFILE, usable=80e9)
    assert interval.low < 78e9 < interval.high == 80e9


def test_a_run_that_leaves_its_memory_open_has_a_wide_interval():
    narrow, wide = memory_interval(40e9, PROFILE), memory_interval(40e9, PROFILE, spread=0.25)
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)


@pytest.mark.parametrize(
    ("peak", "required", "expected"),
    [(60, 60, Verdict.FITS), (75, 70, Verdict.TIGHT), (95, 79, Verdict.TIGHT), (95, 81, Verdict.DOES_NOT_FIT)],
)
def test_a_run_fails_only_where_it_lacks_what_the_allocator_cannot_give_back(peak, required, expected):
    assert outcome(peak * 1e9, required * 1e9, 80e9) == expected
