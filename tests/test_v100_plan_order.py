"""Plans measured on a hybrid cube mesh, put in order by the links of its own `nvidia-smi topo -m` and nothing else.

The step times are those of Megatron-LM on four hosts of eight V100-SXM2-16GB with one 100 Gb/s InfiniBand adapter each:
Oneflow-Inc/DLPerf, GPT models in half precision with full recomputation and dropout. Nothing is calibrated to them.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.catalogue.hardware import accelerator, node
from planner.dumps.node import node_of
from planner.dumps.reading import read_dump
from planner.spec.cluster import Cluster, Pool, Wiring
from planner.spec.plan import Recompute, Schedule
from planner.topology.group_links import group_links
from planner.topology.rings import ring_bandwidth

DATA = Path(__file__).parent / "data"
ROWS = [
    {key: float(value) if key == "step_time_s" else int(value) for key, value in row.items()}
    for row in csv.DictReader((DATA / "dlperf_v100.csv").open(encoding="utf-8"))
]


def plan_of(row):
    """The (dp, tp, pp) of a run."""
    return row["dp"], row["tp"], row["pp"]


@pytest.fixture(scope="module")
def host():
    """The node that the dump makes, with the adapter that the report names."""
    topology = read_dump(DATA / "nodes" / "dlperf-v100.txt").topology
    made = node_of(topology, accelerator("v100-sxm2-16gb"), usual=node("dgx-1-v100-16gb"), name="dlperf").node
    assert (made.wiring, made.fabric.nics_per_node, made.fabric.nic_bandwidth) == (Wiring.MESH, 1, 12.5e9)
    return made


@pytest.fixture(scope="module")
def flat(host):
    """The same host with one figure for all its links: 150 GB/s for each accelerator, whoever it talks to."""
    return replace(host, wiring=Wiring.SWITCH, link_pairs={})


def predicted(row, machine, folder):
    """The step time of a run in seconds."""
    sizes = {"n_layer": row["layers"], "n_embd": row["hidden"], "n_head": row["heads"], "n_inner": 4 * row["hidden"]}
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 51200, "n_positions": 2048}
    (folder / "config.json").write_text(json.dumps(config | sizes))
    dp, tp, pp = plan_of(row)
    cluster = Cluster("v100", (Pool(machine, dp * tp * pp // 8),))
    job = {"seq_len": 2048, "global_batch_size": row["global_batch"], "precision": "fp16", "attention": "math"}
    asked = planner.ask(str(folder / "config.json"), cluster, planner.Choices(stack="megatron-lm", **job))
    plan = planner.Plan(
        tp=tp,
        pp=pp,
        dp_replicate=dp,
        micro_batch_size=row["micro_batch"],
        num_microbatches=row["global_batch"] // row["micro_batch"] // dp,
        recompute=Recompute.FULL,
        schedule=Schedule.ONE_F_ONE_B if pp > 1 else Schedule.NONE,
    )
    return planner.evaluate(replace(asked, workload=replace(asked.workload, dropout=True)), plan).step_time


def fastest_first(rows, times):
    return [plan_of(row) for _, row in sorted(zip(times, rows, strict=True), key=lambda pair: pair[0])]


SETS = {
    "one box": [(8, 1, 1), (2, 4, 1), (4, 2, 1), (1, 8, 1)],
    "four boxes": [(2, 4, 4), (2, 8, 2), (1, 8, 4)],
}
"""Plans of one model and batch each, as measured from the fastest to the slowest."""


def rows_of(name):
    batch = {"one box": 16, "four boxes": 512}[name]
    return [row for row in ROWS if plan_of(row) in SETS[name] and row["global_batch"] == batch]


@pytest.mark.parametrize("name", SETS)
def test_plans_come_out_in_the_measured_order(host, tmp_path, name):
    rows = rows_of(name)
    assert fastest_first(rows, [row["step_time_s"] for row in rows]) == SETS[name]
    assert fastest_first(rows, [predicted(row, host, tmp_path) for row in rows]) == SETS[name]


def test_one_flat_figure_for_all_links_would_put_them_in_the_wrong_order(flat, tmp_path):
    rows = rows_of("one box")
    order = fastest_first(rows, [predicted(row, flat, tmp_path) for row in rows])
    assert order.index((4, 2, 1)) < order.index((2, 4, 1))


def test_step_times_are_met_without_calibration(host, tmp_path):
    inside = [row for row in ROWS if row["tp"] <= 8]
    errors = [abs(predicted(row, host, tmp_path) / row["step_time_s"] - 1) for row in inside]
    assert np.median(errors) < 0.08
    assert max(errors) < 0.22


def test_rings_of_the_machine_are_25_or_50_for_a_pair_100_for_a_quad_and_150_for_all_eight(host):
    """As NCCL's rings on a DGX-1.

    A group of four that is no quad of the mesh, such as every second accelerator, has a single ring each way.
    """

    def rings(*members):
        pairs = host.link_pairs
        return ring_bandwidth(tuple(tuple(pairs.get((min(i, j), max(i, j)), 0.0) for j in members) for i in members))

    assert [rings(0, 1), rings(0, 3), rings(*range(4)), rings(*range(8))] == pytest.approx([25e9, 50e9, 100e9, 150e9])
    assert rings(0, 2, 4, 6) == pytest.approx(50e9)
    inside = {
        tp: group_links(planner.Plan(tp=tp, dp_shard=8 // tp), Cluster("one", (Pool(host, 1),))).tp for tp in (2, 4, 8)
    }
    assert [float(inside[tp].local_bandwidth) for tp in (2, 4, 8)] == pytest.approx([25e9, 100e9, 150e9])
