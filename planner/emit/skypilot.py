"""task.yaml: a task of SkyPilot, which finds the nodes in some cloud and runs the program on each.

Source of the fields: skypilot 0.14.1, sky/utils/schemas.py (get_task_schema, resources) and sky/skylet/constants.py
(SKYPILOT_NUM_NODES, _NODE_RANK, _NODE_IPS).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.emit.commands import many_nodes_lines, one_node_lines
from planner.emit.header import header
from planner.emit.job import Files, Job, Launcher
from planner.emit.node_script import FAIL, device_lines, gpu_lines, start_lines, world_size_lines
from planner.emit.quoting import comment, job_name, shell_word, yaml_text

FILE = "task.yaml"
WRITTEN_FOR = "SkyPilot 0.14"
PORT = 29500
ACCELERATORS = {
    "a10": "A10",
    "a100-pcie-40gb": "A100",
    "a100-pcie-80gb": "A100-80GB",
    "a100-sxm-40gb": "A100",
    "a100-sxm-80gb": "A100-80GB",
    "a10g": "A10G",
    "a30": "A30",
    "a40": "A40",
    "b200-sxm": "B200",
    "b300-sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "gh200-96gb": "GH200",
    "h100-nvl": "H100-NVL",
    "h100-pcie-80gb": "H100",
    "h100-sxm": "H100",
    "h200-sxm": "H200",
    "l4": "L4",
    "l40": "L40",
    "l40s": "L40S",
    "mi300x": "MI300X",
    "rtx-3090": "RTX3090",
    "rtx-4090": "RTX4090",
    "rtx-5090": "RTX5090",
    "rtx-6000-ada": "RTX6000-Ada",
    "rtx-a6000": "RTXA6000",
    "t4": "T4",
    "v100-pcie-32gb": "V100-32GB",
    "v100-sxm2-16gb": "V100",
    "v100-sxm2-32gb": "V100-32GB",
}
"""Accelerator -> SkyPilot's name. Sources: skypilot 0.14.1, sky/utils/gpu_names.py; skypilot-org/skypilot-catalog
@001ca54, catalogs/v8/common/accelerators.csv."""


def files(job: Job) -> Files:
    """The task."""
    comments = [*header(job, WRITTEN_FOR), *comment(f"in its folder: sky launch {FILE}")]
    return {FILE: "\n".join(comments) + "\n" + yaml_text(_task(job))}


def start(job: Job, folder: str) -> str:
    """What is typed; `workdir` counts from the folder that it is typed in."""
    return f"cd {folder} && sky launch -c {job_name(job.contents.model.name)} {FILE}"


def refusals(job: Job) -> Iterator[str]:
    """Accelerators that no cloud offers under a name known here."""
    unknown = {pool.node.accelerator.name for pool in job.contents.cluster.pools} - ACCELERATORS.keys()
    if unknown:
        known = ", ".join(sorted(ACCELERATORS))
        yield f"SkyPilot's name of {', '.join(sorted(unknown))} is not known; known are {known}"
    if len(job.contents.cluster.pools) > 1:
        yield "a task of SkyPilot has nodes of one kind"


def notes(_job: Job) -> Iterator[str]:
    """What SkyPilot decides by itself."""
    yield "SkyPilot chooses cloud and machine by accelerator: name them under resources where the network matters"


LAUNCHER = Launcher("skypilot", WRITTEN_FOR, files, start, refusals, notes)


def _task(job: Job) -> dict[str, Any]:
    name = ACCELERATORS[job.contents.cluster.accelerator.name]
    setup = " ".join(shell_word(each) for each in job.program.requirements)
    return {
        "name": job_name(job.contents.model.name),
        "resources": {"accelerators": {name: job.gpus_per_node}},
        "num_nodes": job.nodes,
        "workdir": ".",
        **({"setup": f"python3 -m pip install {setup}\n"} if setup else {}),
        "envs": {"ARGUMENTS": ""},
        "run": "\n".join(_run(job)) + "\n",
    }


def _run(job: Job) -> list[str]:
    """The script of a node. SkyPilot hands on no arguments, so they come in a variable."""
    return [
        "set -euo pipefail",
        FAIL,
        *comment("arguments of the trainer: sky launch --env ARGUMENTS='--steps 100'"),
        'read -r -a arguments <<< "${ARGUMENTS:-}"',
        'set -- "${arguments[@]}"',
        *device_lines(job),
        "nodes=$SKYPILOT_NUM_NODES",
        *world_size_lines(job),
        *gpu_lines(job, job.gpus_per_node),
        *(one_node_lines(job, job.gpus_per_node) if job.nodes == 1 else _meeting(job)),
        *start_lines(job),
    ]


def _meeting(job: Job) -> list[str]:
    return [
        f'HEAD=$(head -n 1 <<< "$SKYPILOT_NODE_IPS") PORT=${{PORT:-{PORT}}} NODE_RANK=$SKYPILOT_NODE_RANK',
        *many_nodes_lines(job),
    ]
