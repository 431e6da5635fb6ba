"""Parts of the bash that runs on a node, whatever the launcher: checks, environment, the command itself."""

from __future__ import annotations

from planner.emit.commands import program_words
from planner.emit.environment import GPU_VENDORS, environment_lines
from planner.emit.job import Job
from planner.emit.quoting import comment, shell_word

FAIL = 'fail() { echo "launch: $*" >&2; exit 1; }'


def requirement_lines(job: Job) -> list[str]:
    """What has to be installed, as a comment."""
    needed = " ".join(shell_word(each) for each in job.program.requirements)
    return comment(f"needs: python3 -m pip install {needed}") if needed else []


def device_lines(job: Job) -> list[str]:
    """Sets `cpu` to 1 where the caller's arguments ask for a run on CPUs, which needs no GPU."""
    if not job.program.try_out:
        return ["cpu=0"]
    return ['cpu=0; case " $* " in *" --device cpu "* | *" --device=cpu "*) cpu=1 ;; esac']


def world_size_lines(job: Job) -> list[str]:
    """Ends the script unless `nodes` nodes make the number of processes that the plan is for."""
    of = f"{job.nodes} x {job.gpus_per_node}"
    return [
        f"if [[ ! $nodes =~ ^[1-9][0-9]*$ ]] || (( nodes * {job.gpus_per_node} != {job.world_size} )); then",
        f'    fail "the plan is for {job.world_size} processes ({of}), not for $nodes nodes of {job.gpus_per_node}"',
        "fi",
    ]


def gpu_lines(job: Job, processes: int) -> list[str]:
    """Ends the script where this machine has too few GPUs for its processes."""
    if job.contents.cluster.accelerator.vendor not in GPU_VENDORS:
        return []
    hint = f"; without GPUs: {' '.join(job.program.try_out)}" if job.program.try_out else ""
    return [
        "if (( ! cpu )); then",
        "    found=$(python3 -c 'import torch; print(torch.cuda.device_count())') || fail \"python3 has no torch\"",
        f'    (( found >= {processes} )) || fail "$HOSTNAME has $found GPUs, the plan wants {processes}{hint}"',
        "fi",
    ]


def start_lines(job: Job) -> list[str]:
    """The last lines: environment, binding, and the command in `command` with the program behind it."""
    return [*environment_lines(job), *_binding_lines(job), f'exec "${{command[@]}}" {program_words(job)}']


def _binding_lines(job: Job) -> list[str]:
    """Binds each process to the CPUs beside its GPU, on nodes of several sockets.

    Source: torch 2.13, torch/numa/binding.py: it asks the GPU for its NUMA node, and needs the program numactl.
    """
    gpus = job.contents.cluster.accelerator.vendor in GPU_VENDORS
    if job.contents.cluster.node.sockets < 2 or job.program.starter != "torchrun" or not gpus:
        return []
    return [
        *comment("each process on the CPUs of the socket that its GPU hangs on; torchrun does it by numactl"),
        "if (( ! cpu )) && command -v numactl > /dev/null; then command+=(--numa-binding node); fi",
    ]
