"""Compare says what `planner compare` says for the command that it shows."""

import pytest

import planner

pytest.importorskip("streamlit")

from tests.app.running import cli, commands, opened, problems

SMALL = {"model": "llama-3.2-1b", "hardware": "dgx-h100", "count": 2}


@pytest.mark.parametrize(
    "link",
    [
        {},
        {"other_clusters": "2xdgx-a100"},
        {"other_networks": "ib-ndr400,tcp-100"},
        {"other_fixes": "tp=8; pp=2", "seq_len": 8192},
        {"other_models": "gpt2", "other_methods": "full,lora", "seq_len": 1024},
    ],
)
def test_sides_are_those_of_compare(link):
    app = opened("compare", **SMALL, **link)
    assert problems(app) == []
    expected = cli(commands(app)[0])
    assert app.markdown[0].value.replace("\\", "") == f"##### {expected['answer']}"
    assert list(app.dataframe[0].value.columns[1:]) == [side["label"] for side in expected["sides"]]
    assert len(app.dataframe[0].value) == len(expected["differences"])


def test_changes_are_those_of_what_if():
    app = opened("compare", **SMALL, mode="what_if", changes="nic=2x,memory=40GB,network=roce-100")
    assert problems(app) == []
    expected = cli(commands(app)[0])
    assert app.markdown[0].value.replace("\\", "") == f"##### {expected['answer']}"
    table = app.dataframe[0].value
    assert list(table["step time, best plan (s)"]) == [each["best_plan"]["step_time_s"] for each in expected["changes"]]


def test_a_change_that_cannot_be_is_one_sentence():
    app = opened("compare", **SMALL, mode="what_if", changes="nonsense=2x")
    assert not app.exception
    assert len(app.error) == 1


def test_a_plan_file_is_a_side(tmp_path):
    best = planner.recommend("llama-3.2-1b", "1xdgx-a100", top=1).best
    content = planner.write_plan(best, tmp_path).read_bytes()
    app = opened("compare", **SMALL)
    app.file_uploader(key="plan_files").set_value([("mine.json", content, "application/json")])
    app.run()
    assert problems(app) == []
    assert app.dataframe[0].value.columns[1].endswith("mine.json")
    assert "planner-app-" not in app.dataframe[0].value.columns[1]


def test_a_file_that_is_no_plan_is_one_sentence():
    app = opened("compare", **SMALL)
    app.file_uploader(key="plan_files").set_value([("mine.json", b"{}", "application/json")])
    app.run()
    assert not app.exception
    assert len(app.error) == 1
    assert "planner-app-" not in app.error[0].value
