"""Published, measured runs against predictions as shipped. Bounds are what is reached today, with a margin.

What the runs taught is in these predictions (docs/accuracy.md has what is held out), so this guards figures.
"""

from pathlib import Path

import numpy as np
import pytest

from planner.estimate.interval import Verdict
from planner.validate.baseline import constant_utilization_time
from planner.validate.predict import predict
from planner.validate.report import RunsReport, report_of
from planner.validate.runs import MeasuredRun, read_runs
from planner.validate.scores import cross_rescaled, score

EXTRACT = Path(__file__).parents[1] / "data" / "runs.csv"
FULL_TABLE = Path(__file__).parents[2] / "../shared/data/throughput.csv"
STEP_TIME = {
    "mosaic-llm-foundry": 0.03,
    "megatron-sc21": 0.06,
    "korthikanti-2022": 0.05,
    "megatron-bridge-perf": 0.1,
    "fms-acceleration-a100": 0.06,
    "bigscience-tr11-prequel": 0.07,
    "vtrain-single": 0.1,
    "flagperf": 0.09,
    "simumax-b200": 0.06,
    "torchtitan-2024-12": 0.07,
    "mlperf-training-v5.0": 0.05,
}
"""Source -> greatest median error of the step time."""
MEMORY = {
    "simumax-b200": 0.02,
    "torchtitan-2024-12": 0.09,
    "fms-acceleration-a100": 0.02,
    "bigscience-tr11-prequel": 0.035,
    "nanotron-ultrascale": 0.055,
    "qwen-finetune": 0.09,
}
"""Source -> greatest median error of peak memory."""
UNTUNED = ("nanotron",)


def complete(path: Path) -> list[MeasuredRun]:
    return [run for run in read_runs(path) if run.complete]


@pytest.fixture(scope="module")
def extract() -> RunsReport:
    return report_of(complete(EXTRACT))


@pytest.fixture(scope="module")
def published() -> list[MeasuredRun]:
    if not FULL_TABLE.exists():
        pytest.skip("the full table of published runs is not here")
    return complete(FULL_TABLE)


@pytest.fixture(scope="module")
def full(published) -> RunsReport:
    return report_of(published)


def of(report, source):
    return report.scores(lambda row: row.run.source_id == source)


@pytest.mark.parametrize("source", STEP_TIME)
def test_step_times_of_the_extract_are_predicted_within_their_bound(extract, source):
    assert of(extract, source).time.median < 1.6 * STEP_TIME[source]


@pytest.mark.parametrize("source", STEP_TIME)
def test_step_times_of_all_published_runs_are_predicted_within_their_bound(full, source):
    one = of(full, source).time
    assert one.n >= 4
    assert one.median < STEP_TIME[source]


@pytest.mark.parametrize("source", MEMORY)
def test_peak_memory_of_all_published_runs_is_predicted_within_its_bound(full, source):
    assert of(full, source).memory.median < MEMORY[source]


@pytest.mark.parametrize("source", ["simumax-b200", "torchtitan-2024-12", "fms-acceleration-a100"])
def test_peak_memory_of_the_extract_is_predicted_within_its_bound(extract, source):
    assert of(extract, source).memory.median < 1.2 * MEMORY[source]


def test_a_constant_share_of_peak_is_five_times_as_far_off(full):
    rows = [row.run for row in full.rows if row.measured_time and row.run.stack not in UNTUNED]
    measured = np.array([run.measured_step_time for run in rows])
    groups, ids = [(run.accelerator, run.stack) for run in rows], [run.id for run in rows]
    constant = cross_rescaled(measured, np.array([constant_utilization_time(run) for run in rows]), groups, ids)
    own = full.scores(lambda row: row.run.stack not in UNTUNED).time
    assert score(measured, constant).median > 5 * own.median


def test_intervals_hold_most_of_the_step_times_and_not_all(full):
    assert 0.7 < full.scores().time_coverage < 0.95


def test_intervals_hold_most_of_the_memory_readings_and_not_all(full):
    assert 0.7 < full.scores().memory_coverage < 0.9


def test_hardly_a_run_that_ran_is_said_not_to_fit_and_hardly_one_that_ran_out_of_memory_to_fit(full):
    ran = full.outcomes()["ran"]
    assert ran["does_not_fit"] < 0.02 * sum(ran.values())
    known = [row for row in full.rows if row.run.oom and "nanotron" not in row.run.source_id and not row.made.skipped]
    assert sum(row.made.verdict is Verdict.FITS for row in known) <= 0.05 * len(known)


def test_nearly_every_complete_row_is_scored(published):
    assert sum(not run.skipped for run in published) > 0.99 * len(published)


def test_six_plans_of_one_model_on_one_node_are_ranked_as_they_were_measured():
    runs = [run for run in read_runs(EXTRACT) if run.id.startswith("flagperf") and run.accelerator == "a100-sxm-80gb"]
    plans = [run for run in runs if run.stack == "megatron-core" and run.measured_step_time]
    measured = [run.measured_step_time for run in plans]
    predicted = [one.step_time for one in predict(plans)]
    assert len(plans) == 6
    assert np.argsort(predicted).tolist() == np.argsort(measured).tolist()
