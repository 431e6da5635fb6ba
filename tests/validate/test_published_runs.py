"""Published, measured runs against predictions. Bounds are what the model reaches today, with a margin."""

from pathlib import Path

import numpy as np
import pytest

from planner.validate.predict import predict
from planner.validate.runs import MeasuredRun, read_runs
from planner.validate.scores import score
from planner.validate.table import ScoredRuns, markdown, scored

EXTRACT = Path(__file__).parents[1] / "data" / "runs.csv"
FULL_TABLE = Path(__file__).parents[2] / "../shared/data/throughput.csv"
STEP_TIME = {
    "mosaic-llm-foundry": 0.13,
    "megatron-sc21": 0.08,
    "korthikanti-2022": 0.06,
    "megatron-bridge-perf": 0.16,
    "fms-acceleration-a100": 0.16,
    "bigscience-tr11-prequel": 0.26,
    "vtrain-single": 0.32,
    "flagperf": 0.2,
    "simumax-b200": 0.38,
    "torchtitan-2024-12": 0.28,
    "mlperf-training-v5.0": 0.26,
}
"""Source -> greatest median error of the step time, nothing fitted."""
MEMORY = {
    "simumax-b200": 0.03,
    "torchtitan-2024-12": 0.12,
    "fms-acceleration-a100": 0.14,
    "bigscience-tr11-prequel": 0.15,
    "nanotron-ultrascale": 0.16,
}


@pytest.fixture(scope="module")
def extract() -> ScoredRuns:
    runs = read_runs(EXTRACT)
    return scored(runs, predict(runs), held_out=False)


@pytest.fixture(scope="module")
def published() -> list[MeasuredRun]:
    if not FULL_TABLE.exists():
        pytest.skip("the full table of published runs is not here")
    return read_runs(FULL_TABLE)


@pytest.fixture(scope="module")
def full(published) -> ScoredRuns:
    return scored(published, predict(published))


@pytest.mark.parametrize("source", STEP_TIME)
def test_step_times_of_the_extract_are_predicted_within_their_bound(extract, source):
    assert extract.scores(extract.of_source(source))["predicted"].median < STEP_TIME[source]


@pytest.mark.parametrize("source", STEP_TIME)
def test_step_times_of_all_published_runs_are_predicted_within_their_bound(full, source):
    one = full.scores(full.of_source(source))["predicted"]
    assert one.n >= 4
    assert one.median < STEP_TIME[source]


@pytest.mark.parametrize("source", MEMORY)
def test_peak_memory_of_all_published_runs_is_predicted_within_its_bound(full, source):
    assert full.scores(full.of_source(source))["memory"].median < MEMORY[source]


@pytest.mark.parametrize("source", ["simumax-b200", "torchtitan-2024-12", "fms-acceleration-a100"])
def test_peak_memory_of_the_extract_is_predicted_within_its_bound(extract, source):
    assert extract.scores(extract.of_source(source))["memory"].median < MEMORY[source]


def test_one_factor_on_the_model_beats_one_factor_on_constant_utilisation(extract):
    kinds = extract.scores(extract.tuned())
    assert kinds["rescaled"].median < 0.6 * kinds["constant"].median
    assert kinds["rescaled"].p90 < kinds["constant"].p90


def test_on_held_out_halves_of_all_published_runs_too(full):
    kinds = full.scores(full.tuned())
    assert kinds["rescaled"].median < 0.6 * kinds["constant"].median
    assert kinds["rescaled"].p90 < kinds["constant"].p90


def test_nearly_every_complete_row_is_scored(published):
    complete = [run for run in published if run.complete]
    assert sum(not run.skipped for run in complete) > 0.99 * len(complete)


def test_six_plans_of_one_model_on_one_node_are_ranked_as_they_were_measured():
    runs = [run for run in read_runs(EXTRACT) if run.id.startswith("flagperf") and run.accelerator == "a100-sxm-80gb"]
    plans = [run for run in runs if run.stack == "megatron-core" and run.measured_step_time]
    measured = [run.measured_step_time for run in plans]
    predicted = [one.step_time for one in predict(plans)]
    assert len(plans) == 6
    assert np.argsort(predicted).tolist() == np.argsort(measured).tolist()


def test_the_table_names_every_scored_source(extract):
    text = markdown(extract)
    assert all(f"| {source} |" in text for source in STEP_TIME)
    assert f"| all | {score(extract.measured, extract.predicted).n} |" in text
