"""Lines of a log that say what went wrong or how a run is set up: out of memory, hangs, errors of NCCL, fallbacks.

As torch 1.3 to 2.13, NCCL up to 2.30, transformers, DeepSpeed, the Linux kernel, Slurm and Kubernetes word them.
"""

from __future__ import annotations

import re
from collections import Counter, deque

from planner.dumps.run_records import Sign
from planner.dumps.text import lines, whole_number
from planner.dumps.training_words import SCALES

MOST = 64
"""Signs of one kind that are kept: all ranks say the same."""
LONGEST = 4096
SHOWN = 200
BEFORE = 80
"""Lines above an error in which its traceback is looked for."""
SIZE = r"(\d[\d.]{0,20}) ?(bytes|[KMGT]i?B)"

KINDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "gpu_memory": (
        "out of memory",
        ("out of memory", "Out of memory"),
        r"\b(?:CUDA|HIP|XPU) out of memory|RESOURCE_EXHAUSTED: Out of memory",
    ),
    "gpu_library_memory": (
        "gpu libraries out of memory",
        ("ALLOC_FAILED", "out of memory", "cudaErrorMemory"),
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUDA error: out of memory|cudaErrorMemoryAllocation"
        r"|(?:CUDA|Cuda) failure (?:2 )?'out of memory'",
    ),
    "allocator_retries": (
        "allocator retries",
        ("retries", "flushes"),
        r"\d+ CUDA memory allocation retries|memory pressure.*cache flushes",
    ),
    "shared_memory": (
        "shared memory too small",
        ("shm", "Bus error", "shared memory"),
        r"shared memory segment.*(?:/dev/shm|size)|No space left on device.*/dev/shm|/dev/shm.*No space left"
        r"|DataLoader worker.*Bus error|insufficient shared memory",
    ),
    "host_memory": (
        "host out of memory",
        ("oom", "Out of memory", "OOMKilled", "DefaultCPUAllocator", "Killed", "cudaHostAlloc", "MemoryError"),
        r"\boom[-_]kill|Out of memory: Kill|OOMKilled|Detected \d+ oom|DefaultCPUAllocator: (?:can't|not enough)"
        r"|DataLoader worker .{0,40}killed by signal: Killed|cudaHostAlloc.{0,60}out of memory|^MemoryError\b",
    ),
    "killed": (
        "killed",
        ("-9", "SIGKILL", "137", "Killed"),
        r"exitcode\s{0,4}: ?-9\b|exit(?: ?code)? -9\b|Signal 9 \(SIGKILL\)|SIGKILL|exit code 137\b"
        r"|^\S{0,40}:? ?(?:line \d+: +\d+ )?Killed\b",
    ),
    "watchdog": (
        "collective timed out",
        ("Watchdog", "milliseconds", "collective operation"),
        r"Watchdog caught collective operation timeout|ran for \d+ milliseconds before timing out"
        r"|collective operation timeout: Work",
    ),
    "heartbeat": ("watchdog stuck", ("eartbeat",), r"[Hh]eartbeat monitor timed out"),
    "desync": (
        "ranks call different collectives",
        ("ismatch", "desync", "running collective"),
        r"Detected mismatch between collectives|mismatched collective|Collective.{0,20}mismatch"
        r"|desync(?:hroni[sz]ed)? (?:debug|detected)"
        r"|is running collective: .{0,200}but Rank",
    ),
    "rendezvous": (
        "ranks do not meet",
        (
            "waiting for clients",
            "timed out",
            "Rendezvous",
            "DistNetwork",
            "wait timeout",
            "Socket Timeout",
            "DistStore",
        ),
        r"Timed out after \d+ seconds waiting for clients|client socket has timed out|RendezvousTimeoutError"
        r"|RendezvousConnectionError|DistNetworkError.{0,80}(?:refused|timed out)|wait timeout after \d+ ?ms"
        r"|Socket Timeout|DistStoreError",
    ),
    "port_in_use": (
        "port in use",
        ("EADDRINUSE", "Address already", "failed to listen"),
        r"EADDRINUSE|Address already in use|failed to listen on any local network address",
    ),
    "ib_completion": (
        "RDMA message lost",
        ("completion", "status=", "IBV_WC"),
        r"Got completion from peer.{0,160}status=\d+|NET/IB\s?: .{0,60}error.{0,20}status=\d+|IBV_WC_RETRY_EXC_ERR",
    ),
    "ib_setup": (
        "RDMA connection refused",
        ("ibv_modify_qp",),
        r"ibv_modify_qp failed|ibv_modify_qp.{0,60}(?:Invalid|timed out|No route)",
    ),
    "locked_memory": (
        "locked memory limited",
        ("ibv_", "MEMLOCK"),
        r"ibv_(?:reg_mr|create_qp|create_cq|reg_dmabuf_mr)\w* failed.{0,60}Cannot allocate memory|RLIMIT_MEMLOCK",
    ),
    "no_rdma_device": (
        "no RDMA device",
        ("NET/", "libibverbs"),
        r"NET/IB\s?: No (?:IB )?device|Failed to open libibverbs|NET/OFI.{0,80}(?:No eligible|no provider|failed)",
    ),
    "socket_connect": (
        "sockets do not connect",
        ("socketStartConnect", "Call to connect", "socket interface", "Connection refused"),
        r"socketStartConnect|Call to connect (?:returned|to).{0,80}(?:refused|timed out|No route)"
        r"|no socket interface found|Net : .{0,40}Connection refused",
    ),
    "remote_closed": (
        "another rank left",
        ("Connection closed", "ncclRemote", "remote process", "reset by peer"),
        r"Connection closed by (?:remote )?peer|ncclRemoteError|remote process (?:exited|has)|Connection reset by peer",
    ),
    "peer_access": (
        "no peer access",
        ("P2P", "peer access"),
        r"Could not enable P2P|P2P is (?:disabled|not supported)|peer access is not supported"
        r"|doesn't support faster communication broadband via P2P|disabling (?:P2P|peer)",
    ),
    "duplicate_gpu": ("two ranks on one GPU", ("Duplicate GPU",), r"Duplicate GPU detected"),
    "nvls": (
        "NVLS failed",
        ("NVLS",),
        r"NVLS.{0,80}(?:fail|error|unable|not enough)|(?:fail|error).{0,60}NVLS multicast",
    ),
    "version_mismatch": (
        "NCCL versions differ",
        ("ismatched NCCL", "ncclSystemError"),
        r"[Mm]ismatched NCCL version|ncclSystemError.*version",
    ),
    "hardware": (
        "hardware error",
        ("Xid", "fallen off", "ncorrectable", "uncorrectable", "ECC", "NVLink"),
        r"\bXid\b.{0,40}: ?(?:48|63|64|74|79|94|95|119|120|140)\b|fallen off the bus|uncorrectable (?:ECC|NVLink)"
        r"|double bit ECC|uncorrectable.{0,12}error encountered|NVLink.{0,12}(?:fatal|error)",
    ),
    "gloo": (
        "gloo",
        ("gloo", "Gloo"),
        r"\bbackend[\"']?\s{0,4}[:=.]{1,60}\s{0,4}[\"']?gloo\b|--(?:distributed[-_])?backend[ =]gloo\b"
        r"|\[Gloo\] Rank \d+ is connected|ProcessGroupGloo|ddp_backend[\"']?\s{0,4}[:=]\s{0,4}[\"']?gloo",
    ),
    "no_flash": (
        "attention without flash",
        ("eager", "lash", "unfused"),
        r"attn_implementation[\"']?\s{0,4}[:=]\s{0,4}[\"']?eager|not compiled with flash attention"
        r"|eager_attention_forward|[Ff]lash[ -_]?[Aa]tt\w{0,8}.{0,80}"
        r"(?:not installed|cannot be used|not available|unavailable|only supports Ampere)"
        r"|[Ff]alling back to eager attention|use_flash_attn[ .]{1,60}False|attention_backend[ .:=]{1,60}unfused",
    ),
    "offload": (
        "offload",
        ("offload", "CPUAdam", "cpu_adam"),
        r"offload_(?:optimizer|param)\w*[\"']?\s{0,4}[:=].{0,40}(?:cpu|nvme)|DeepSpeedCPUAdam|cpu_adam.{0,40}(?:loaded|op)"
        r"|cpu_offload[\"']?\s{0,4}[:=]\s{0,4}[Tt]rue"
        r"|fsdp_offload_params[\"']?\s{0,4}[:=]\s{0,4}[Tt]rue",
    ),
    "anomaly": (
        "debugging is on",
        ("LAUNCH_BLOCKING", "DISTRIBUTED_DEBUG", "nomaly"),
        r"CUDA_LAUNCH_BLOCKING ?= ?1|TORCH_DISTRIBUTED_DEBUG ?= ?DETAIL|[Aa]nomaly [Dd]etection has been enabled",
    ),
}
"""Kind of sign -> what it is, letters of which a line of it has one (found quicker than a pattern), and its pattern."""
PATTERNS = {kind: re.compile(pattern, re.ASCII) for kind, (_, _, pattern) in KINDS.items()}

