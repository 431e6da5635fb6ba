"""`planner validate` by its command line."""

import json

import pytest

HEADER = "id,gpu,n_gpus,layers,hidden,heads,vocab,seq_len,global_batch,sharding,stack,step_time_s,peak_mem_gib\n"
ROW = "one,H100,8,32,4096,32,128256,8192,64,zero3,pytorch,5.5,60\n"


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + ROW + ROW.replace("one", "two").replace("5.5,60", ","), encoding="utf-8")
    return path


def test_the_first_line_says_how_far_off_predictions_are(planner, runs):
    found = planner("validate", runs)
    assert found.exit_code == 0
    assert found.stdout.startswith("2 of 2 runs predicted; step time of 1 off by ")


def test_json_has_rows_summary_and_groups(planner, runs):
    report = json.loads(planner("validate", runs, "--json").stdout)
    assert [row["id"] for row in report["rows"]] == ["one", "two"]
    assert report["rows"][0]["predicted_step_time_s"] == report["rows"][1]["predicted_step_time_s"]
    assert report["summary"]["overall"]["step_time"]["n"] == 1
    assert report["groups"] == []


def test_a_profile_serves_the_rows_of_its_accelerator(planner, runs, tmp_path):
    rows = json.loads(planner("validate", runs, "--json").stdout)["rows"]
    other, own = (
        json.loads(planner("validate", runs, "--json", "--profile", name).stdout)["rows"]
        for name in ("a100-sxm-80gb/nanotron", "h100-sxm/nanotron")
    )
    assert other[0]["predicted_step_time_s"] == rows[0]["predicted_step_time_s"] != own[0]["predicted_step_time_s"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name one table"),
        (["--collectives", "RUNS", "RUNS"], 2, "name one table"),
        (["RUNS", "--calibrate", "half"], 2, "--calibrate is for --collectives"),
        (["--collectives", "RUNS", "--profile", "h100-sxm"], 2, "--profile is for training runs"),
        (["RUNS", "--profile", "h1000"], 2, "h1000"),
        (["absent.csv"], 4, "absent.csv"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(planner, runs, arguments, code, message):
    found = planner("validate", *(runs if each == "RUNS" else each for each in arguments))
    assert found.exit_code == code
    assert message in found.stderr


GEMM = "gpu,dtype,m,n,k,time_us\nH100,bf16,4096,4096,4096,166\nH100,bf16,8192,8192,8192,\n"


def test_timed_kernels_are_scored_in_a_sentence_and_a_table(planner, tmp_path):
    path = tmp_path / "gemm.csv"
    path.write_text(GEMM, encoding="utf-8")
    found = planner("validate", "--kernels", "gemm", path)
    assert found.exit_code == 0
    assert found.stdout.startswith("2 of 2 matrix products predicted, 1 of them measured: median error ")
    assert "precision" in found.stdout
    report = json.loads(planner("validate", "--kernels", "gemm", path, "--json").stdout)
    assert [row["k"] for row in report["rows"]] == [4096, 8192]
    assert report["summary"]["overall"]["n"] == 1


def test_a_malformed_table_of_kernels_is_one_line_and_exit_code_4(planner, tmp_path):
    path = tmp_path / "gemm.csv"
    path.write_text(GEMM.replace("166", "fast"), encoding="utf-8")
    found = planner("validate", "--kernels", "gemm", path)
    assert found.exit_code == 4
    assert "line 2: time_us should be a number" in found.stderr
    assert found.stderr.count("\n") == 1
