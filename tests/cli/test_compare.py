"""`planner compare` on the command line."""

import json

import pytest


def test_the_first_line_is_the_answer_and_the_last_asks_again(planner):
    arguments = ["compare", "llama-3.2-1b", "2xdgx-h100", "--network", "ib-ndr400,tcp-10", "--fix", "pp=1"]
    result = planner(*arguments)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ib-ndr400 is faster than tcp-10: ")
    assert lines[-1] == "planner compare llama-3.2-1b 2xdgx-h100 --network ib-ndr400,tcp-10 --fix pp=1"
    again = planner(*lines[-1].split()[1:])
    assert again.stdout == result.stdout
    differing, same = result.stdout.split("the same: ")
    assert "step time" in differing
    assert "model llama-3.2-1b" in same.replace("\n", " ")


def test_each_fix_is_a_side(planner):
    result = planner("compare", "gpt2", "1xdgx-h100", "--fix", "tp=1", "--fix", "tp=2,pp=1", "--json", "-q")
    data = json.loads(result.stdout)
    assert [side["label"] for side in data["sides"]] == ["tp=1", "tp=2,pp=1"]
    assert [side["plan"]["tp"] for side in data["sides"]] == [1, 2]


def test_json_has_sides_differences_and_what_accounts_for_them(planner):
    result = planner("compare", "llama-3.2-1b", "1xdgx-h100", "1xdgx-a100", "--json")
    data = json.loads(result.stdout)
    assert data["schema_version"] == 1
    assert data["fastest"] == "1xdgx-h100"
    assert data["against_fastest"][0]["reason"]
    step = next(line for line in data["differences"] if line["key"] == "step_time_s")
    assert step["values"] == [side["step_time_s"] for side in data["sides"]]
    assert data["equal"]["precision"] == "bf16"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_narrow_window_is_respected(planner, width):
    for extra in (["--network", "ib-ndr400,tcp-10"], ["--what-if", "nic=2x,memory=0.5x"]):
        result = planner("compare", "gpt2", "2xdgx-h100", "-q", *extra, COLUMNS=str(width))
        assert result.exit_code == 0
        assert all(len(line) <= width for line in result.stdout.splitlines()[:-1])


def test_what_if_gives_the_same_plan_and_the_best_plan(planner):
    result = planner("compare", "llama-3.2-1b", "2xdgx-h100", "--what-if", "nic=2x,seq-len=2x")
    assert result.exit_code == 0
    assert result.stdout.startswith("llama-3.2-1b on 2xdgx-h100 takes ")
    assert result.stdout.splitlines()[-1].endswith("--what-if nic=2x,seq-len=2x")
    data = json.loads(planner("compare", "llama-3.2-1b", "2xdgx-h100", "--what-if", "nic=2x", "--json").stdout)
    (change,) = data["changes"]
    assert change["same_plan"]["plan"] == data["base"]["plan"]
    assert change["best_plan"]["step_time_ratio"] <= change["same_plan"]["step_time_ratio"]


def test_plan_files_are_sides_and_bases(planner, tmp_path):
    for name, fix in (("a", "tp=2"), ("b", "tp=1")):
        assert planner("recommend", "gpt2", "1xdgx-h100", "--fix", fix, "--emit", tmp_path / name).exit_code == 0
    result = planner("compare", tmp_path / "a", tmp_path / "b" / "plan.json")
    assert result.exit_code == 0
    assert "is faster than" in result.stdout.splitlines()[0]
    assert planner("compare", tmp_path / "a", "--what-if", "compute=2x").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["gpt2", "1xl40s"], 2, "1 side alone"),
        (["gpt2"], 2, "missing CLUSTER"),
        ([], 2, "Missing argument"),
        (["gpt2", "1xl40s", "2xl40s", "--what-if", "nic=2x"], 2, "--what-if changes one side, not 2"),
        (["gpt2", "1xl40s", "--what-if", "nic=fast"], 2, "write a factor such as 2x"),
        (["gpt2", "1xl40s", "--precision", "bf16,fp9"], 2, "unknown precision 'fp9'"),
        (["missing.json", "other.json"], 4, "missing.json: cannot be read"),
        (["llama-3.1-405b", "1xl40s", "2xl40s"], 3, "nothing fits on any side"),
        (["llama-3.1-405b", "1xl40s", "--what-if", "memory=2x"], 3, "the smallest needs"),
    ],
)
def test_errors_are_one_line_and_have_their_exit_code(planner, arguments, code, words):
    result = planner("compare", *arguments, "-q")
    assert result.exit_code == code
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
