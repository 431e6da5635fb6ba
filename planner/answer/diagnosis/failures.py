"""Causes of runs that hang, do not start, or end with an error of the network or the hardware."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answer.diagnosis.commands import nccl_tests, transports
from planner.answer.diagnosis.records import Case, Cause, Strength
from planner.dumps.run_records import Sign
from planner.quantities import counted, format_seconds

RECORDER = (
    "TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE in older versions) with TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
    "records every rank's collectives; TORCH_DISTRIBUTED_DEBUG=DETAIL checks them"
)
EARLY = 5
"""Collectives by which a job that stops has not come past its start."""
SIMPLE: dict[str, tuple[str, str, str, float]] = {
    "desync": (
        "ranks call different collectives",
        "make every rank take the same branches: last batches of uneven data (drop_last, join), rank-0-only "
        f"evaluation, logging or checkpoints that hold a collective. {RECORDER}",
        "torchfrtrace --prefix nccl_trace_rank_ /tmp",
        0.95,
    ),
    "port_in_use": (
        "port in use",
        "another MASTER_PORT (--rdzv-endpoint host:29501) for each job on a node; end what is left of the last one",
        "ss -ltnp | grep 29500",
        0.9,
    ),
    "duplicate_gpu": (
        "two ranks on one GPU",
        "torch.cuda.set_device(LOCAL_RANK) before the first collective; as many processes per node as "
        "CUDA_VISIBLE_DEVICES has GPUs",
        "nvidia-smi; echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK",
        0.95,
    ),
    "hardware": (
        "hardware error",
        "take the node out (drain it) and let the GPU be tested; start again without it",
        "dmesg -T | grep -i -e xid -e nvrm; nvidia-smi -q -d ECC; dcgmi diag -r 3",
        1.0,
    ),
    "version_mismatch": (
        "NCCL versions differ",
        "the same container or environment on all nodes",
        "python -c 'import torch; print(torch.cuda.nccl.version())'  # on each node",
        0.9,
    ),
    "locked_memory": (
        "locked memory limited",
        "ulimit -l unlimited (docker run --ulimit memlock=-1, LimitMEMLOCK=infinity of the slurmd service)",
        "srun -N2 bash -c 'ulimit -l'",
        0.9,
    ),
    "nvls": (
        "NVLS failed",
        "NCCL_NVLS_ENABLE=0, or start nvidia-fabricmanager and let the container use /dev/nvidia-caps-imex-channels",
        "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 -i fabric",
        0.8,
    ),
    "anomaly": (
        "debugging is on",
        "unset CUDA_LAUNCH_BLOCKING and TORCH_DISTRIBUTED_DEBUG, anomaly detection off",
        "env | grep -e CUDA_LAUNCH -e TORCH_",
        0.4,
    ),
}
"""Kind of sign -> the cause that it is by itself, what to set, what to run, and its weight."""
ONLY_SLOW = ("anomaly", "nvls")
"""Signs that end no run."""


def simple(case: Case) -> Iterator[Cause]:
    """Messages that name their cause."""
    for kind, (cause, setting, command, weight) in SIMPLE.items():
        for file, sign in case.signs(kind)[:1]:
            evidence = f"{file.path}, line {sign.line}: {sign.text}"
            yield Cause(cause, evidence, setting, command, Strength.SHOWN, limit=kind in ONLY_SLOW, gain=weight)


def timed_out(case: Case) -> Iterator[Cause]:
    """A collective that did not end: who waited, in what, and who did not come."""
    found = case.signs("watchdog")
    if not found:
        stuck = case.signs("heartbeat")[:1]
        for file, sign in stuck:
            evidence = f"{file.path}, line {sign.line}: {sign.text}"
            yield Cause(
                "a rank is stuck",
                evidence,
                RECORDER,
                "py-spy dump --pid PID  # on every rank",
                Strength.LIKELY,
                gain=0.5,
            )
        return
    sequences = [int(sign.figures["sequence"]) for _, sign in found if "sequence" in sign.figures]
    calls = {(sign.words.get("operation"), sign.figures.get("sequence")) for _, sign in found if sign.figures}
    file, first = found[0]
    ranks = sorted({sign.rank for _, sign in found if sign.rank is not None})
    evidence = f"{file.path}, line {first.line}: {_waited(first)}"
    if len(calls) > 1 and len(ranks) > 1:
        yield Cause(
            "ranks call different collectives",
            f"{evidence}; {_different(case)}",
            SIMPLE["desync"][1],
            SIMPLE["desync"][2],
            Strength.LIKELY,
            gain=0.9,
        )
        return
    if sequences and min(sequences) <= EARLY:
        yield Cause(
            "ranks do not reach each other",
            f"{evidence}; the job has not come past collective {min(sequences)}",
            "NCCL_SOCKET_IFNAME=eth0 (the interface that all nodes share; ^docker0,lo leaves others out), ports "
            "open between the nodes, NCCL_IB_HCA without unconnected ports",
            transports(case),
            Strength.LIKELY,
            gain=0.9,
        )
        return
    missing = _missing(case, ranks)
    yield Cause(
        "a rank fell behind",
        f"{evidence}; {missing}",
        "look at the rank that reports nothing first: it crashed, or sits in data loading, a checkpoint or "
        f"evaluation. {RECORDER}; init_process_group(timeout=...) only where a step is known to take longer",
        "py-spy dump --pid PID  # on the silent ranks; then torchfrtrace --prefix nccl_trace_rank_ /tmp",
        Strength.LIKELY,
        gain=0.7,
    )


def _waited(sign: Sign) -> str:
    """A watchdog's line in short."""
    if not {"timeout_ms", "sequence"} <= sign.figures.keys():
        return sign.text
    who = "a rank" if sign.rank is None else f"rank {sign.rank}"
    call = f"{sign.words.get('operation', 'a collective')} number {int(sign.figures['sequence'])}"
    return f"{who} waited {format_seconds(sign.figures['timeout_ms'] / 1e3)} in {call}"


