import json
import re

import pytest

EIGHT = ("fits", "llama-3.1-8b", "1xdgx-h100")


def test_ddp_of_an_8b_model_does_not_fit_in_80_gb_and_exits_5(planner):
    result = planner(*EIGHT, "--fix", "sharding=ddp")
    assert result.exit_code == 5
    first = result.stdout.splitlines()[0]
    assert first.startswith("Does not fit: llama-3.1-8b with DDP 8 peaks at 1")
    assert "too much; chance to fit 0%" in first
    assert "the largest item optimizer states (59.8 GiB)" in first
    assert result.stdout.splitlines()[-1].startswith("planner fits llama-3.1-8b 1xdgx-h100 ")


def test_the_dials_name_single_changes_that_fit(planner):
    data = json.loads(planner(*EIGHT, "--fix", "sharding=ddp", "--json").stdout)
    assert data["fits"] is False
    assert (data["memory_verdict"], data["dominant"]) == ("does_not_fit", "optimizer")
    dials = {dial["change"]: dial for dial in data["dials"]}
    assert dials["shard everything (FSDP)"]["memory_verdict"] == "fits"
    assert dials["shard the optimizer (ZeRO-1)"]["peak_memory_gib"] < data["peak_memory_gib"]
    assert dials["8-bit optimizer states"]["peak_memory_gib"] < data["peak_memory_gib"]
    assert dials["twice the tensor parallelism"]["options"] == "--fix tp=2"


def test_a_dial_gives_what_it_promised_when_it_is_turned(planner):
    fixed = "sharding=ddp,micro_batch_size=1,recompute=full"
    data = json.loads(planner(*EIGHT, "--fix", fixed, "--json").stdout)
    promised = next(dial for dial in data["dials"] if dial["options"] == "--optimizer adamw-8bit")
    turned = json.loads(planner(*EIGHT, "--fix", fixed, "--optimizer", "adamw-8bit", "--json").stdout)
    assert turned["peak_memory_gib"] == pytest.approx(promised["peak_memory_gib"])
    assert turned["memory_verdict"] == promised["memory_verdict"]


def test_fsdp_of_an_8b_model_fits(planner):
    result = planner(*EIGHT, "--fix", "sharding=zero3,micro_batch_size=1")
    assert result.exit_code == 0
    assert result.stdout.startswith("Fits: llama-3.1-8b with FSDP 8 peaks at ")
    assert "GiB to spare; chance to fit" in result.stdout


def test_peak_is_the_largest_of_all_moments_and_stages(planner):
    data = json.loads(planner(*EIGHT, "--fix", "pp=4,sharding=zero1,recompute=none", "--json").stdout)
    largest = max(value for moments in data["timeline_gib"].values() for value in moments.values())
    assert largest == pytest.approx(data["peak_memory_gib"])
    peak = data["memory_peak"]
    assert data["timeline_gib"][peak["role"]][peak["moment"]] == pytest.approx(largest)


def test_an_illegal_plan_is_a_usage_error(planner):
    result = planner(*EIGHT, "--fix", "tp=16")
    assert result.exit_code == 2
    assert "TP 16 does not divide 8 GPUs" in result.stderr


def test_what_hosts_cannot_hold_does_not_fit(planner, tmp_path):
    cluster = tmp_path / "small.toml"
    cluster.write_text('nodes = 1\nnode = { base = "dgx-h100", host_memory = "64 GiB" }\n')
    result = planner("fits", "llama-3.1-70b", cluster, "--fix", "sharding=zero3", "--offload", "optimizer")
    assert result.exit_code == 5, result.stderr
    assert result.stdout.startswith("Does not fit: hosts would hold ")
    assert " per GPU of the 8.0 GiB that they have" in result.stdout.splitlines()[0]


def test_a_plan_above_the_share_that_may_be_taken_is_not_said_to_leave_room(planner, tmp_path):
    peak = json.loads(planner(*EIGHT, "--fix", "sharding=ddp", "--json").stdout)["peak_memory_gib"]
    cluster = tmp_path / "large.toml"
    memory = f'memory = "{peak / 0.95:.1f} GiB", usable_memory = "{peak / 0.97:.1f} GiB"'
    cluster.write_text(f'nodes = 1\nnode = "dgx-h100"\naccelerator = {{ base = "h100", {memory} }}\n')
    result = planner("fits", "llama-3.1-8b", cluster, "--fix", "sharding=ddp,recompute=full,micro_batch_size=1")
    assert result.exit_code == 5, result.stdout
    assert "usable (over the 95% of it, " in result.stdout.splitlines()[0]
    assert "to spare" not in result.stdout.splitlines()[0]


def test_dials_show_the_speed_too_since_a_shorter_sequence_makes_a_smaller_step(planner):
    out = planner(*EIGHT, "--fix", "sharding=ddp", "--quiet").stdout
    assert re.search(r"^change +\(GiB\) +fits +step time +tokens/s +option$", out, re.M)
