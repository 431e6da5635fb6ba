"""A real run of the trainer on the processor, with its record given to the diagnosis."""

import json

from planner.answer.diagnosis.diagnose import diagnose
from planner.answer.diagnosis.records import Asked

from .conftest import write_plan


def test_a_run_on_the_processor_is_recognised_and_named(run, tmp_path):
    path = write_plan(tmp_path / "plan", {"dp_replicate": 2, "micro_batch_size": 2})
    found = run(path, steps=3)
    assert found.exits == [0, 0], found.errors
    record = tmp_path / "run.jsonl"
    judged = diagnose(Asked(files=(record, path)))
    assert [each.taken_for for each in judged.case.files] == [
        "a log of the planner's own trainer (4 figures)",
        "plan.json",
    ]
    assert judged.case.speed.measured > 0
    assert judged.verdict == "not on a GPU"
    assert "gloo" in judged.causes[0].evidence


def test_the_prediction_in_a_record_is_held_against_the_run(run, tmp_path):
    path = write_plan(tmp_path / "plan", {"micro_batch_size": 2})
    contents = json.loads(path.read_text())
    slow = {"step_time_s": 1000.0, "step_time_interval_s": [900.0, 1100.0], "tokens_per_s": 0.128}
    path.write_text(json.dumps(contents | {"prediction": slow}))
    found = run(path, steps=3)
    assert found.exits == [0], found.errors
    judged = diagnose(Asked(files=(tmp_path / "run.jsonl",)))
    assert judged.case.speed.expected == 0.128
    assert judged.case.speed.standing.name == "BETTER"
    assert judged.comparisons[0].basis == "the prediction in the run's record"
