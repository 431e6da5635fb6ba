"""`planner min-gpus`: the answer first, one line for what cannot be, JSON that repeats."""

import json

import pytest


def test_the_first_line_is_the_answer_and_the_last_asks_again(planner):
    result = planner("min-gpus", "llama-3.1-8b", "--gpu", "rtx-4090,h100", "--method", "lora", "-q")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("LoRA training of llama-3.1-8b fits on 2 rtx-4090, 0.68 to 1.38 USD per hour")
    assert lines[-1] == "planner min-gpus llama-3.1-8b --method lora --gpu rtx-4090,h100-sxm"
    assert planner(*lines[-1].split()[1:], "-q").stdout == result.stdout


def test_days_give_the_run_and_the_money(planner):
    line = ("min-gpus", "llama-3.2-1b", "--gpu", "h100-sxm", "--tokens", "100B", "--days", 8, "--usd-per-gpu-hour", 2)
    result = planner(*line, "--json", "-q")
    data = json.loads(result.stdout)
    (count,) = data["accelerators"]
    run = count["in_time"]["run"]
    assert data["schema_version"] == 1
    assert run["days"] <= 8
    assert run["usd_range"] == [pytest.approx(2 * run["gpu_hours"])] * 2
    assert count["fewest"]["gpus"] <= count["in_time"]["gpus"]
    asked = planner(*count["in_time"]["command"].split()[1:], "--json", "-q")
    best = json.loads(asked.stdout)["plans"][0]
    assert best["plan"] == count["in_time"]["plan"]
    assert best["step_time_s"] == count["in_time"]["step_time_s"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["gpt2", "--days", "3"], 2, "--days: needs --tokens"),
        (["gpt2", "--days", "-1", "--tokens", "1B"], 2, "--days: must be more than 0 days, not -1"),
        (["gpt2", "--days", "nan", "--tokens", "1B"], 2, "--days: must be more than 0"),
        (["gpt2", "--tokens", "0", "--gpu", "h100"], 2, "--tokens: must be 1 to"),
        (["gpt2", "--gpu", "h101"], 2, "--gpu: unknown accelerator 'h101'"),
        (["gpt2", "--gpu", ","], 2, "--gpu: names no accelerator"),
        (["gtp2"], 2, "unknown model 'gtp2'"),
        (["gpt2", "--precision", "fp8", "--gpu", "a100,rtx-3090"], 2, "no fp8 matrix peak"),
        (["llama-3.1-405b", "--fix", "tp=1,pp=1,cp=1,sharding=ddp", "--gpu", "t4,l4"], 3, "and on none of 1 others"),
    ],
)
def test_what_cannot_be_answered_is_one_line_with_its_exit_code(planner, arguments, code, words):
    result = planner("min-gpus", *arguments, "-q")
    assert result.exit_code == code, result.stderr
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
