"""Accuracy says what `planner validate` says; claims are judged by planner; a profile is read or refused."""

from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from app.claims import CLAIMS
from tests.app.running import cli, commands, metric, opened, problems

PUBLISHED = Path(__file__).parents[2] / "app" / "published_runs.csv"
RUNS = Path(__file__).parents[1] / "data" / "runs.csv"


def test_published_runs_are_scored_as_validate_scores_them():
    app = opened("accuracy")
    assert problems(app) == []
    expected = cli(f"planner validate {PUBLISHED}")["summary"]
    overall = expected["overall"]
    assert metric(app, "Runs predicted") == str(expected["predicted"])
    assert metric(app, "Step time off by") == f"{100 * overall['step_time']['median']:.1f} %"
    assert metric(app, "Memory in interval") == f"{overall['memory']['coverage']:.0%}"
    table = app.dataframe[0].value
    assert table["step times"].sum() == overall["step_time"]["n"]


def test_the_published_runs_of_the_app_are_those_of_the_tests():
    assert PUBLISHED.read_bytes() == RUNS.read_bytes()


def test_own_runs_take_their_place():
    header, *rows = RUNS.read_text(encoding="utf-8").splitlines()
    app = opened("accuracy")
    app.file_uploader(key="runs_file").set_value([("mine.csv", "\n".join([header, *rows[:3]]).encode(), "text/csv")])
    app.run()
    assert problems(app) == []
    assert metric(app, "Runs predicted") == "3"
    assert commands(app)[0] == "planner validate mine.csv"


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00", b"{}"])
def test_a_table_that_is_none_is_one_sentence(content):
    app = opened("accuracy")
    app.file_uploader(key="runs_file").set_value([("mine.csv", content, "text/csv")])
    app.run()
    assert not app.exception
    assert len(app.error) == 1
    assert "planner-app-" not in app.error[0].value


def test_the_profile_behind_the_question_is_shown():
    app = opened("accuracy", accuracy_panel="profile", stack="megatron-core")
    assert problems(app) == []
    assert app.markdown[0].value.startswith("##### h100-sxm/megatron-core")


def test_a_file_that_is_no_profile_is_one_sentence():
    app = opened("accuracy", accuracy_panel="profile")
    app.file_uploader(key="profile_file").set_value([("mine.json", b'{"a": 1}', "application/json")])
    app.run()
    assert not app.exception
    assert len(app.error) == 1


def test_a_claim_turns_with_its_sliders():
    app = opened("accuracy", accuracy_panel="claims")
    assert "Does not hold" in app.warning[0].value
    app.select_slider(key="claim_pipeline_batches").set_value(60).run()
    assert problems(app) == []
    assert "Holds" in app.success[0].value
    assert app.query_params["claim_pipeline_batches"] == ["60"] or app.query_params["claim_pipeline_batches"] == "60"
    time = cli(commands(app)[0].replace("planner fits", "planner explain"))["prediction"]
    kept = 1 - time["time_breakdown_s"]["bubble"] / time["step_time_s"]
    assert f"keep {kept:.0%} of linear" in app.success[0].value


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_is_judged_at_both_ends_of_its_sliders(name):
    claim = CLAIMS[name]
    for end in (0, -1):
        assert claim.judge(**{each: dial.values[end] for each, dial in claim.dials.items()}).words
    assert all(dial.usual in dial.values for dial in claim.dials.values())


def test_a_log_stands_beside_its_prediction(tmp_path):
    import json

    import planner

    best = planner.recommend(
        "llama-3.1-8b", "1xdgx-h100", planner.Choices(stack="pytorch", fix="pp=1", global_batch_size=64), top=1
    ).best
    plan = planner.write_plan(best, tmp_path)
    lines = [{"event": "step", "step": n, "step_time_s": 2 * best.step_time, "tokens_per_s": 1.0} for n in range(1, 40)]
    log = "".join(json.dumps(line) + "\n" for line in lines).encode()
    app = opened("accuracy", accuracy_panel="logs")
    assert "No log yet" in app.info[0].value
    app.file_uploader(key="step_logs").set_value([("run.jsonl", log, "text/plain")])
    app.file_uploader(key="steps_plan").set_value(("plan.json", plan.read_bytes(), "application/json"))
    app.run()
    assert problems(app) == []
    assert app.dataframe[0].value["off (%)"].iloc[0] == pytest.approx(-50, abs=1)
    assert commands(app)[0] == "planner import steps run.jsonl --plan plan.json"


def test_a_log_without_steps_is_one_sentence():
    app = opened("accuracy", accuracy_panel="logs")
    app.file_uploader(key="step_logs").set_value([("run.log", b"nothing here", "text/plain")])
    app.run()
    assert not app.exception
    assert len(app.error) == 1
