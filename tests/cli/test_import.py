import json
import shlex

import pytest

ARGUMENTS = "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 64"
ON = ("--model", "llama-3.2-1b", "--cluster", "1xdgx-h100")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {ARGUMENTS} --seq-length 4096 --bf16\n")
    return path


def test_what_the_settings_will_do_is_told(planner, script):
    result = planner("import", "plan", script, *ON, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    does, lasts, fits, blank, again = result.stdout.splitlines()
    assert does.startswith("Train llama-3.2-1b on 1xdgx-h100 with tensor parallelism 2 with sequence parallelism")
    assert lasts.startswith("A step of 64 x 4,096 tokens takes ")
    assert fits.startswith("Fits: peak ")
    assert blank == ""
    assert again.startswith("planner fits llama-3.2-1b 1xdgx-h100 --seq-len 4096 --global-batch-size 64 ")


@pytest.mark.parametrize("more", ["", "--optimizer-cpu-offload --use-distributed-optimizer", "--tp-comm-overlap"])
def test_the_command_that_is_printed_judges_the_same_plan(more, planner, script):
    script.write_text(f"{script.read_text().strip()} {more}\n")
    printed = planner("import", "plan", script, *ON, "--quiet").stdout.splitlines()
    again = planner(*shlex.split(printed[-1])[1:], "--quiet")
    words = printed[0].removeprefix("Train llama-3.2-1b on 1xdgx-h100 with ")
    words = words.removesuffix(".")
    assert words in again.stdout


def test_what_was_taken_is_noted(planner, script):
    result = planner("import", "plan", script, "--model", "llama-3.2-1b", "--cluster", "2xdgx-h100")
    assert "note: the settings are for 8 processes, the cluster has 16 GPUs\n" in result.stderr


def test_without_a_model_what_the_file_tells_is_shown(planner, script):
    result = planner("import", "plan", script, "--cluster", "1xdgx-h100")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == f"{script}: Megatron-LM arguments."
    assert ["sequence_parallel", "true"] in [line.split() for line in result.stdout.splitlines()]
    assert "note: name --model for a prediction\n" in result.stderr


def test_json_has_a_version_and_the_plan(planner, script):
    data = json.loads(planner("import", "plan", script, *ON, "--json", "--quiet").stdout)
    assert data["schema_version"] == 1
    assert data["stack"] == "megatron-core"
    assert data["told"]["tp"] == 2
    assert data["plan"]["plan"]["tp"] == 2
    alone = json.loads(planner("import", "plan", script, "--json", "--quiet").stdout)
    assert (alone["told"], alone["plan"]) == (data["told"], None)


def test_the_plan_is_kept_and_judged_again(planner, script, tmp_path):
    folder = tmp_path / "kept"
    result = planner("import", "plan", script, *ON, "--emit", folder)
    assert result.exit_code == 0, result.stderr
    again = planner("fits", folder / "plan.json", "--quiet")
    assert again.exit_code == 0, again.stderr
    (folder / "plan.json").write_text("something else")
    assert planner("import", "plan", script, *ON, "--emit", folder).exit_code == 2
    assert planner("import", "plan", script, *ON, "--emit", folder, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("missing.sh", None, "cannot be read"),
        ("noise.bin", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("broken.json", b'{"zero_optimization": ', "broken.json"),
        ("broken.yaml", b"a: [1\nb", "broken.yaml"),
        ("empty.sh", b"", "empty.sh"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_4(name, data, reason, planner, tmp_path):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    result = planner("import", "plan", tmp_path / name, *ON)
    assert (result.exit_code, result.stdout) == (4, "")
    assert len(result.stderr.splitlines()) == 1
    assert reason in result.stderr


@pytest.mark.parametrize("options", [("--emit", "x"), ("--force",)])
def test_options_that_need_others(options, planner, script):
    assert planner("import", "plan", script, *options).exit_code == 2


def test_settings_that_do_not_suit_the_cluster_are_usage(planner, script):
    result = planner("import", "plan", script, "--model", "llama-3.2-1b", "--cluster", "1xrtx-4090")
    assert result.exit_code == 2
    assert "does not divide the cluster's 1 GPUs" in result.stderr
