import math
import random

import numpy as np
import pytest

from planner.economics import failure_simulation as play
from planner.economics import failures
from planner.economics.checkpoints import daly_interval, young_interval

CASES = [
    pytest.param(2.4, 10 * 60, 3.1 * 3600, id="405B on 16,384 GPUs"),
    pytest.param(60, 10 * 60, 3.1 * 3600, id="slow storage"),
    pytest.param(10, 10 * 60, 50 * 3600, id="1,024 GPUs"),
    pytest.param(30 * 60, 10 * 60, 3 * 3600, id="checkpoints of half an hour"),
    pytest.param(300, 300, 1800, id="a preemption every half hour"),
]
"""Seconds to write a checkpoint, to restart, between failures."""


def event_loop(work, interval, write, restart, gap):
    """A run step by step: whether the next thing ends before the next failure. `gap()` draws the time to it."""
    clock = saved = 0.0
    fails, working = gap(), True
    while saved < work:
        length = min(interval, work - saved) + write if working else restart
        if clock + length <= fails:
            clock += length
            saved, working = (saved + min(interval, work - saved) if working else saved), True
        else:
            clock, working = fails, False
            fails = clock + gap()
    return clock


def test_419_interruptions_in_54_days_on_16384_gpus_are_one_in_50000_gpu_hours():
    one = failures.device_mtbf(54 * 86400.0, 16384, 419)
    assert one / 3600 == pytest.approx(50_677, abs=1)
    assert failures.job_mtbf(one, 16384) / 3600 == pytest.approx(3.09, abs=0.01)
    assert 86400 / failures.job_mtbf(one, 1024) == pytest.approx(0.485, abs=0.001)


def test_goodput_by_hand():
    """tau + C = M ln 2, no restart: half the attempts last, so that M seconds pass for one interval."""
    interval = math.log(2) - 0.1
    assert failures.goodput(interval, write=0.1, restart=0.0, mtbf=1.0) == pytest.approx(interval)


def test_without_failures_only_the_checkpoints_cost():
    assert failures.goodput(90.0, write=10.0, restart=60.0, mtbf=1e12) == pytest.approx(0.9)


def test_nothing_is_left_where_a_restart_outlasts_the_time_between_failures_by_far():
    assert failures.goodput(1.0, write=1.0, restart=1e6, mtbf=1.0) < 1e-200


def test_failures_and_preemptions_add_their_rates():
    assert 1 / failures.joint_mtbf(50.0, 6.0) == pytest.approx(1 / 50 + 1 / 6)
    assert failures.joint_mtbf(50.0, 1e15) == pytest.approx(50.0)


@pytest.mark.parametrize(("write", "restart", "mtbf"), CASES)
def test_the_simulation_agrees_with_daly_on_goodput_and_best_interval(write, restart, mtbf):
    gaps = play.failure_gaps(mtbf, play.FAILURES, seed=0)
    best = daly_interval(write, mtbf)
    expected = failures.goodput(best, write=write, restart=restart, mtbf=mtbf)
    assert play.played_goodput(gaps, best, write=write, restart=restart) == pytest.approx(expected, rel=0.005)
    found = play.best_played_interval(gaps, write=write, restart=restart, start=young_interval(write, mtbf))
    assert found == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_simulation_agrees_whatever_the_seed(seed):
    gaps = play.failure_gaps(10_800.0, play.FAILURES, seed)
    found = play.best_played_interval(gaps, write=15.0, restart=600.0, start=young_interval(15.0, 10_800.0))
    assert found == pytest.approx(daly_interval(15.0, 10_800.0), rel=0.02)


def test_a_seed_gives_the_same_failures_and_another_others():
    assert play.failure_gaps(1.0, 5, 7).tolist() == play.failure_gaps(1.0, 5, 7).tolist()
    assert play.failure_gaps(1.0, 5, 7).tolist() != play.failure_gaps(1.0, 5, 8).tolist()


def test_a_stretch_between_failures_by_hand():
    """Restart 2, then intervals of 10 with checkpoints of 1: 35 holds three, 12 none."""
    lasting = play.lasting_work(np.array([35.0, 12.0, 1.0]), 10.0, write=1.0, restart=2.0)
    assert lasting.tolist() == [30.0, 0.0, 0.0]


def test_runs_played_at_once_end_when_an_event_loop_ends_them():
    work, interval, write, restart, mtbf = 1000.0, 30.0, 3.0, 12.0, 150.0
    together = play.played_runs(work, interval, write=write, restart=restart, mtbf=mtbf, seed=5, runs=20)
    likely = work / interval * (interval + write) / mtbf
    gaps = np.random.default_rng(5).exponential(mtbf, (20, int(2 * likely) + 50))
    alone = [event_loop(work, interval, write, restart, iter(row).__next__) for row in gaps.tolist()]
    assert together.tolist() == pytest.approx(alone)


def test_the_mean_of_whole_runs_is_the_work_over_the_goodput():
    work, case = 54 * 86400.0, {"write": 30.0, "restart": 900.0, "mtbf": 3.1 * 3600}
    interval = float(daly_interval(30.0, case["mtbf"]))
    times = play.played_runs(work, interval, **case, seed=0)
    assert times.mean() == pytest.approx(work / failures.goodput(interval, **case), rel=0.005)
    low, high = play.spread(times)
    assert np.mean((times >= low) & (times <= high)) == pytest.approx(0.9, abs=0.02)


def test_an_event_loop_with_other_random_numbers_gives_the_goodput():
    draw = random.Random(3)
    time = event_loop(20_000.0, 30.0, 3.0, 12.0, lambda: draw.expovariate(1 / 150.0))
    assert 20_000 / time == pytest.approx(failures.goodput(30.0, write=3.0, restart=12.0, mtbf=150.0), rel=0.05)


def test_a_run_without_failures_ends_after_its_work_and_checkpoints():
    times = play.played_runs(100.0, 30.0, write=1.0, restart=5.0, mtbf=1e12, seed=0, runs=3)
    assert times.tolist() == [104.0] * 3
    assert play.played_runs(1e9, 1.0, write=1.0, restart=1.0, mtbf=1.0, seed=0) is None
