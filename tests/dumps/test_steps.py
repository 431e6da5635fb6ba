"""Which steps of a run count: after warm-up, without those that stand out, one reading a step."""

import statistics

import pytest

from planner.dumps.own_record import own_runs, own_settings
from planner.dumps.run_records import Reading, TrainingLog
from planner.dumps.steps import logged_steps, steady


def readings(values):
    return [Reading(value, step, line=2 * step + 1) for step, value in enumerate(values)]


def test_warm_up_is_left_out_and_the_rest_is_described_by_median_and_spread():
    times = steady(readings([30, 5, 3] + [1.0, 1.1, 0.9] * 7))
    assert (times.warm_up, times.odd, times.steps) == (3, (), 24)
    assert times.median == 1.0
    assert times.spread == pytest.approx(0.148, abs=1e-3)


def test_steps_that_stand_out_are_named_with_what_the_log_says_beside_them():
    values = [1.0] * 30
    values[10], values[20] = 4.0, 2.0
    text = "".join(
        f"step {n}\n" + {10: "Saving the checkpoint to /x\n", 20: "nothing of note\n"}.get(n, "evaluate this name\n")
        for n in range(30)
    )
    text = text.replace("step 10\nSaving", "Saving")
    times = steady(readings(values), text=text)
    assert [(odd.step.step, odd.reason) for odd in times.odd] == [(10, "checkpoint"), (20, "")]
    assert times.median == 1.0
    assert times.odd[0].words == "step 10: 4 s (checkpoint)"


def test_noise_alone_makes_no_step_stand_out():
    values = [1 + 0.1 * (n % 7) for n in range(70)]
    assert steady(readings(values)).odd == ()


def test_a_few_percent_never_stand_out_however_even_the_others_are():
    assert steady(readings([1.0] * 20 + [1.15])).odd == ()


def test_ranks_that_print_one_step_each_count_once():
    doubled = [each for reading in readings([1.0] * 12) for each in (reading, Reading(3.0, reading.step, reading.line))]
    assert steady(doubled).steps == 12


def test_a_single_reading_is_a_run():
    times = steady([Reading(2.0)])
    assert (times.median, times.spread, times.warm_up) == (2.0, 0.0, 0)


def test_rates_become_seconds_where_the_batch_is_known():
    log = TrainingLog("x", {"tokens_per_s_per_gpu": tuple(readings([1000.0] * 8))})
    assert logged_steps(log) is None
    times = logged_steps(log, sequences=64, seq_len=4096, ranks=8)
    assert times.median == pytest.approx(64 * 4096 / 8000)
    assert logged_steps(TrainingLog("x", {"samples_per_s": (Reading(16.0),)}), sequences=64).median == 4.0


def test_a_time_counts_before_a_rate():
    log = TrainingLog("x", {"step_time": (Reading(3.0),), "tokens_per_s": (Reading(1.0),)})
    assert logged_steps(log, sequences=1, seq_len=1).basis == "timed"


def test_a_record_without_a_start_tells_no_settings():
    assert own_settings('{"event": "step", "step": 1}\nanything') is None
    assert own_runs("no record at all\n") == ["no record at all\n"]


def test_the_spread_is_that_of_the_middle_and_not_of_one_wild_step():
    even = [1.0, 1.02, 0.98] * 10
    assert steady(readings([*even, 50.0])).spread == pytest.approx(steady(readings(even)).spread, rel=0.01)
    assert statistics.fmean([*even, 50.0]) > 2
