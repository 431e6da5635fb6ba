from pathlib import Path

import pytest

from planner.validate.predict import predict
from planner.validate.runs import read_runs

EXTRACT = Path(__file__).parents[1] / "data" / "runs.csv"


def test_every_row_gets_one_prediction_in_order():
    runs = read_runs(EXTRACT)
    made = predict(runs)
    assert [one.id for one in made] == [run.id for run in runs]
    assert all(one.skipped or (one.step_time > 0 and one.memory > 0 and one.level) for one in made)
    assert {run.skipped for run in runs} - {""} == {
        "seq_len is not stated",
        "the model's dimensions are not stated (layers, hidden, heads)",
    }


def test_rows_evaluated_together_come_out_as_they_do_alone():
    runs = [run for run in read_runs(EXTRACT) if run.source_id in ("nanotron-ultrascale", "vtrain-single")]
    together = predict(runs)
    alone = [predict([run])[0] for run in runs]
    assert [one.step_time for one in together] == pytest.approx([one.step_time for one in alone], rel=1e-12)
    assert [one.memory for one in together] == pytest.approx([one.memory for one in alone], rel=1e-12)


def test_predictions_do_not_change_when_the_measurements_are_blank(table):
    full = {"tokens_per_s_per_gpu": "9000", "samples_per_s": "18"}
    blank = {name: "" for name in (*full, "step_time_s", "peak_mem_gib", "oom")}
    with_figures, without = predict(read_runs(table(full))), predict(read_runs(table(blank)))
    assert with_figures[0].step_time == without[0].step_time
    assert with_figures[0].memory == without[0].memory


def test_what_is_allocated_is_less_than_what_is_reserved_and_that_less_than_the_device_shows(table):
    runs = read_runs(table(*({"id": kind, "memory_kind": kind} for kind in ("allocated", "reserved", "device"))))
    allocated, reserved, device = (one.memory for one in predict(runs))
    assert allocated < reserved < device


def test_a_precision_that_the_accelerator_lacks_is_one_rows_matter(table):
    lacking = {"gpu": "A100-SXM4-80GB", "intra": "nvlink3", "precision_compute": "fp8"}
    first, second = predict(read_runs(table(lacking, {})))
    assert "has no fp8 matrix units" in first.skipped
    assert second.step_time > 0


def test_the_interval_holds_the_prediction(table):
    (one,) = predict(read_runs(table({})))
    assert one.step_time_interval.low < one.step_time < one.step_time_interval.high
    assert one.memory_interval.low < one.memory < one.memory_interval.high
