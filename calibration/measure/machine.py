"""The machine at hand: what it is, and how its processes are started."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from calibration.measure.place import Place
from calibration.measure.ranks import Ranks
from calibration.measurements import Machine
from planner.quantities import Bytes

CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SMI_FIELDS = ("driver_version", "clocks.max.sm", "clocks.max.memory", "power.limit")
UNKNOWN_CACHE: Bytes = 32 * 2**20


def usual_device() -> str:
    """What is measured unless a device is named."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def usual_processes(device: str) -> int:
    """One process a GPU, or two on a CPU that has two cores."""
    return torch.cuda.device_count() if device == "cuda" else min(2, cores())


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(processes: int) -> int:
    """Threads of one rank: the cores are divided, as torchrun's ranks would have to divide them."""
    return max(1, cores() // processes)


def machine(device: str, *, processes: int, nodes: int = 1) -> Machine:
    """What the machine says of itself; `processes` are those of all nodes."""
    here = processes // nodes
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    shape: dict[str, Any] = {"host": platform.node(), "cores": cores(), "processes": processes, "nodes": nodes}
    if device == "cpu":
        return Machine(
            device="cpu", name=cpu_name(), threads=threads_of(here), memory=cpu_memory() / here,
            cache=cpu_cache(), clocks=cpu_clocks(), versions=versions, **shape,
        )  # fmt: skip
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver, *clocks = smi()
    versions |= {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    return Machine(
        device="cuda",
        name=properties.name,
        threads=threads_of(here),
        memory=float(properties.total_memory),
        cache=float(getattr(properties, "L2_cache_size", 0) or UNKNOWN_CACHE),
        multiprocessors=properties.multi_processor_count,
        half="bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16",
        clocks=", ".join(f"{name} {value}" for name, value in zip(SMI_FIELDS[1:], clocks, strict=False)),
        driver=driver,
        versions=versions,
        **shape,
    )


def smi() -> list[str]:
    """Driver, highest clocks and power limit of the first GPU as nvidia-smi prints them; empty without it."""
    command = ["nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return [""]
    return [each.strip() for each in done.stdout.splitlines()[0].split(",")] if done.stdout.strip() else [""]


def cpu_name() -> str:
    """The processor's name as the kernel gives it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine() or "cpu"


def cpu_clocks() -> str:
    """The first core's clock when it was asked."""
    clock = _cpuinfo("cpu MHz")
    return f"{clock} MHz" if clock else ""


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def cpu_memory() -> Bytes:
    """Memory of the host, or what its control group leaves of it."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        return total
    return min(total, float(limit)) if limit.isdigit() else total


def cpu_cache() -> Bytes:
    """The last level's size."""
    sizes = [UNKNOWN_CACHE / 2**10]
    for path in sorted(CPU_CACHES.glob("index*/size")):
        text = path.read_text(encoding="utf-8").strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(float(text[:-1]))
    return 2**10 * sizes[-1]


def joined(device: str, place: Place, init_method: str) -> Ranks:
    """This process as one of all: its threads or its GPU, and the process group (NCCL, or gloo on a CPU)."""
    if device == "cuda":
        torch.cuda.set_device(place.local_rank)
        own = torch.device("cuda", place.local_rank)
    else:
        torch.set_num_threads(threads_of(place.local_world))
        own = torch.device("cpu")
    if place.world > 1:
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=init_method, rank=place.rank, world_size=place.world)
    return Ranks(own, place.rank, place.world, place.local_world)


def left(ranks: Ranks) -> None:
    """Leave the process group."""
    if ranks.world > 1:
        dist.destroy_process_group()
