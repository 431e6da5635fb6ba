"""The first page answers before any click, says what the command line says, and lives on after bad input."""

import json
from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from tests.app.running import at, cli, commands, metric, opened, problems

CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def same_as_the_command_line(app):
    """Every row of the ranking is that of the command that the page shows."""
    expected = cli(commands(app)[0])
    table = app.dataframe[0].value
    assert list(table["step time (s)"]) == [each["step_time_s"] for each in expected["plans"]]
    assert list(table["memory per GPU (GiB)"]) == [each["peak_memory_gib"] for each in expected["plans"]]
    assert list(table["plan"]) == [each["name"] for each in expected["plans"]]
    assert list(table["tp"]) == [each["plan"]["tp"] for each in expected["plans"]]
    assert [name.endswith("~") for name in table["#"]] == [each["tie"] for each in expected["plans"]]
    return expected


def test_defaults_answer_before_any_click_and_as_the_command_line():
    app = opened()
    assert problems(app) == []
    expected = same_as_the_command_line(app)
    assert metric(app, "Tokens/s") == f"{expected['plans'][0]['tokens_per_s']:,.0f}"
    assert metric(app, "MFU") == f"{100 * expected['plans'][0]['mfu']:.1f} %"
    assert app.markdown[0].value.startswith("##### Train llama-3.1-8b on 2xdgx-h100")
    assert app.query_params == {}


def test_controls_change_the_question_and_the_link_reproduces_the_view():
    app = opened()
    app.selectbox(key="model").select("llama-3.2-1b")
    app.selectbox(key="hardware").select("rtx-4090")
    app.selectbox(key="method").select("lora")
    app.text_input(key="fix").input("tp=1")
    app.run()
    assert problems(app) == []
    expected = same_as_the_command_line(app)
    assert expected["cluster"]["accelerator"] == "rtx-4090"
    assert expected["workload"]["method"] == "lora"
    link = {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}
    assert link == {"model": "llama-3.2-1b", "hardware": "rtx-4090", "method": "lora", "fix": "tp=1"}
    again = opened(**link)
    assert again.dataframe[0].value.equals(app.dataframe[0].value)
    assert commands(again) == commands(app)


def test_what_a_link_says_wrongly_is_named_and_left_out():
    app = opened(model="no-such-model", count="-3", color="red", seq_len="2048")
    assert problems(app) == []
    assert all(text in app.warning[0].value for text in ("no-such-model", "-3", "red"))
    assert "--seq-len 2048" in commands(app)[0]


def test_where_nothing_fits_the_page_says_why():
    app = opened(model="llama-3.1-405b", count=1)
    assert problems(app) == []
    assert app.subheader[0].value == "No plan fits"
    assert "none of" in app.warning[0].value
    assert len(app.dataframe[0].value) > 0


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [("batch", "12 apples", "unknown unit"), ("fix", "tp=banana", "tp"), ("tokens", "many", "--tokens")],
)
def test_wrong_input_is_one_sentence_and_the_page_lives_on(field, text, said):
    app = opened()
    app.text_input(key=field).input(text).run()
    assert not app.exception
    assert len(app.error) == 1
    assert said in app.error[0].value
    app.text_input(key=field).input("").run()
    assert problems(app) == []
    assert len(app.metric) > 0


def test_an_uploaded_config_is_planned_for_and_travels_in_the_link():
    app = opened()
    app.file_uploader(key="model_upload").upload("../../tiny model.json", json.dumps(CONFIG).encode())
    app.run()
    assert problems(app) == []
    assert "tiny-model" in app.markdown[0].value
    assert commands(app)[0].startswith("planner recommend tiny-model.json 2xdgx-h100")
    link = {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}
    again = opened(**link)
    assert again.dataframe[0].value.equals(app.dataframe[0].value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"hidden_size": -4}',
        b'{"a":' * 100_000,
        b'{"plan": {}, "schema_version": 1}',
    ],
)
def test_a_malformed_config_is_one_sentence_without_our_paths(content):
    app = opened()
    app.file_uploader(key="model_upload").upload("config.json", content)
    app.run()
    assert not app.exception
    assert len(app.error) == 1
    assert "planner-app-" not in app.error[0].value
    assert "\n" not in app.error[0].value
    assert len(app.metric) > 0


def test_a_broken_file_in_a_link_is_one_sentence():
    app = opened(model="own file", model_file="AAAA")
    assert not app.exception
    assert "cannot be read" in app.error[0].value


def test_a_cluster_file_is_planned_for():
    toml = b'nodes = 2\nnode = "dgx-h100"\n'
    app = opened()
    app.file_uploader(key="cluster_upload").upload("mine.toml", toml)
    app.run()
    assert problems(app) == []
    assert " mine.toml " in commands(app)[0]


def test_launch_files_are_those_of_emit():
    app = opened(model="llama-3.1-8b", target="megatron")
    app.selectbox(key="launch_trainer").select("megatron").run()
    assert problems(app) == []
    assert any("run" in block.value for block in app.code if not block.value.startswith("planner "))


def test_a_target_that_cannot_express_the_plan_says_so_and_offers_the_search():
    app = opened()
    app.selectbox(key="launch_trainer").select("accelerate").run()
    assert "accelerate cannot express the plan" in app.info[0].value
    app.button(key="launch_target").click().run()
    assert problems(app) == []
    assert "--target accelerate" in commands(app)[0]
    at(app)
    assert not app.info


def test_unequal_nodes_begin_with_uneven_work():
    mixed = Path(__file__).parents[2] / "docs" / "examples" / "cluster-mixed.toml"
    app = opened()
    app.file_uploader(key="cluster_upload").upload("cluster-mixed.toml", mixed.read_bytes())
    app.run()
    assert problems(app) == []
    expected = cli(commands(app)[1].replace("cluster-mixed.toml", str(mixed)))["mixed"]
    assert app.info[0].value.replace("\\", "").startswith(expected["answer"])
