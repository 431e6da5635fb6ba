import json
import time

import pytest

from planner import Choices, ask, evaluate, link_traffic
from planner.cli.link_traffic import NAMES
from planner.spec.plan import Plan, Sharding
from planner.topology.describe import LINK_CLASSES

SMALL = ("explain", "llama-3.1-8b", "2xdgx-h100", "--fix", "tp=8,pp=1,cp=1,sharding=zero1,micro_batch_size=1")


def test_every_class_of_links_has_a_name_for_people():
    assert list(NAMES) == list(LINK_CLASSES)


def test_links_are_printed_from_the_network_inwards_within_100_columns(planner):
    out = planner(*SMALL, "--links", COLUMNS="100").stdout
    lines = out.splitlines()
    assert max(map(len, lines[:-1])) <= 100
    assert lines[-1].startswith("planner explain llama-3.1-8b 2xdgx-h100 ")
    named = [line.split("  ")[0] for line in lines if line.startswith(("NIC", "└", "  └"))]
    assert named[0].startswith("NIC: dp_shard")
    assert "GPU to switch (nvlink4)" in out
    assert "8 groups share the node's 8 NICs: 50.0 GB/s each" in out
    assert "Without traffic: leaf uplinks, CPU socket link." in out
    assert "Exposed communication" in out
    assert "Peak memory" not in out


def test_links_are_in_the_json_beside_the_derivation(planner):
    data = json.loads(planner(*SMALL, "--links", "--json").stdout)
    traffic, step = data["link_traffic"], data["prediction"]["step_time_s"]
    nic = next(each for each in traffic["classes"] if each["class"] == "nic")
    assert nic["busiest_gb"] == pytest.approx(sum(each["busiest_gb"] for each in nic["axes"].values()))
    assert nic["busy_s"] == pytest.approx(nic["busiest_gb"] / nic["capacity_gb_per_s"])
    assert nic["utilisation"] == pytest.approx(nic["busy_s"] / step)
    assert nic["loads_most"] == "dp_shard"
    sent = {each["group"]: each["sent_gb"] for each in data["volume"]["groups"]}
    assert {each["axis"]: each["sent_gb"] for each in traffic["axes"]} == pytest.approx(sent)
    shown = {each["communication"]: each for each in traffic["hiding"]}
    assert shown["tp"]["exposed_s"] == pytest.approx(data["prediction"]["time_breakdown_s"]["tp_exposed"])
    assert "time" in data
    assert "link_traffic" not in json.loads(planner(*SMALL, "--json").stdout)


def test_one_gpu_has_no_traffic(planner):
    out = planner("explain", "gpt2", "1xh100-sxm", "--links").stdout
    assert "nobody communicates" in out


def test_a_plan_on_16384_gpus_is_told_in_a_few_lines_within_a_second_of_processor_time():
    asked = ask("llama-3.1-405b", "2048xdgx-h100", Choices(global_batch_size="2048", seq_len=8192))
    plan = Plan(
        tp=8, pp=16, dp_shard=128, num_microbatches=16, virtual_stages=7, schedule=3, sharding=Sharding.ZERO1,
        sequence_parallel=1, first_stage_layers=7, last_stage_layers=7,
    )  # fmt: skip
    ranked = evaluate(asked, plan)
    started = time.process_time()
    traffic = link_traffic(ranked)
    assert time.process_time() - started < 2
    assert len(traffic.classes) < 10
    nic = next(each for each in traffic.classes if each.name == "nic")
    assert (nic.links, list(nic.by_axis)) == (16384, ["dp_shard", "pp"])
    assert traffic.as_dict()["classes"]
