"""What is measured first, and what a decision changes about it."""

from dataclasses import replace

import pytest

from calibration.measurement_plan import usual_plan
from calibration.measurements import Machine
from calibration.sensitivity import influence, own_products, ranked
from planner.answer.choices import Choices
from planner.answer.question import ask
from planner.answer.recommend import answer

CPU = Machine(device="cpu", name="cpu", host="here", cores=4, processes=4, nodes=1, threads=1, memory=8e9, cache=1e6)
GPU = replace(CPU, device="cuda", name="NVIDIA H100 80GB HBM3", processes=8)


@pytest.fixture(scope="module")
def slow():
    """Two hosts of eight over 10 Gb/s."""
    return ask("llama-3.2-1b", "2xhgx-h100", Choices(network="tcp-10", global_batch_size=256))


@pytest.fixture(scope="module")
def alone():
    return ask("llama-3.2-1b", "1xh100-sxm", Choices(global_batch_size=8))


@pytest.mark.parametrize("machine", [CPU, GPU, replace(CPU, processes=1)], ids=["cpu", "cuda", "alone"])
def test_every_measurement_comes_once_and_bandwidth_first(machine):
    plan = usual_plan(machine)
    assert len({one.key for one in plan}) == len(plan)
    assert [one.name for one in plan[:2]] == ["copy", "gemm"]


def test_each_kind_is_begun_before_any_is_complete():
    names = [one.name for one in usual_plan(CPU)]
    begun = max(names.index(name) for name in ("gemm", "tiny_layer", "attention", "elementwise", "adamw", "all_reduce"))
    complete = [place for place, name in enumerate(names) if name == "gemm"][-1]
    assert begun < 30 < complete


def test_one_process_alone_measures_no_collectives():
    names = {one.name for one in usual_plan(replace(CPU, processes=1))}
    assert not names & {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "overlap"}


def test_groups_of_a_part_of_the_ranks_are_measured_near_and_far():
    groups = {
        (one.parameters["ranks"], one.parameters["stride"]) for one in usual_plan(GPU) if one.name == "all_gather"
    }
    assert groups == {(8, 1), (4, 1), (4, 2), (2, 1), (2, 4)}


def test_memory_and_graphs_are_measured_on_gpus_only():
    special = {"context", "allocator", "graph_operator"}
    assert special <= {one.name for one in usual_plan(GPU)}
    assert not special & {one.name for one in usual_plan(CPU)}


def test_a_gpu_without_bf16_is_measured_in_fp16():
    precisions = {one.parameters["dtype"] for one in usual_plan(replace(GPU, half="fp16")) if one.name == "gemm"}
    assert precisions == {"fp16", "tf32"}


def test_where_nobody_talks_collectives_decide_nothing(alone):
    plans = [row.plan for row in answer(alone).plans]
    found = influence(alone, plans)
    assert found["gemm"] > 0.01
    assert found["all_reduce"] == found["all_gather"] == found["send_recv"] == 0


def test_a_slow_network_makes_collectives_worth_measuring(slow, alone):
    plans = [row.plan for row in answer(slow).plans]
    found = influence(slow, plans)
    talk = max(found[name] for name in ("all_reduce", "all_gather", "reduce_scatter", "send_recv"))
    assert talk > 0.05
    first = [one.name for one in ranked(usual_plan(GPU), slow, GPU)[:6]]
    assert set(first) & {"all_reduce", "all_gather", "reduce_scatter", "send_recv"}
    assert not set(one.name for one in ranked(usual_plan(GPU), alone, GPU)[:6]) & {"all_reduce", "all_gather"}


def test_the_models_own_products_are_measured(alone):
    own = list(own_products(alone, [answer(alone).best.plan], GPU))
    assert own
    assert all(one.name == "gemm" and one.parameters["dtype"] == "bf16" for one in own)
    sides = {one.parameters[axis] for one in own for axis in ("m", "n", "k")}
    assert alone.model.hidden_size in sides
