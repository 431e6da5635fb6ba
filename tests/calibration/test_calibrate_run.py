"""`planner calibrate run` on this machine, and what the planner makes of its profile."""

import json
import subprocess
import sys

import pytest

from calibration.record import Record

TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024,
    "max_position_embeddings": 256, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def planner(*arguments):
    command = [sys.executable, "-m", "planner", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A profile measured here in some twenty seconds."""
    path = tmp_path_factory.mktemp("calibration") / "here.json"
    done = planner("calibrate", "run", "--device", "cpu", "--minutes", 0.3, "--out", path)
    assert done.returncode == 0, done.stderr
    return path, done


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    return folder


def test_a_run_says_what_it_wrote_and_what_to_do_with_it(calibrated):
    path, done = calibrated
    assert f"measurements are in {path}" in done.stdout
    assert f"--profile {path}" in done.stdout


def test_the_first_measurements_are_the_most_valuable(calibrated):
    names = [entry.measurement.name for entry in Record.read(calibrated[0]).entries]
    assert names[:2] == ["copy", "gemm"]


def test_the_profile_answers_for_the_machine_that_was_measured(calibrated, model):
    path, _ = calibrated
    asked = ("--profile", path, "--precision", "fp32", "--global-batch-size", 8, "--seq-len", 128, "--json")
    done = planner("recommend", model, path.with_suffix(".toml"), *asked)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["plans"][0]["step_time_s"] > 0
    assert answer["cluster"]["gpus"] == 2
    assert answer["peak_tflops_per_gpu"] < 10


def test_a_file_must_be_json_by_name(tmp_path):
    done = planner("calibrate", "run", "--out", tmp_path / "profile.txt")
    assert done.returncode == 2
    assert done.stderr.strip() == "planner: --out: must end in .json, not profile.txt"


def test_a_profile_of_the_catalogue_is_not_written_over(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"schema_version": 1, "accelerator": "h100-sxm"}', encoding="utf-8")
    done = planner("calibrate", "run", "--device", "cpu", "--out", path)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
