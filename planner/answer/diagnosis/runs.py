"""Causes that a trainer's log shows by itself: another device, uneven steps, steps that grow, memory nearly full."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from planner.answer.diagnosis.commands import nccl_tests
from planner.answer.diagnosis.measured import on_host
from planner.answer.diagnosis.memory import ALLOCATOR
from planner.answer.diagnosis.records import Case, Cause, Strength
from planner.catalogue.hardware import accelerator
from planner.dumps.run_records import TrainingLog
from planner.errors import SpecError
from planner.quantities import GIB, format_bytes, format_seconds

UNEVEN, GROWING = 1.2, 1.15
"""Mean over median, and last quarter over first, from which steps are uneven, and growing."""
FEWEST = 8
"""Steps after warm-up from which either can be told."""
NEARLY_FULL = 0.95


def another_device(case: Case) -> Iterator[Cause]:
    """A run on the host's processor, or on another accelerator than the plan's."""
    for file, log in case.logs:
        if on_host(file):
            yield Cause(
                "not on a GPU",
                f"{file.path}: the run was on {log.device}, where ranks talk over gloo",
                "install a build of torch with CUDA or ROCm, pass the GPUs to the container, leave --device cpu out",
                "python -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)'; nvidia-smi",
                Strength.SHOWN,
                gain=1.0,
            )
            return
        planned = case.plan.question.cluster.accelerator.name if case.plan else ""
        found = _accelerator(log.device)
        if planned and found and not _alike(found, planned):
            yield Cause(
                "another accelerator than planned",
                f"{file.path}: the run was on {log.device}, the plan is for {planned}",
                "name the cluster that it ran on with --cluster",
                f"planner show {found}",
                Strength.SHOWN,
                gain=0.95,
            )
            return


def _accelerator(device: str) -> str:
    words = device.split()
    for count in range(len(words), 0, -1):
        try:
            return accelerator(" ".join(words[:count])).name
        except SpecError:
            continue
    return ""


def _alike(one: str, other: str) -> bool:
    """Whether two names are of one chip: logs do not always tell its memory or board."""
    return one.split("-")[:2] == other.split("-")[:2] or one.split("-")[0] == other.split("-")[0] != "rtx"


def _times(log: TrainingLog) -> tuple[float, ...]:
    """Step times after warm-up, or what is proportional to them."""
    for quantity in ("step_time", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s"):
        values = log.steady(quantity)
        if len(values) >= FEWEST:
            return values if quantity == "step_time" else tuple(1 / value for value in values)
    return ()


def uneven_steps(case: Case) -> Iterator[Cause]:
    """Single steps that take much longer than the others, or steps that grow."""
    for file, log in case.logs:
        times = _times(log)
        if not times:
            continue
        median, mean, quarter = statistics.median(times), statistics.fmean(times), max(len(times) // 4, 1)
        first, last = statistics.median(times[:quarter]), statistics.median(times[-quarter:])
        if last > GROWING * first:
            yield Cause(
                "steps grow as the run goes on",
                f"{file.path}: the last quarter's steps take {last / first:.2f} times as long as the first's",
                "look for clocks that fall with heat (nvidia-smi -q -d PERFORMANCE), tensors kept over steps (loss "
                "without .item()), growing caches and data that gets longer",
                "nvidia-smi --query-gpu=clocks.sm,temperature.gpu,clocks_throttle_reasons.active --format=csv -l 10",
                Strength.SHOWN,
                limit=True,
                gain=1 - first / last,
            )
        elif mean > UNEVEN * median:
            yield Cause(
                "uneven steps",
                f"{file.path}: single steps take up to {max(times) / median:.1f} times the median ({len(times)} "
                f"steps, the mean {mean / median:.2f} times the median)",
                "data loading (more workers, prefetching, pinned memory), checkpoints and evaluation between "
                "steps, Python's garbage collector (gc.freeze, gc.disable with collection every N steps), other "
                "jobs on the nodes",
                "py-spy record -o profile.svg --pid PID; iostat -x 5",
                Strength.SHOWN,
                limit=True,
                gain=1 - median / mean,
            )


def nearly_full(case: Case) -> Iterator[Cause]:
    """An allocator that holds nearly everything and has to give back and ask again."""
    if case.plan is None or case.memory is None or not case.slow:
        return
    held = case.memory.measured * GIB
    if held > NEARLY_FULL * case.plan.usable:
        yield Cause(
            "memory fragmentation",
            f"{case.memory.source}: {format_bytes(held)} of {format_bytes(case.plan.usable)} usable: an allocator "
            "that near its limit frees and asks again, 10 to 25 % slower in measured runs",
            ALLOCATOR + "; a smaller micro-batch or more recomputation",
            "python -c 'import torch; print(torch.cuda.memory_stats()[\"num_alloc_retries\"])'  # in the run itself",
            Strength.LIKELY,
            gain=0.3,
        )


def unexplained(case: Case) -> Iterator[Cause]:
    """What remains where a run is slow: what no file here shows."""
    if not case.slow or case.speed is None or case.plan is None or any(on_host(file) for file, _ in case.logs):
        return
    measured, expected = case.plan.step_time * case.speed.factor, case.plan.step_time
    source = case.speed.source.partition(": ")[0]
    lost = f"{source}: a step takes {format_seconds(measured)} where {format_seconds(expected)} were expected"
    yield Cause(
        "host-bound or small batch",
        f"{lost}; no file shows what takes the rest",
        "data loading (workers, pinned memory, tokenising in advance), larger micro-batches, torch.compile, no "
        ".item() and no print in every step; then the clocks (power limit, heat)",
        "nvidia-smi dmon -s pucvmt  # sm below 90 %: the host; full with low power: communication",
        Strength.POSSIBLE,
        gain=0.01,
    )
    if case.plan.question.cluster.world_size > 1 and not case.checks:
        yield Cause(
            "slow link",
            f"{lost}; no nccl-tests table is given, which would tell the network from the rest",
            "measure the network by itself first, then give the log to this command",
            nccl_tests(case),
            Strength.POSSIBLE,
            gain=0.65 if case.across else 0.02,
        )


RULES = (another_device, uneven_steps, nearly_full, unexplained)
