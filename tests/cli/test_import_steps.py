"""`planner import steps`."""

import csv
import gzip
import json

import pytest

from planner.answer.plan_files import write_plan
from tests.answer.steps.samples import own_start, own_steps, planned
from tests.dumps.test_kineto import device_trace


@pytest.fixture
def run(planner):
    """Runs the command in a wide window."""
    return lambda *arguments: planner("import", "steps", *arguments, COLUMNS="220")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A plan.json, and the record of a run that took 8.41 s a step, with one checkpoint."""
    folder = tmp_path_factory.mktemp("files")
    path = write_plan(planned(), folder)
    record = folder / "mine.jsonl"
    seconds = [20.0, 9.0, 9.0, 9.0] + [8.41] * 45 + [30.0]
    record.write_text(own_start(path) + "\n" + own_steps(seconds))
    return path, record


def test_the_answer_comes_first_and_the_prediction_beside_it(run, files):
    result = run(files[1])
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert first == "1 run read: 8.41 s a step (median of 44 steps, spread 0.0 %), peak 61.3 GiB reserved."
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("mine"))
    assert "reserved" in line
    assert " to " in line
    assert "left out as they stand out: step 49: 30 s" in result.stderr


def test_the_rows_are_scored_by_validate(run, planner, files, tmp_path):
    path = tmp_path / "runs.csv"
    result = run(files[1], "--csv", path)
    assert f"Wrote 1 row to {path}." in result.stdout
    (row,) = csv.DictReader(path.open())
    assert (row["id"], row["gpu"], row["step_time_s"], row["memory_kind"]) == ("mine", "h100-sxm", "8.41", "reserved")
    scored = json.loads(planner("validate", path, "--json").stdout)
    assert scored["summary"]["predicted"] == 1
    assert scored["rows"][0]["measured_step_time_s"] == 8.41
    again = run(files[1], "--csv", path)
    assert again.exit_code == 0
    path.write_text("mine\n")
    assert run(files[1], "--csv", path).exit_code == 2
    assert run(files[1], "--csv", path, "--force").exit_code == 0


def test_what_a_step_of_a_trace_was_spent_on_is_shown(run, tmp_path):
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps(device_trace()).encode()))
    result = run(path)
    assert result.stdout.startswith("1 run read: 97.5 ms a step (median of 2 steps")
    words = {line.split("  ")[0]: line for line in result.stdout.splitlines()}
    assert "40 ms  41.0 %" in words["matrix products"]
    assert "20 ms  20.5 %" in words["exposed communication"]
    assert "the plan (--plan plan.json)" in result.stderr
    data = json.loads(run(path, "--json").stdout)
    assert data["runs"][0]["trace"]["seconds_by_collective"]["all_gather"] == pytest.approx(0.025)


def test_a_file_that_holds_no_step_is_one_plain_sentence(run, tmp_path):
    path = tmp_path / "no.log"
    path.write_text("nothing here\n")
    result = run(path)
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert "holds no step of a training run" in result.stderr


def test_json_has_base_units_and_what_is_missing(run, files, tmp_path):
    data = json.loads(run(files[1], "--json").stdout)
    (found,) = data["runs"]
    assert (found["steps_read"], found["steps_counted"], found["warm_up_steps"]) == (50, 44, 5)
    assert found["interval_s"][0] < found["predicted_step_time_s"] < found["interval_s"][1]
    assert found["missing"] == []
    assert found["row"]["n_gpus"] == 8


def test_force_without_a_file_is_said(run, files):
    assert run(files[1], "--force").exit_code == 2
