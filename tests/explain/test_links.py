"""The traffic of plans on links: against the volume of the estimate, and by hand."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.stacks import stack
from planner.estimate.records import Role
from planner.estimate.setting import Job
from planner.estimate.volume import communication_volume
from planner.explain.axis_bytes import axis_bytes
from planner.explain.links import traffic_on_links
from planner.search.enumerate import enumerate_plans
from planner.spec.plan import Plan, Schedule, Sharding
from planner.spec.workload import Workload
from planner.topology.placement import groups, layouts

GENERIC = stack()
TOPOLOGY = (Path(__file__).parents[2] / "docs" / "topology.md").read_text(encoding="utf-8")


def job(name, batch=64):
    return Job(model(name), Workload(batch, 4096), GENERIC)


def classes(asked, plan, machines):
    return {each.name: each for each in traffic_on_links(asked, plan, machines).classes}


@pytest.fixture(scope="session")
def candidates():
    """Some plans of each kind: a dense model and one of experts, on nodes with a NIC for each GPU and with fewer."""
    found = {}
    for name, machines in (("llama-3.1-8b", "4xdgx-h100"), ("mixtral-8x7b", "4xaws-p4d")):
        asked, hardware = job(name), cluster(machines)
        plans = enumerate_plans(
            asked.model, hardware, asked.workload, stack=GENERIC, fix={"recompute": 0, "micro_batch_size": 1}
        )
        found[name] = asked, hardware, plans
    return found


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b"])
@given(data=st.data())
@settings(max_examples=30)
def test_bytes_out_of_the_nics_are_what_the_volume_says_leaves_the_nodes(candidates, name, data):
    asked, hardware, plans = candidates[name]
    plan = plans.row(data.draw(st.integers(0, len(plans) - 1)))
    for axis, traffic in axis_bytes(asked, plan, hardware).items():
        nodes = next(tier for tier in traffic.loads.across if tier.place == "node")
        out = [column for column, (a, b) in enumerate(nodes.edges) if (a[0], b[0]) == ("nic", "leaf")]
        if (expected := leaving(asked, plan, axis, hardware.node.gpus_per_node)) is not None:
            np.testing.assert_allclose(nodes.load[:, out].sum(axis=1), expected, rtol=1e-9, err_msg=axis)


def leaving(asked, plan, axis, gpus):
    """Bytes that leave each node in an axis: of a ring what one rank sends, of an exchange what goes to other nodes.

    None of stages that share a node, of which some messages leave it and others do not.
    """
    volumes = {role: communication_volume(asked.model, plan, asked.workload, GENERIC, role=role) for role in Role}
    stages = groups(layouts(plan)["pp"])
    role = {rank: Role.MIDDLE for rank in range(plan.world_size)}
    role |= {rank: Role.LAST for rank in stages[:, -1].tolist()} | {rank: Role.FIRST for rank in stages[:, 0].tolist()}
    out = np.zeros(plan.world_size // gpus)
    for members in groups(layouts(plan)[axis]).tolist():
        here = Counter(rank // gpus for rank in members)
        if axis == "pp" and 1 < len(members) != len(here):
            return None
        for rank in members if axis == "pp" else members[:1]:
            sent = getattr(volumes[role[rank]], axis)
            for node, count in here.items() if axis != "pp" else [(rank // gpus, 1)]:
                away = (len(members) - count) / max(len(members) - 1, 1)
                out[node] += count * away * sent.all_to_all + (len(here) > 1) * (sent.total - sent.all_to_all)
    return out


def test_data_parallel_gradients_cross_the_network_by_all_nics():
    """8.03e9 gradients of 4 bytes around a ring of 16: 2 x 15/16 of them out of a node, an eighth over each NIC."""
    asked = job("llama-3.1-8b")
    found = classes(asked, Plan(dp_replicate=16, micro_batch_size=4), cluster("2xdgx-h100"))
    whole = 2 * 15 / 16 * 4 * asked.model.parameters
    assert found["nic"].busiest == pytest.approx(whole / 8)
    assert found["nic"].mean == pytest.approx(whole / 8)
    assert found["nic"].busy == pytest.approx(whole / 400e9)
    assert found["gpu_switch"].busiest == pytest.approx(whole * 7 / 8)
    assert [(level.links, level.example) for level in found["nic"].levels] == [(16, "node 0: nic 0 - leaf")]
    assert found["nic"].by_axis["dp_replicate"].ranks == 1
    assert not found["socket"].by_axis


def test_the_boundary_of_a_pipeline_shows_which_nics_are_busy():
    asked = job("llama-3.1-8b")
    plan = Plan(tp=4, pp=4, num_microbatches=64, schedule=Schedule.ONE_F_ONE_B, sequence_parallel=1)
    traffic = traffic_on_links(asked, plan, cluster("2xdgx-h100"))
    nic = next(each for each in traffic.classes if each.name == "nic")
    tensor = 64 * 4096 * 4096 * 2 / 4
    # Two stages a node: the activations or gradients of four of its GPUs go to the other node, and theirs come in.
    assert [(level.links, level.bytes) for level in nic.levels] == [(8, pytest.approx(tensor)), (8, 0)]
    assert nic.levels[0].example == "node 0: nic 4 - leaf"
    assert nic.mean == pytest.approx(tensor / 2)
    pp = next(each for each in traffic.axes if each.axis == "pp")
    assert (pp.link, pp.sent) == ("nic", pytest.approx(2 * tensor))
    assert pp.busy == pytest.approx(tensor / 50e9)


def test_two_gpus_that_share_a_nic_count_as_two():
    plan = Plan(tp=8, dp_shard=4, sharding=Sharding.ZERO1, num_microbatches=16)
    nic = classes(job("llama-3.1-8b"), plan, cluster("4xaws-p4d"))["nic"]
    assert nic.by_axis["dp_shard"].ranks == 2


def test_links_of_different_bandwidth_are_of_different_classes():
    plan = Plan(tp=8, num_microbatches=64)
    found = traffic_on_links(job("llama-3.1-8b"), plan, cluster("1xdgx-1-v100")).classes
    direct = [each for each in found if each.name == "gpu_gpu"]
    assert sorted((each.links, each.capacity) for each in direct) == [(8, 25e9), (8, 50e9)]
    assert direct[0].busy == pytest.approx(direct[1].busy)


def test_a_lone_gpu_loads_nothing():
    traffic = traffic_on_links(job("gpt2"), Plan(num_microbatches=64), cluster("1xh100-sxm"))
    assert traffic.axes == traffic.classes == ()


def test_equal_nodes_at_two_sites_are_one_class_and_the_line_between_them_another(tmp_path):
    path = tmp_path / "sites.toml"
    pool = '[[pools]]\nnodes = 1\nnode = "dgx-h100"\nsite = '
    path.write_text(f'{pool}"a"\n{pool}"b"\n[wan]\nbandwidth = "10 Gb/s"\nlatency = "8 ms"\n', encoding="utf-8")
    asked, plan = job("llama-3.1-8b"), Plan(tp=8, dp_replicate=2, num_microbatches=32)
    found = traffic_on_links(asked, plan, cluster(str(path))).classes
    by_name = {each.name: each for each in found}
    assert len(by_name) == len(found)
    assert by_name["nic"].links == 16
    assert [level.links for level in by_name["nic"].levels] == [16]
    sent = 2 * 1 / 2 * 4 * asked.model.parameters
    assert by_name["wan"].busiest == pytest.approx(sent, rel=1e-3)
    assert by_name["wan"].by_axis["dp_replicate"].ranks == 8


@pytest.mark.parametrize("code", re.findall(r"```python\n(.+?)```", TOPOLOGY, re.DOTALL))
def test_examples_of_the_topology_page_hold(code):
    exec(compile(code, "topology.md", "exec"), {})
