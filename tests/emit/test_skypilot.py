import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from planner import SpecError
from planner.answer.emission import emission
from planner.catalogue.hardware import accelerator, cluster
from planner.emit.skypilot import ACCELERATORS

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "schemas" / "skypilot-task.json").read_text())


@pytest.fixture
def task(text_of):
    """The task of a plan, checked against the schema."""

    def parsed(contents):
        found = yaml.safe_load(text_of(contents, "skypilot", "task.yaml"))
        jsonschema.validate(found, SCHEMA)
        return found

    return parsed


@pytest.fixture
def node(bench, task, tmp_path):
    """Runs the `run` of a task as SkyPilot does on a node."""

    def run(contents, rank=1, nodes=4, arguments="--device cpu --steps 3"):
        (tmp_path / "run.sh").write_text(task(contents)["run"])
        sky = {
            "SKYPILOT_NUM_NODES": str(nodes),
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "\n".join(f"10.0.0.{i}" for i in range(1, nodes + 1)),
            "ARGUMENTS": arguments,
        }
        return bench("bash", tmp_path / "run.sh", **sky)

    return run


def test_the_task_is_what_skypilot_takes(task, contents):
    found = task(contents)
    name = ACCELERATORS[contents.cluster.accelerator.name]
    assert found["resources"]["accelerators"] == {name: contents.cluster.node.gpus_per_node}
    assert found["num_nodes"] == contents.cluster.num_nodes
    assert found["setup"] == "python3 -m pip install 'torch>=2.11'\n"


def test_skypilot_itself_takes_the_task(task, contents):
    schemas = pytest.importorskip("sky.utils.schemas")
    found = task(contents)
    jsonschema.validate(found, schemas.get_task_schema())
    jsonschema.validate(found["resources"], schemas.get_resources_schema())


def test_the_script_of_a_node_is_right_for_bash(task, contents, shell_problems):
    assert shell_problems(f"#!/bin/bash\n{task(contents)['run']}") == ""


@pytest.mark.parametrize("rank", [0, 3])
def test_a_node_starts_its_share_and_meets_the_others_at_the_first(node, plan, arguments, rank):
    call = arguments(node(plan("four nodes with RoCE"), rank=rank))
    assert call[:4] == ["--nnodes", "4", "--nproc-per-node", "8"]
    assert call[call.index("--rdzv-endpoint") + 1] == "10.0.0.1:29500"
    assert call[call.index("--rdzv-conf") + 1] == f"read_timeout=600,is_host={int(rank == 0)}"
    assert call[-7:] == ["-m", "trainer", "plan.json", "--device", "cpu", "--steps", "3"]


def test_arguments_are_words_and_never_commands(node, plan, arguments, tmp_path):
    call = arguments(node(plan("two consumer cards"), rank=0, nodes=1, arguments="--device cpu $(touch pwned) *"))
    assert call[-4:] == ["cpu", "$(touch", "pwned)", "*"]
    assert list(tmp_path.rglob("pwned*")) == []


def test_another_number_of_nodes_than_planned_is_refused(node, plan):
    result = node(plan("four nodes with RoCE"), nodes=2)
    assert result.returncode == 1
    assert "the plan is for 32 processes (4 x 8), not for 2 nodes of 8" in result.stderr


def test_hostile_names_do_no_harm(node, hostile, plan, task, tmp_path):
    contents = hostile(plan("four nodes with RoCE"))
    assert node(contents).returncode == 0
    assert list(tmp_path.rglob("pwned*")) == []
    assert task(contents)["name"].isascii()


def test_an_accelerator_without_a_name_is_refused_in_words(plan, tmp_path):
    machines = cluster("2xrtx-4080")
    contents = replace(plan("two consumer cards"), cluster=machines)
    with pytest.raises(SpecError, match=r"skypilot cannot start the plan: SkyPilot's name of rtx-4080 is not known"):
        emission(contents, "skypilot", tmp_path)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_named_accelerator_is_in_the_catalogue(name):
    assert accelerator(name).name == name


def test_start_is_typed_in_its_folder_because_the_files_are_taken_from_there(plan, tmp_path):
    made = emission(plan("two consumer cards"), "skypilot", tmp_path / "a b")
    assert made.start == f"cd '{tmp_path / 'a b'}' && sky launch -c llama-3-2-1b task.yaml"