FIGURES = {
    kind: tuple((name, re.compile(pattern, re.ASCII)) for name, pattern in rows)
    for kind, rows in {
        "gpu_memory": (
            ("tried", rf"[Tt]r(?:ied|ying) to allocate {SIZE}"),
            ("capacity", rf"(?:total capaci?ty of {SIZE}|{SIZE} total capaci?ty)"),
            ("free", rf"(?:of which {SIZE} is free|{SIZE} free)"),
            ("process", rf"this process has {SIZE} memory in use"),
            ("other", rf"Process \d+ has {SIZE} memory in use"),
            ("allocated", rf"(?:memory {SIZE} is allocated by PyTorch|{SIZE} already allocated)"),
            ("reserved", rf"{SIZE} (?:reserved in total|cached)"),
            ("unallocated", rf"{SIZE} is reserved by PyTorch but unallocated"),
            ("private", rf"{SIZE} allocated in private pools"),
        ),
        "host_memory": (("tried", rf"tried to allocate {SIZE}"),),
        "watchdog": (
            ("sequence", r"SeqNum=(\d+)"),
            ("elements", r"NumelIn=(\d+)"),
            ("timeout_ms", r"Timeout\(ms\)=(\d+)"),
        ),
        "ib_completion": (("status", r"status=(\d+)"),),
        "rendezvous": (("joined", r"(\d+)/\d+ clients joined"), ("expected", r"\d+/(\d+) clients joined")),
        "allocator_retries": (("retries", r"(\d+) CUDA memory allocation retries"),),
        "hardware": (("xid", r"\bXid\b.{0,40}: ?(\d+)\b"),),
    }.items()
}
"""Figures of a kind of sign; sizes in bytes."""
WORDS = {
    "watchdog": (("operation", re.compile(r"OpType=(\w+)", re.ASCII)),),
    "ib_completion": (("device", re.compile(r"\b((?:mlx5|bnxt_re|irdma|rocep?)\w{0,20}(?::\d+)?)\b", re.ASCII)),),
    "ib_setup": (("device", re.compile(r"\b((?:mlx5|bnxt_re|irdma|rocep?)\w{0,20}(?::\d+)?)\b", re.ASCII)),),
    "socket_connect": (("interface", re.compile(r"\b((?:172\.1[678]|10|192\.168)\.[\d.]{3,11})\b", re.ASCII)),),
}
MOMENTS = (
    (
        "optimizer step",
        r"\bin (?:_init_group|_multi_tensor_\w+|_fused_adam\w*|_single_tensor_\w+)\b|optim/(?:adam|sgd)|exp_avg",
    ),
    (
        "attention",
        r"\battn_weights\b|eager_attention_forward|\bbaddbmm\b|in core_attention|softmax\(.{0,40}(?:score|attn)",
    ),
    ("loss", r"cross_entropy|CrossEntropyLoss|\blogits\b|lm_head|\bin compute_loss"),
    ("backward", r"\.backward\(|run_backward|in backward\b"),
    (
        "loading",
        r"from_pretrained|load_state_dict|init_empty|materialize|\.to\(device|_load_pretrained|fully_shard\(|FullyShardedDataParallel\(",
    ),
    ("forward", r"\bin forward\b"),
)
"""Moment of a step, and what the innermost line of a traceback in it says; the first that matches is taken."""
_MOMENTS = tuple((name, re.compile(pattern, re.ASCII)) for name, pattern in MOMENTS)
RANK = re.compile(r"\[?\b[Rr]ank[ :]{0,2}(\d{1,6})\b", re.ASCII)


