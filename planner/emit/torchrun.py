"""launch.sh: torchrun (or accelerate) started by hand, once on every node."""

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
from planner.emit.quoting import comment

FILE = "launch.sh"
WRITTEN_FOR = "torchrun of torch 2.13"
MOST_LOCAL = 64
"""Processes that LOCAL=1 starts at most: each takes some 0.4 GiB of memory before it does anything."""
PORT = 29500


def files(job: Job) -> Files:
    """The script, executable."""
    lines = [
        "#!/usr/bin/env bash",
        *header(job, WRITTEN_FOR),
        *requirement_lines(job),
        *[line for text in _usage(job) for line in comment(text)],
        "set -euo pipefail",
        'cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")"',
        FAIL,
        *device_lines(job),
        "",
        *(_single(job) if job.nodes == 1 else _several(job)),
        "",
        *start_lines(job),
    ]
    return {FILE: "\n".join(lines) + "\n"}


def start(job: Job, folder: str) -> str:
    """What is typed; of several nodes, on each."""
    prefix = "" if job.nodes == 1 else "HEAD=NAME-OF-THE-FIRST-NODE "
    rank = "NODE_RANK=0 " if _needs_rank(job) else ""
    return f"{prefix}{rank}{folder}/{FILE}"


def notes(job: Job) -> Iterator[str]:
    """What to know of several nodes."""
    if job.nodes > 1:
        yield f"start it on each of the {job.nodes} nodes, with the same HEAD; the folder has to be on all of them"
    if _needs_rank(job):
        yield f"NODE_RANK counts the nodes: 0 on the first, {job.nodes - 1} on the last"


LAUNCHER = Launcher("torchrun", WRITTEN_FOR, files, start, notes=notes)


def _needs_rank(job: Job) -> bool:
    return job.nodes > 1 and job.program.starter == "accelerate"


def _usage(job: Job) -> Iterator[str]:
    """How to call it, as comments."""
    if job.nodes > 1:
        rank = "NODE_RANK=<0, 1, ...> " if _needs_rank(job) else ""
        yield f"on every node: HEAD=<name of the first node> {rank}./{FILE} [arguments of the trainer]"
        optional = "" if rank else ", MAX_RESTARTS, NODE_RANK (from 0) where the head is not known as HEAD"
        yield f"more variables: PORT [{PORT}]{optional}"
        if job.program.elastic:
            yield f"NNODES=<least>:<most>: the replicas follow the nodes that are there; the plan is for {job.nodes}"
    if job.program.try_out:
        local = "LOCAL=1 " if job.nodes > 1 else ""
        yield f"try-out without GPUs: {local}./{FILE} {' '.join(job.program.try_out)}"


def _single(job: Job) -> list[str]:
    return [
        "nodes=${NNODES:-1}",
        *world_size_lines(job),
        *gpu_lines(job, job.gpus_per_node),
        *one_node_lines(job, job.gpus_per_node),
    ]


def _several(job: Job) -> list[str]:
    """All ranks on this machine, a number of nodes that may change, or the plan's nodes."""
    return [
        f"nodes=${{NNODES:-{job.nodes}}}",
        "if [[ ${LOCAL:-0} == 1 ]]; then",
        *_indented(_local(job)),
        "else",
        *_indented(_meeting(job)),
        "fi",
    ]


def _local(job: Job) -> list[str]:
    if job.world_size > MOST_LOCAL:
        why = f"LOCAL=1 would start {job.world_size} processes on this machine; it starts at most {MOST_LOCAL}"
        return [f'fail "{why}"']
    return [*gpu_lines(job, job.world_size), *one_node_lines(job, job.world_size)]


def _meeting(job: Job) -> list[str]:
    rank = ['[[ -n ${NODE_RANK:-} ]] || fail "NODE_RANK is not set: 0 on the first node, and so on"']
    return [
        '[[ -n ${HEAD:-} ]] || fail "HEAD is not set: the name of the first node, the same on every node"',
        *(rank if _needs_rank(job) else []),
        f"PORT=${{PORT:-{PORT}}}",
        "if [[ $nodes == *:* ]]; then",
        *_indented(_elastic(job)),
        "else",
        *_indented(world_size_lines(job)),
        "fi",
        *gpu_lines(job, job.gpus_per_node),
        *many_nodes_lines(job),
    ]


def _elastic(job: Job) -> list[str]:
    if not job.program.elastic:
        return [f'fail "{job.trainer.name} needs {job.nodes} nodes, not a range such as NNODES=$nodes"']
    return [
        '[[ $nodes =~ ^[0-9]+:[0-9]+$ ]] || fail "NNODES=$nodes is no range of nodes such as 2:4"',
        f'set -- {" ".join(job.program.elastic)} "$@"',
    ]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]
