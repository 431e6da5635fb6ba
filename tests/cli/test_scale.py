"""`planner scale`: the answer first, networks side by side, one line for what cannot be."""

import json

import pytest

LINE = ("scale", "llama-3.2-1b", "dgx-h100", "--gpus", "8..32", "--network", "tcp-10,ib-ndr400")


def test_networks_stand_side_by_side_under_the_answer(planner):
    result = planner(*LINE, "--tokens", "10B", "-q")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        "llama-3.2-1b on dgx-h100 nodes, strong scaling at 128 sequences = 524,288 tokens a step"
    )
    assert "tcp-10 keeps" in lines[0]
    assert "efficiency against one node of 8 GPUs" in lines[0]
    assert [line.split()[0] for line in lines if line.lstrip().startswith(("8 ", "16 ", "32 "))] == ["8", "16", "32"]
    assert any(line.startswith("efficiency: tokens/s per GPU over the") for line in lines)
    assert any("tokens per GPU and step" in line and line.startswith("tcp-10: ") for line in lines)
    assert planner(*lines[-1].split()[1:], "-q").stdout == result.stdout


def test_json_has_every_point_with_the_command_that_repeats_it(planner):
    data = json.loads(planner(*LINE, "--weak", "--json", "-q").stdout)
    assert data["schema_version"] == 1
    assert data["scaling"] == "weak"
    assert [each["network"] for each in data["networks"]] == ["tcp-10", "ib-ndr400"]
    point = data["networks"][0]["points"][1]
    best = json.loads(planner(*point["command"].split()[1:], "--json", "-q").stdout)["plans"][0]
    assert best["plan"] == point["plan"]
    assert best["tokens_per_s"] == point["tokens_per_s"]
    assert data["networks"][0]["crossover"]["gpus"] == 16


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["gpt2", "dgx-h101"], 2, "NODETYPE: unknown node type 'dgx-h101'"),
        (["gpt2", "dgx-h100", "--network", "tcp-11"], 2, "--network: unknown network 'tcp-11'"),
        (["gpt2", "dgx-h100", "--network", ","], 2, "--network: names no network"),
        (["gpt2", "dgx-h100", "--gpus", "9..15"], 2, "--gpus: no size in 9..15"),
        (["gpt2", "dgx-h100", "--weak", "--strong"], 2, "exclude each other"),
        (["gpt2", "dgx-h100", "--global-batch-size", "64", "--max-global-batch-size", "32"], 2, "the batch of 64"),
        (["gpt2", "dgx-h100", "--max-global-batch-size", "0"], 2, "--max-global-batch-size: must be a whole number"),
        (["llama-3.1-405b", "h100", "--gpus", "8..16"], 3, "none of"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_one_line_with_its_exit_code(planner, arguments, code, words):
    result = planner("scale", *arguments, "-q")
    assert result.exit_code == code, result.stderr
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
