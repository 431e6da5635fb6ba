"""trainjob.yaml: a TrainJob of Kubeflow Trainer v2, with its files in a ConfigMap, so that one apply is all.

Source of the fields: kubeflow/trainer v2.3.0 (2026-08-06), charts/kubeflow-trainer/templates/crd/
trainer.kubeflow.org_trainjobs.yaml; of the variables in the pods: pkg/runtime/framework/plugins/torch/torch.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from planner.emit.commands import many_nodes_lines, one_node_lines
from planner.emit.environment import VERBS
from planner.emit.header import header
from planner.emit.job import Files, Job, Launcher
from planner.emit.node_script import FAIL, device_lines, gpu_lines, start_lines, world_size_lines
from planner.emit.quoting import comment, job_name, shell_word, yaml_text

FILE = "trainjob.yaml"
WRITTEN_FOR = "Kubeflow Trainer 2.3 (trainer.kubeflow.org/v1alpha1)"
API = "trainer.kubeflow.org/v1alpha1"
IMAGES = {"nvidia": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"}
"""Vendor -> image with torch; that of the runtime torch-distributed (kubeflow/trainer v2.3.0, charts/.../runtimes)."""
RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Vendor -> the name of its device plugin."""
EFA = "vpc.amazonaws.com/efa"
MOUNT = "/plan"
SCRIPT = "run.sh"
LARGEST = 2**20
"""Bytes of a ConfigMap's data (Kubernetes documentation, ConfigMaps)."""
LARGEST_APPLIED = 2**18
"""Bytes of all annotations together; `kubectl apply` keeps the whole text of an object in one of them."""


def files(job: Job) -> Files:
    """The TrainJob, which people read, and the ConfigMap, for which its pods wait."""
    comments = [*header(job, WRITTEN_FOR), *[line for text in _hints(job) for line in comment(text)]]
    documents = [yaml_text(_train_job(job)), yaml_text(_config_map(job))]
    return {FILE: "\n".join(comments) + "\n---\n" + "---\n".join(documents)}


def start(job: Job, folder: str) -> str:
    """What is typed; a large ConfigMap is merged by the server."""
    size = len(json.dumps(_config_map(job)))
    return f"kubectl apply {'--server-side ' if size > LARGEST_APPLIED else ''}-f {folder}/{FILE}"


def refusals(job: Job) -> Iterator[str]:
    """What a TrainJob cannot do."""
    size = sum(len(text.encode("utf-8", "replace")) for text in _data(job).values())
    if size > LARGEST:
        yield f"its files have {size:,} bytes, and a ConfigMap of Kubernetes holds at most {LARGEST:,}"
    vendor = job.contents.cluster.accelerator.vendor
    if vendor not in RESOURCES:
        yield f"no device plugin of Kubernetes is known here for {vendor} accelerators"


def notes(job: Job) -> Iterator[str]:
    """What the cluster has to have."""
    yield "needs Kubeflow Trainer 2.3 with its runtime torch-distributed"
    if job.nodes > 1 and job.contents.cluster.node.fabric.kind in VERBS:
        yield "pods see the network's adapters only through a device plugin: add its resource to resourcesPerNode"


LAUNCHER = Launcher("kubernetes", WRITTEN_FOR, files, start, refusals, notes)


def _name(job: Job) -> str:
    return f"planner-{job_name(job.contents.model.name)}"


def _hints(job: Job) -> Iterator[str]:
    """What people change."""
    yield "spec.trainer.args of the TrainJob go to the trainer; results stay in the pod unless a volume is mounted"
    if job.nodes > 1 and job.contents.cluster.node.fabric.kind in VERBS:
        yield "add the resource of your RDMA device plugin to resourcesPerNode, such as rdma/hca: 1"
    if job.contents.cluster.accelerator.vendor not in IMAGES:
        yield "set spec.trainer.image to one with torch 2.13 for these accelerators"


def _data(job: Job) -> dict[str, str]:
    """Keys of the ConfigMap, which hold no slash, and their texts."""
    return {_data_key(path): text for path, text in {**job.files, SCRIPT: _script(job)}.items()}


def _data_key(path: str) -> str:
    return path.replace("/", "..")


def _config_map(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{_name(job)}-files"},
        "data": _data(job),
    }


def _train_job(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": {"name": _name(job)},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torch-distributed",
            },
            "trainer": _trainer(job),
            "runtimePatches": [{"manager": "planner/emit", "trainingRuntimeSpec": _patch(job)}],
        },
    }


def _trainer(job: Job) -> dict[str, Any]:
    """The script is a file, not text of `command`: in there Kubernetes would fill in `$(...)` by itself."""
    vendor = job.contents.cluster.accelerator.vendor
    image = {"image": IMAGES[vendor]} if vendor in IMAGES else {}
    return {
        **image,
        "numNodes": job.nodes,
        "numProcPerNode": job.gpus_per_node,
        "command": ["bash", f"{MOUNT}/{SCRIPT}"],
        "args": [],
        "resourcesPerNode": {"limits": _limits(job)},
    }


def _limits(job: Job) -> dict[str, int]:
    fabric = job.contents.cluster.node.fabric
    limits = {RESOURCES[job.contents.cluster.accelerator.vendor]: job.gpus_per_node}
    if job.nodes > 1 and fabric.kind == "efa" and fabric.nics_per_node:
        limits[EFA] = fabric.nics_per_node
    return limits


def _patch(job: Job) -> dict[str, Any]:
    """Mounts: the files, and shared memory, of which a pod has 64 MiB otherwise and through which ranks may talk."""
    keys = [{"key": _data_key(path), "path": path} for path in (*job.files, SCRIPT)]
    verbs = job.nodes > 1 and job.contents.cluster.node.fabric.kind in VERBS
    locked = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if verbs else {}
    pod = {
        "containers": [
            {
                "name": "node",
                **locked,
                "volumeMounts": [
                    {"name": "plan", "mountPath": MOUNT},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "plan", "configMap": {"name": f"{_name(job)}-files", "items": keys}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    nodes = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return {"template": {"spec": {"replicatedJobs": [nodes]}}}


def _script(job: Job) -> str:
    """What a pod runs: the files are copied, because a ConfigMap cannot be written to."""
    lines = [
        "#!/usr/bin/env bash",
        "set -euo pipefail",
        FAIL,
        "folder=$(mktemp -d)",
        f'cp -RL {MOUNT}/* "$folder"',
        'cd "$folder"',
        *_installation(job),
        *device_lines(job),
        "nodes=$PET_NNODES",
        *world_size_lines(job),
        *gpu_lines(job, job.gpus_per_node),
        *(one_node_lines(job, job.gpus_per_node) if job.nodes == 1 else _meeting(job)),
        *start_lines(job),
    ]
    return "\n".join(lines) + "\n"


def _meeting(job: Job) -> list[str]:
    return ["HEAD=$PET_MASTER_ADDR PORT=$PET_MASTER_PORT NODE_RANK=$PET_NODE_RANK", *many_nodes_lines(job)]


def _installation(job: Job) -> list[str]:
    needed = " ".join(shell_word(each) for each in job.program.requirements)
    return [f"python3 -m pip install --quiet {needed}"] if needed else []
