"""`planner max`: the answer first, every value that was tried, one line for what cannot be."""

import json

import pytest


@pytest.mark.parametrize("solve", ["seq-len", "micro-batch", "params", "global-batch"])
def test_the_first_line_is_the_answer_and_the_last_asks_again(planner, solve):
    result = planner("max", "--solve", solve, "llama-3.2-1b", "2xrtx-4090", "--global-batch-size", 8, "-q")
    if solve == "global-batch":
        assert result.exit_code == 2
        return
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("llama-3.2-1b on 2xrtx-4090 (2 GPUs): the largest")
    assert "that fits has" in lines[0]
    assert any("largest" in line for line in lines[1:])
    assert any(line.startswith("tried: ") for line in lines)
    assert lines[-1] == f"planner max llama-3.2-1b 2xrtx-4090 --global-batch-size 8 --solve {solve}"


def test_json_has_every_value_with_its_plan(planner):
    data = json.loads(planner("max", "--solve", "seq-len", "gpt2", "1xrtx-3090", "--json", "-q").stdout)
    assert data["schema_version"] == 1
    fit = [point["value"] for point in data["points"] if point["fits"]]
    assert data["largest"] == max(fit)
    assert data["fastest"] in fit
    values = [point["value"] for point in data["points"]]
    assert values == sorted(set(values))
    too_long = next(point for point in data["points"] if point["value"] == 2**24)
    assert too_long["least_memory_gib"] > 24


def test_a_sequence_beyond_the_positions_of_the_model_is_noted(planner):
    result = planner("max", "--solve", "seq-len", "gpt2", "1xrtx-3090")
    assert "are longer than the 1,024 positions of gpt2" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["gpt2", "1xh100"], 2, "Missing option '--solve'"),
        (["gpt2", "1xh100", "--solve", "speed"], 2, "'speed' is not one of"),
        (["gpt2", "1xh100", "--solve", "seq-len", "--seq-len", "8"], 2, "--seq-len: is what --solve seq-len looks for"),
        (["gpt2", "0xh100", "--solve", "seq-len"], 2, "0xh100"),
        (["llama-3.1-405b", "1xdgx-h100", "--solve", "seq-len"], 3, "none of"),
        (["llama-3.1-405b", "1xdgx-h100", "--solve", "micro-batch"], 3, "none of"),
    ],
)
def test_what_cannot_be_answered_is_one_line_with_its_exit_code(planner, arguments, code, words):
    result = planner("max", *arguments, "-q")
    assert result.exit_code == code, result.stderr
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
