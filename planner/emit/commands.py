"""The command that starts a program's processes on a node: torchrun's or accelerate's, as bash.

All read the shell variables `nodes`, `HEAD`, `PORT` and, where the launcher knows it, `NODE_RANK`, and leave the words
of the command in the array `command`. Facts about torchrun: torch 2.13, torch/distributed/run.py and
torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py.
"""

from __future__ import annotations

from planner.emit.job import Job
from planner.emit.quoting import comment, job_name, shell_word
from planner.spec.codec import content_hash

RESTARTS = 3
WAIT = 600
"""Seconds that a node waits for the first one to be up; torch's own 60 are short for nodes that load an image."""
ACCELERATE_FILE = "accelerate.yaml"


def program_words(job: Job) -> str:
    """The program with its arguments, quoted, the caller's own arguments behind."""
    return f'{" ".join(shell_word(word) for word in job.program.words)} "$@"'


def one_node_lines(job: Job, processes: int) -> list[str]:
    """All processes on this machine: no other node is asked."""
    if job.program.starter == "accelerate":
        return [
            f"command=(accelerate launch --config_file {ACCELERATE_FILE} --num_machines 1 --machine_rank 0)",
            f'command+=(--num_processes {processes} --main_process_port "${{PORT:-29500}}")',
        ]
    return [
        *comment("no restarts: on one machine what ends a run (memory, data, a mistake) would end it again"),
        f'command=(torchrun --standalone --nproc-per-node {processes} --max-restarts "${{MAX_RESTARTS:-0}}")',
    ]


def many_nodes_lines(job: Job) -> list[str]:
    """This node's share of the processes; nodes meet at HEAD:PORT."""
    if job.program.starter == "accelerate":
        return [
            f'command=(accelerate launch --config_file {ACCELERATE_FILE} --num_machines "$nodes")',
            f'command+=(--num_processes {job.world_size} --machine_rank "$NODE_RANK")',
            'command+=(--main_process_ip "$HEAD" --main_process_port "$PORT")',
        ]
    return [
        *comment("restarts: a lost node or link ends all processes, and they begin again from their last checkpoint"),
        f'command=(torchrun --nnodes "$nodes" --nproc-per-node {job.gpus_per_node})',
        f'command+=(--max-restarts "${{MAX_RESTARTS:-{RESTARTS}}}")',
        f'command+=(--rdzv-backend c10d --rdzv-endpoint "$HEAD:$PORT" --rdzv-id {rendezvous_name(job)})',
        f"meeting=read_timeout={WAIT}",
        *comment("the node of rank 0 is the head by its rank, so that it need not recognise its own name"),
        '[[ -z ${NODE_RANK:-} ]] || meeting+=",is_host=$(( NODE_RANK == 0 ))"',
        'command+=(--rdzv-conf "$meeting")',
    ]


def rendezvous_name(job: Job) -> str:
    """The name that nodes of one run meet under: the model's, and the plan's hash."""
    return f"{job_name(job.contents.model.name)}-{content_hash(job.contents.plan)}"