def read_signs(text: str) -> tuple[Sign, ...]:
    """Every sign in a text, in order; of each kind the first MOST.

    >>> [sign.kind for sign in read_signs("slurmstepd: error: Detected 1 oom_kill event in StepId=3.0")]
    ['host_memory']
    """
    found: list[Sign] = []
    counts: Counter[str] = Counter()
    above: deque[str] = deque(maxlen=BEFORE)
    for number, line in lines(text):
        line = line[:LONGEST]
        for kind in _kinds(line):
            counts[kind] += 1
            if counts[kind] <= MOST:
                found.append(_sign(kind, number, line, above))
        above.append(line)
    return tuple(found)


def _kinds(line: str) -> list[str]:
    """The kinds of a line; the memory of a GPU and of its libraries are one."""
    kinds = [
        kind
        for kind, (_, hints, _) in KINDS.items()
        if any(hint in line for hint in hints) and PATTERNS[kind].search(line)
    ]
    return [kind for kind in kinds if not (kind == "gpu_library_memory" and "gpu_memory" in kinds)]


def _sign(kind: str, number: int, line: str, above: deque[str]) -> Sign:
    rank = RANK.search(line)
    words = {name: match[1] for name, pattern in WORDS.get(kind, ()) if (match := pattern.search(line))}
    if kind in ("gpu_memory", "gpu_library_memory") and (moment := _moment(above)):
        words["moment"] = moment
    shown = " ".join(line.split())
    return Sign(
        kind=kind,
        line=number,
        text=shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}...",
        figures=_figures(kind, line),
        words=words,
        rank=whole_number(rank[1]) if rank else None,
    )


def _figures(kind: str, line: str) -> dict[str, float]:
    """The figures of a line; of several of one name (other processes) their sum, and how many."""
    figures: dict[str, float] = {}
    for name, pattern in FIGURES.get(kind, ()):
        found = [_size(match) for match in pattern.finditer(line)]
        if found:
            figures[name] = sum(found)
        if name == "other" and found:
            figures["processes"] = len(found)
    return figures


def _size(match: re.Match[str]) -> float:
    value, *unit = [group for group in match.groups() if group is not None]
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number * SCALES.get(unit[0], 1.0) if unit else number


def _moment(above: deque[str]) -> str:
    """When in a step an error came, by the innermost line of the traceback above it."""
    for line in reversed(above):
        for name, pattern in _MOMENTS:
            if pattern.search(line):
                return name
        if "Traceback" in line:
            break
    return ""
