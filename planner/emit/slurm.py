"""job.sbatch: a batch job of Slurm that starts the program once on every node."""

from __future__ import annotations

from collections.abc import Iterator

from planner.emit.commands import many_nodes_lines, one_node_lines
from planner.emit.header import header
from planner.emit.job import Files, Job, Launcher
from planner.emit.node_script import (
    FAIL,
    device_lines,
    gpu_lines,
    requirement_lines,
    start_lines,
    world_size_lines,
)
from planner.emit.quoting import comment, job_name
from planner.spec.plan_file import FILE_NAME

FILE = "job.sbatch"
WRITTEN_FOR = "Slurm 23.02 and later"


def files(job: Job) -> Files:
    """The batch script."""
    lines = [
        "#!/usr/bin/env bash",
        *header(job, WRITTEN_FOR),
        *requirement_lines(job),
        *comment(f"in its folder: sbatch {FILE} [arguments of the trainer]"),
        *_directives(job),
        "set -euo pipefail",
        FAIL,
        "",
        *_head(job),
        "",
        *comment("runs on every node, where its variables are filled in"),
        "on_node() {",
        *[f"    {line}" if line else "" for line in _on_node(job)],
        "}",
        "",
        *comment("srun does not take over the CPUs of the job by itself (Slurm 22.05 and later)"),
        'srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" --kill-on-bad-exit=1 \\',
        '    bash -c "$(declare -f fail on_node); on_node \\"\\$@\\"" on_node "$@"',
    ]
    return {FILE: "\n".join(lines) + "\n"}


def start(_job: Job, folder: str) -> str:
    """What is typed. The job begins in the folder that it is submitted from."""
    return f"cd {folder} && sbatch {FILE}"


def notes(_job: Job) -> Iterator[str]:
    """What a site may ask for."""
    yield "partition, account and time limit differ from site to site: fill them in, or give them to sbatch"


LAUNCHER = Launcher("slurm", WRITTEN_FOR, files, start, notes=notes)


def _directives(job: Job) -> list[str]:
    return [
        f"#SBATCH --job-name={job_name(job.contents.model.name)}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.gpus_per_node}",
        "#SBATCH --exclusive",
        "#SBATCH --output=%x-%j.out",
        *comment(f"where Slurm has no --gpus-per-node: --gres=gpu:{job.gpus_per_node}. Take one # away to use:"),
        "##SBATCH --partition=NAME",
        "##SBATCH --account=NAME",
        "##SBATCH --time=1-00:00:00",
    ]


def _head(job: Job) -> list[str]:
    """On the first node, before anything starts: is this the folder, is this the size, where do nodes meet."""
    return [
        f'[[ -e {FILE_NAME} ]] || fail "$PWD has no {FILE_NAME}: submit the job from the folder that holds it"',
        "nodes=$SLURM_NNODES",
        *world_size_lines(job),
        *(_meeting() if job.nodes > 1 else []),
    ]


def _meeting() -> list[str]:
    return [
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        '[[ -n ${hosts[0]:-} ]] || fail "scontrol names no host of $SLURM_JOB_NODELIST"',
        "HEAD=${hosts[0]}",
        *comment("a port of its own for each job, below those that Linux gives away by itself"),
        "PORT=$(( 10000 + SLURM_JOB_ID % 20000 ))",
        "export nodes HEAD PORT",
    ]


def _on_node(job: Job) -> list[str]:
    single = one_node_lines(job, job.gpus_per_node)
    return [
        "set -euo pipefail",
        *device_lines(job),
        *gpu_lines(job, job.gpus_per_node),
        *(single if job.nodes == 1 else ["NODE_RANK=$SLURM_NODEID", *many_nodes_lines(job)]),
        *start_lines(job),
    ]
