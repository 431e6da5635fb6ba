"""What runs teach: factors fitted to step times that the planner itself makes, and the files that are shipped."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.steps import campaigns, fitted, held_out, predicted, toml, unlearned
from planner.catalogue.learned import FACTORS, Learned, learned, read_learned
from planner.validate.runs import read_runs

EXTRACT = Path(__file__).parents[1] / "data" / "runs.csv"
FULL_TABLE = Path(__file__).parents[2] / "../shared/data/throughput.csv"


@pytest.fixture(scope="module")
def runs():
    """The runs of one pair, of several shapes."""
    return campaigns(read_runs(EXTRACT))["h100-sxm", "llm-foundry"]


def retimed(runs, factors):
    """The same runs as if they had taken what some factors say."""
    return [replace(run, measured_step_time=time) for run, time in zip(runs, predicted(runs, factors), strict=True)]


def test_runs_that_took_what_is_expected_teach_nothing(runs):
    start = Learned.of(unlearned(runs[0]))
    found = fitted(retimed(runs, start))
    for name in FACTORS:
        assert getattr(found, name) == pytest.approx(getattr(start, name), rel=0.05), name


def test_what_made_the_times_is_found_again(runs):
    start = Learned.of(unlearned(runs[0]))
    truth = replace(start, compute_scale=1.3, attention_scale=1.4)
    found = fitted(retimed(runs, truth))
    assert found.compute_scale == pytest.approx(1.3, rel=0.06)
    assert found.attention_scale == pytest.approx(1.4, rel=0.15)
    assert predicted(runs, found) == pytest.approx(predicted(runs, truth), rel=0.03)


def test_one_wild_run_hardly_moves_the_others(runs):
    start = Learned.of(unlearned(runs[0]))
    wild = retimed(runs, start)
    wild[0] = replace(wild[0], measured_step_time=20 * wild[0].measured_step_time)
    assert predicted(runs, fitted(wild))[1:] == pytest.approx(predicted(runs, start)[1:], rel=0.1)


def test_a_run_does_not_enter_its_own_held_out_prediction(runs):
    alone = held_out(runs)
    slow = [
        replace(run, measured_step_time=3 * run.measured_step_time) if row == 0 else run for row, run in enumerate(runs)
    ]
    assert held_out(slow)[0] == pytest.approx(alone[0])


def test_a_file_gives_back_what_was_written(tmp_path, runs):
    one = replace(Learned.of(unlearned(runs[0])), error=0.05, plan_error=0.02, runs=46, sources=("a", "b"))
    (tmp_path / "one.toml").write_text(toml(one))
    again = read_learned(tmp_path / "one.toml")
    assert again.sources == one.sources
    for name in (*FACTORS, "error", "runs"):
        assert getattr(again, name) == pytest.approx(getattr(one, name), rel=1e-3), name


@pytest.mark.skipif(not FULL_TABLE.exists(), reason="needs the full table of published runs")
@pytest.mark.parametrize("pair", [("a100-sxm-80gb", "paddle"), ("a100-sxm-80gb", "llm-foundry")])
def test_the_shipped_factors_are_what_the_runs_teach(pair):
    rows = campaigns(read_runs(FULL_TABLE))[pair]
    shipped = learned()[pair]
    times = predicted(rows, fitted(rows))
    assert shipped.runs == len(rows)
    assert np.abs(times / predicted(rows, shipped) - 1).max() < 0.02
