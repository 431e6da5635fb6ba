import json
import re
from pathlib import Path

import pytest

LINE = ("budget", "llama-3.1-8b", "2xdgx-h100", "--tokens", "1T")
PAGE = (Path(__file__).parents[2] / "docs" / "budget.md").read_text(encoding="utf-8")


def answer(planner, *options):
    result = planner(*LINE, *options)
    assert result.exit_code == 0, result.stderr
    return result


def test_first_line_is_the_answer_and_last_line_the_question(planner):
    first, *_, last = answer(planner).stdout.splitlines()
    assert re.fullmatch(
        r"1\.00T tokens of llama-3\.1-8b on 2xdgx-h100 take [\d.]+ days, [\d,]+ GPU-hours, [\d.,]+ to [\d.,]+ USD; "
        r"with [\d.]+ failures a day and checkpoints every [\d.]+ minutes, [\d.]+ days\.",
        first.replace("M USD", "USD"),
    )
    assert last.startswith("planner budget llama-3.1-8b 2xdgx-h100 --seq-len 4096 ")
    assert "--mtbf-hours-per-gpu 50677" in last


def test_the_last_line_asks_the_same_again_and_assumes_nothing(planner):
    first = answer(planner, "--preemptions-per-day", "4", "--against", "roce-100x8").stdout
    again = planner(*first.splitlines()[-1].split()[1:])
    assert again.exit_code == 0, again.stderr
    assert again.stdout == first
    assert "assumed" not in again.stderr


def test_what_is_assumed_is_named_with_its_source_on_stderr(planner):
    remarks = answer(planner).stderr
    for part in ("419 unexpected interruptions in 54 days", "Uptime Institute", "CBRE", "43,000 USD"):
        assert part in remarks
    assert answer(planner, "--quiet").stderr == ""


def test_tables_have_the_parts_that_were_asked_for(planner):
    plain = answer(planner).stdout
    for part in ("without failures", "with failures", "Young", "Daly", "simulated: best", "owned", "rented"):
        assert part in plain
    assert "network:" not in plain
    assert "spot" not in plain
    more = answer(planner, "--against", "roce-100x8", "--preemptions-per-day", "4").stdout
    assert re.search(r"^network: ib-ndr400 takes .+ it may cost .+ USD more per GPU-hour", more, re.M)
    assert re.search(r"^spot is cheaper up to [\d,.]+ preemptions a day", more, re.M)


def test_without_a_price_there_is_no_money_but_everything_else(planner):
    result = planner("budget", "gpt2", "1xv100-sxm2-32gb", "--tokens", "1B")
    assert result.exit_code == 0
    assert "no price of v100-sxm2-32gb is known" in result.stderr
    assert "USD;" not in result.stdout.splitlines()[0]
    assert "MWh" in result.stdout


def keys(data):
    """Every key of an object, also inside."""
    for key, value in data.items():
        yield key
        yield from keys(value) if isinstance(value, dict) else ()


def test_every_key_of_the_json_is_documented(planner):
    options = ("--against", "roce-100x8", "--preemptions-per-day", "4", "--json", "--quiet")
    data = json.loads(answer(planner, *options).stdout)
    assert data["schema_version"] == 1
    own = {key: data[key] for key in ("answer", "predicted_days", "simulated_days", "power_kw_per_gpu", "pue")}
    parts = ("without_failures", "with_failures", "checkpoints", "ownership", "premium", "spot")
    named = [*own, "storage_gb_per_s", *parts, *(key for part in parts for key in keys(data[part]))]
    assert [key for key in named if f"`{key}`" not in PAGE] == []


def test_the_seed_changes_only_what_is_simulated(planner):
    one, two = (json.loads(answer(planner, "--json", "-q", "--seed", seed).stdout) for seed in ("1", "2"))
    assert one["checkpoints"]["simulated_goodput"] != two["checkpoints"]["simulated_goodput"]
    assert one["with_failures"] == two["with_failures"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tokens", "0"), "--tokens: must be 1 to 1e+24 tokens, not 0"),
        (("--usd-per-gpu-hour", "-2"), "--usd-per-gpu-hour: must be 0 to 1e+06, not -2"),
        (("--mtbf-hours-per-gpu", "0"), "--mtbf-hours-per-gpu: must be positive and finite, not 0"),
        (("--failures-per-day", "50000"), "the run makes no headway: it is stopped every 1.73 s"),
        (("--seed", "-1"), "Invalid value for '--seed'"),
    ],
)
def test_impossible_input_is_one_line_and_exit_code_2(planner, options, message):
    result = planner(*LINE, *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    *_, last = result.stderr.splitlines()
    assert message in last
    assert "Traceback" not in result.stderr


def test_a_model_that_fits_nowhere_is_exit_code_3(planner):
    assert planner("budget", "llama-3.1-405b", "1xrtx-4090", "--tokens", "1T").exit_code == 3
