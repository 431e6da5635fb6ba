import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from planner import Choices, SpecError, recommend
from planner.answer.emission import emission
from planner.answer.plan_files import plan_file_of
from planner.emit import kubernetes, pytorch

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "schemas" / "kubeflow-trainjob.json").read_text())


@pytest.fixture
def documents(text_of):
    """The TrainJob and the ConfigMap of a plan, checked against the schema."""

    def parsed(contents):
        found = list(yaml.safe_load_all(text_of(contents, "kubernetes", "trainjob.yaml")))
        for document in found:
            jsonschema.validate(document, SCHEMA)
        assert [document["kind"] for document in found] == ["TrainJob", "ConfigMap"]
        return found

    return parsed


def pod_of(job):
    patch = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    return patch["template"]["spec"]["template"]["spec"]


@pytest.fixture
def pod(bench, tmp_path, monkeypatch):
    """Runs what a pod runs, with the files mounted as the TrainJob says."""
    mount = tmp_path / "mount"
    monkeypatch.setattr(kubernetes, "MOUNT", str(mount))
    (bench.programs / "python3").write_text('#!/bin/sh\ncase $* in *pip*) echo pip "$@";; *) echo 8;; esac\n')
    (bench.programs / "python3").chmod(0o755)

    def run(contents, nodes=4, rank=2):
        job, files = yaml.safe_load_all(emission(contents, "kubernetes", tmp_path).files["trainjob.yaml"])
        for item in pod_of(job)["volumes"][0]["configMap"]["items"]:
            (mount / item["path"]).parent.mkdir(parents=True, exist_ok=True)
            (mount / item["path"]).write_text(files["data"][item["key"]])
        given = {"NNODES": str(nodes), "NODE_RANK": str(rank), "MASTER_ADDR": "head.svc", "MASTER_PORT": "29400"}
        (tmp_path / "tmp").mkdir()
        variables = {"TMPDIR": str(tmp_path / "tmp")} | {f"PET_{name}": value for name, value in given.items()}
        return bench(*job["spec"]["trainer"]["command"], *job["spec"]["trainer"]["args"], **variables)

    return run


def test_the_file_is_what_kubernetes_takes(documents, contents):
    job, _ = documents(contents)
    trainer = job["spec"]["trainer"]
    assert trainer["numNodes"] == contents.cluster.num_nodes
    assert trainer["numProcPerNode"] == contents.cluster.node.gpus_per_node
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == contents.cluster.node.gpus_per_node


def test_the_config_map_holds_every_file_and_is_small_enough_to_apply(documents, plan, tmp_path):
    contents = plan("128 nodes with InfiniBand")
    job, files = documents(contents)
    items = pod_of(job)["volumes"][0]["configMap"]["items"]
    assert pod_of(job)["volumes"][0]["configMap"]["name"] == files["metadata"]["name"]
    mounted = {item["path"]: files["data"][item["key"]] for item in items}
    made = emission(contents, "kubernetes", tmp_path)
    assert mounted.pop("run.sh").startswith("#!/usr/bin/env bash\n")
    assert mounted == {name: text for name, text in made.files.items() if name != "trainjob.yaml"}
    assert len(yaml.safe_dump(files)) < kubernetes.LARGEST_APPLIED
    assert made.start == f"kubectl apply -f {tmp_path}/trainjob.yaml"


def test_the_script_of_a_pod_is_right_for_bash(documents, contents, shell_problems):
    assert shell_problems(documents(contents)[1]["data"]["run.sh"]) == ""


def test_a_pod_starts_its_share_with_what_the_runtime_tells_it(pod, plan):
    result = pod(plan("four nodes with RoCE"))
    assert result.returncode == 0, result.stderr
    assert "pip -m pip install --quiet torch>=2.11" in result.stdout
    call = result.stdout.split("begin torchrun\n")[1].split("\0\n")
    assert call[:4] == ["--nnodes", "4", "--nproc-per-node", "8"]
    assert call[call.index("--rdzv-endpoint") + 1] == "head.svc:29400"
    assert call[call.index("--rdzv-conf") + 1] == "read_timeout=600,is_host=0"
    assert call[-4:-1] == ["-m", "trainer", "plan.json"]


def test_another_number_of_pods_than_planned_is_refused(pod, plan):
    result = pod(plan("four nodes with RoCE"), nodes=2)
    assert result.returncode == 1
    assert "the plan is for 32 processes (4 x 8), not for 2 nodes of 8" in result.stderr


def test_hostile_names_do_no_harm(pod, hostile, plan, documents, tmp_path):
    contents = hostile(plan("four nodes with RoCE"))
    _, files = documents(contents)
    assert json.loads(files["data"]["plan.json"])["model"]["name"] == contents.model.name
    assert pod(contents).returncode == 0
    assert list(tmp_path.rglob("pwned*")) == []


@pytest.mark.parametrize("case", ["two consumer cards", "four nodes with RoCE"])
def test_pods_have_shared_memory_and_may_lock_it_where_the_network_needs_it(documents, plan, case):
    pod = pod_of(documents(plan(case))[0])
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert ("securityContext" in pod["containers"][0]) == (case == "four nodes with RoCE")


def test_efa_adapters_are_asked_for(documents):
    contents = plan_file_of(recommend("llama-3.1-8b", "2xaws-p5", Choices(target="pytorch"), top=1).best)
    limits = documents(contents)[0]["spec"]["trainer"]["resourcesPerNode"]["limits"]
    assert limits == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}


def test_amd_accelerators_have_their_own_resource_and_no_image_of_nvidia(documents):
    contents = plan_file_of(recommend("llama-3.1-8b", "2xmi300x-8x", Choices(target="pytorch"), top=1).best)
    trainer = documents(contents)[0]["spec"]["trainer"]
    assert trainer["resourcesPerNode"]["limits"] == {"amd.com/gpu": 8}
    assert "image" not in trainer


@pytest.mark.parametrize(("size", "refused"), [(300_000, False), (1_100_000, True)])
def test_files_that_a_config_map_cannot_hold_are_refused(plan, tmp_path, monkeypatch, size, refused):
    large = replace(pytorch.TRAINER, files=lambda _: {"data.bin": "x" * size})
    monkeypatch.setattr(pytorch, "TRAINER", large)
    if refused:
        with pytest.raises(SpecError, match=r"kubernetes cannot start the plan: its files have 1,1\d\d,\d\d\d bytes"):
            emission(plan("two consumer cards"), "kubernetes", tmp_path)
    else:
        made = emission(plan("two consumer cards"), "kubernetes", tmp_path)
        assert made.start == f"kubectl apply --server-side -f {tmp_path}/trainjob.yaml"
