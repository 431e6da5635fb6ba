"""The command line is an interface: its options are frozen here, and every one is documented."""

import json
from pathlib import Path

import click
import pytest

from planner.cli.main import COMMANDS, main

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")

QUESTION = [
    "--network", "--seq-len", "--global-batch-size", "--precision", "--state", "--optimizer", "--method", "--lora-rank",
    "--attention", "--offload", "--tokens", "--usd-per-gpu-hour", "--target", "--stack", "--profile", "--fix",
    "--objective", "--quiet", "--json",
]  # fmt: skip
FROZEN = {
    "recommend": ["MODEL", "CLUSTER", *QUESTION, "--top", "--explain", "--emit", "--force"],
    "fits": ["MODEL", "CLUSTER", *QUESTION],
    "min-gpus": ["MODEL", *QUESTION, "--gpu", "--days"],
    "scale": ["MODEL", *QUESTION, "NODETYPE", "--gpus", "--weak", "--strong", "--max-global-batch-size"],
    "mixed": ["MODEL", "CLUSTER", *QUESTION],
    "compare": ["SIDES", *QUESTION, "--what-if"],
    "max": ["MODEL", "CLUSTER", *QUESTION, "--solve"],
    "emit": ["PLAN", "--target", "--into", "--force", "--json"],
    "import nccl-tests": ["LOGS", "--csv", "--force", "--json"],
    "import plan": ["FILE", "--model", "--cluster", "--emit", "--force", "--quiet", "--json"],
    "import steps": ["FILES", "--plan", "--model", "--cluster", "--stack", "--csv", "--force", "--json"],
    "explain": ["MODEL", "CLUSTER", *QUESTION, "--links"],
    "simulate": [
        *("MODEL", "CLUSTER", *QUESTION, "--durations", "--schedule", "--balance", "--slow", "--jitter", "--seed"),
        *("--trace", "--memory"),
    ],
    "check": ["MODEL", "CLUSTER", *QUESTION],
    "validate": ["RUNS", "--collectives", "--calibrate", "--profile", "--kernels", "--json"],
    "diagnose": [
        *("FILES", "--plan", "--model", "--cluster", "--gpu", "--fix", "--seq-len", "--global-batch-size"),
        *("--measured-tps", "--measured-mem", "--quiet", "--json"),
    ],
    "budget": [
        *("MODEL", "CLUSTER", *QUESTION, "--power-kw-per-gpu", "--pue", "--power-price", "--buy"),
        *("--mtbf-hours-per-gpu", "--failures-per-day", "--checkpoint-gb-per-s", "--restart-minutes"),
        *("--preemptions-per-day", "--spot-discount", "--against", "--seed"),
    ],
    "feed": [
        *("MODEL", "CLUSTER", *QUESTION, "--storage-gb-per-s", "--sample-bytes", "--samples-per-s-per-worker"),
        *("--from-batch", "--learning-rate"),
    ],
    "pool": [
        *("JOBS", "CLUSTER", "--fabric", "--network", "--objective", "--restart-seconds", "--usd-per-gpu-hour"),
        *("--quiet", "--json"),
    ],
    "show": ["NAME", "--json"],
    "ls": ["KIND", "--json"],
    "topo show": [
        *("CLUSTER", "--network", "--tp", "--pp", "--cp", "--dp-replicate", "--rank-order"),
        *("--gpu", "--nodes", "--toml", "--force", "--json"),
    ],
    "topo check": ["FILES", "--gpu", "--json"],
}


def leaves(command, context, name=""):
    if isinstance(command, click.Group):
        names = COMMANDS if command is main else command.commands
        for each in names:
            yield from leaves(command.get_command(context, each), context, f"{name} {each}".strip())
    else:
        yield name, command


LEAVES = dict(leaves(main, click.Context(main)))


def spelled(parameter):
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.name.upper()


@pytest.mark.parametrize("name", LEAVES)
def test_options_neither_appear_nor_vanish_by_accident(name):
    assert [spelled(parameter) for parameter in LEAVES[name].params] == FROZEN[name]


def test_every_frozen_command_exists():
    assert LEAVES.keys() == FROZEN.keys()


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_and_option_is_documented(name):
    assert f"## {name}" in DOCS
    for parameter in LEAVES[name].params:
        if isinstance(parameter, click.Option):
            assert any(f"`{spelling}" in DOCS for spelling in parameter.opts), spelled(parameter)
            assert parameter.help, spelled(parameter)


@pytest.mark.parametrize("name", LEAVES)
def test_every_choice_of_an_option_is_documented(name):
    for parameter in LEAVES[name].params:
        if isinstance(parameter.type, click.Choice):
            assert [choice for choice in parameter.type.choices if choice not in DOCS] == []


def test_exit_codes_are_documented():
    for code in range(6):
        assert f"\n| {code} | " in DOCS


def test_choices_are_taken_whatever_their_case(planner):
    line = ("fits", "gpt2", "1xh100-sxm", "--precision", "BF16", "--optimizer", "AdamW", "--method", "LoRA", "-q")
    result = planner(*line, "--objective", "USD")
    assert result.exit_code == 0
    assert "--precision bf16 --state mixed --optimizer adamw --method lora" in result.stdout


def test_fix_may_be_given_several_times(planner):
    both = planner("fits", "llama-3.1-8b", "1xdgx-h100", "-q", "--fix", "tp=2", "--fix", "pp=2")
    assert both.stdout == planner("fits", "llama-3.1-8b", "1xdgx-h100", "-q", "--fix", "tp=2,pp=2").stdout
    twice = planner("fits", "llama-3.1-8b", "1xdgx-h100", "--fix", "tp=2", "--fix", "tp=4")
    assert twice.exit_code == 2
    assert "--fix: tp is given twice" in twice.stderr


def test_every_key_of_the_json_of_recommend_is_documented(planner):
    data = json.loads(planner("recommend", "gpt2", "1xh100-sxm", "--tokens", "1B", "--json", "--quiet").stdout)
    undocumented = [key for key in (*data, *data["plans"][0]) if f"`{key}`" not in DOCS]
    assert undocumented == []