def _different(case: Case) -> str:
    by_rank = {sign.rank: sign for _, sign in case.signs("watchdog") if sign.rank is not None}
    parts = [
        f"rank {rank} waits in {sign.words.get('operation', '?')} number {int(sign.figures.get('sequence', 0))}"
        for rank, sign in sorted(by_rank.items())
    ]
    return ", ".join(parts[:4])


def _missing(case: Case, ranks: list[int]) -> str:
    """Which ranks say nothing, where the number of ranks is known."""
    worlds = [log.world_size for _, log in case.logs if log.world_size] + [
        log.ranks for _, log in case.nccl if log.ranks
    ]
    worlds += [case.plan.question.cluster.world_size] if case.plan else []
    said = f"{counted(len(ranks), 'rank')} reported it ({_short(ranks)})" if ranks else "no rank is named"
    world = max(worlds, default=0)
    silent = [rank for rank in range(min(world, 100_000)) if rank not in set(ranks)]
    if not ranks or not silent or len(silent) > world // 2:
        return said
    return f"{said}; rank{'s' if len(silent) > 1 else ''} {_short(silent)} said nothing"


def _short(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def not_met(case: Case) -> Iterator[Cause]:
    """Ranks that never find each other."""
    for file, sign in case.signs("rendezvous", "socket_connect")[:1]:
        figures = sign.figures
        joined = (
            f"; {int(figures['joined'])} of {int(figures['expected'])} came"
            if {"joined", "expected"} <= figures.keys()
            else ""
        )
        container = sign.words.get("interface", "").startswith("172.17.")
        interface = "172.17.x.x is docker's own bridge: NCCL_SOCKET_IFNAME=^docker0,lo. " if container else ""
        yield Cause(
            "ranks do not reach each other",
            f"{file.path}, line {sign.line}: {sign.text}{joined}",
            f"{interface}MASTER_ADDR (--rdzv-endpoint) must be a node's name that all others resolve, the port "
            "open, --nnodes what really starts, one launcher per node; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME "
            "the interface that all nodes share",
            "getent hosts $MASTER_ADDR; nc -zv $MASTER_ADDR 29500  # from the other nodes",
            Strength.SHOWN,
            gain=0.85,
        )


def another_left(case: Case) -> Iterator[Cause]:
    """Connections that closed because another rank had ended."""
    for file, sign in case.signs("remote_closed")[:1]:
        yield Cause(
            "another rank left first",
            f"{file.path}, line {sign.line}: {sign.text}",
            "find the rank that failed first: its log has the reason (torchrun --tee 3 --log-dir logs keeps one "
            "for each)",
            "grep -l -i -e error -e killed logs/*/*/stderr.log",
            Strength.LIKELY,
            gain=0.3,
        )


def gloo(case: Case) -> Iterator[Cause]:
    """Collectives of GPUs on gloo, which goes through the host's memory and TCP."""
    for file, sign in case.signs("gloo"):
        beside = "[Gloo]" in sign.text  # which NCCL jobs print as well, for their groups of objects
        yield Cause(
            "gloo instead of NCCL",
            f"{file.path}, line {sign.line}: {sign.text}",
            "init_process_group('nccl') (or 'cpu:gloo,cuda:nccl'), --distributed-backend nccl",
            nccl_tests(case),
            Strength.POSSIBLE if beside else Strength.SHOWN,
            gain=0.2 if beside else 0.9,
        )
        return


RULES = (simple, timed_out, not_met, another_left, gloo)
FATAL = (
    "gpu_memory",
    "gpu_library_memory",
    "host_memory",
    "killed",
    "shared_memory",
    "watchdog",
    "heartbeat",
    "desync",
    "rendezvous",
    "port_in_use",
    "ib_completion",
    "ib_setup",
    "locked_memory",
    "socket_connect",
    "remote_closed",
    "duplicate_gpu",
    "version_mismatch",
    "hardware",
)
"""Signs of a run that ended or hangs."""
