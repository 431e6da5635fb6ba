"""Which candidates fit in memory, and what the others fail by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.estimate.interval import FULL
from planner.estimate.memory import peak_memory
from planner.estimate.records import MemoryUse
from planner.quantities import Bytes, Column
from planner.search.enumerate import Candidates
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.stack import Stack
from planner.spec.workload import Workload

MemoryEstimate = Callable[[Model, Plan, Workload, Stack], MemoryUse]

ITEM_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "logits": "logits",
    "gather_buffers": "gather buffers",
    "communication_buffers": "communication buffers",
    "context": "device context",
    "reserve": "allocator reserve",
}
DEVICE_MEMORY = "memory: mostly "
HOST_MEMORY = "host memory: what is offloaded"
CHUNK = 32768
"""Plans whose memory is estimated at once."""


@dataclass(frozen=True, eq=False)
class Fitting:
    """`peak` of every candidate in bytes, which of them fit, and the others counted by what they fail by."""

    peak: Column
    fits: Column
    rejected: Mapping[str, int]


def fitting(
    candidates: Candidates,
    model: Model,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    *,
    estimate: MemoryEstimate,
) -> Fitting:
    """Memory of every candidate against 95 % of what the smallest accelerator can use, and against the hosts'."""
    first = _first_of_run(candidates)
    count = np.diff(first, append=len(candidates))
    peaks, fits = np.zeros(len(first)), np.zeros(len(first), dtype=bool)
    rejected: Counter[str] = Counter()
    for start in range(0, len(first), CHUNK):
        part = slice(start, start + CHUNK)
        use = estimate(model, candidates.rows(first[part]), workload, stack)
        on_device, on_host = device_fits(use, cluster), host_fits(use, cluster)
        peaks[part], fits[part] = use.peak, on_device & on_host
        rejected.update(_dominant(use, count[part] * ~on_device))
        rejected[HOST_MEMORY] += int((count[part] * (on_device & ~on_host)).sum())
    return Fitting(np.repeat(peaks, count), np.repeat(fits, count), +rejected)


def peaks(candidates: Candidates, model: Model, workload: Workload, stack: Stack) -> Column:
    """Peak of every candidate alone, in bytes and up to rounding."""
    first = _first_of_run(candidates)
    parts = (candidates.rows(first[start : start + CHUNK]) for start in range(0, len(first), CHUNK))
    found = np.concatenate([peak_memory(model, plans, workload, stack) for plans in parts])
    return np.repeat(found, np.diff(first, append=len(candidates)))


def memory_limit(cluster: Cluster) -> Bytes:
    """What a plan may use of the smallest accelerator's memory: 95 % of the usable."""
    return FULL * min(pool.node.accelerator.usable_memory for pool in cluster.pools)


def device_fits(use: MemoryUse, cluster: Cluster) -> Column:
    """The mask of plans within the limit."""
    return np.asarray(use.peak) <= memory_limit(cluster)


def host_fits(use: MemoryUse, cluster: Cluster) -> Column:
    """The mask of plans whose hosts hold what all their ranks offload; hosts of unknown memory hold anything."""
    spare = [pool.node.host_memory / pool.node.gpus_per_node for pool in cluster.pools if pool.node.host_memory]
    return np.broadcast_to(np.asarray(use.host) <= min(spare, default=np.inf), np.shape(use.peak))


def _first_of_run(candidates: Candidates) -> Column:
    """Where each run of plans begins that differ in rank order alone, which memory does not depend on."""
    first = np.asarray(candidates.plans.rank_order == candidates.lowest_order)
    first[:1] = True
    return np.flatnonzero(first)


def _dominant(use: MemoryUse, count: Column) -> dict[str, int]:
    """Plans counted by their largest item; `count` is how many plans each row stands for."""
    items = np.stack([np.broadcast_to(getattr(use, name), len(count)) for name in MemoryUse.ITEMS])
    totals = np.bincount(items.argmax(axis=0), weights=count, minlength=len(MemoryUse.ITEMS))
    names = (f"{DEVICE_MEMORY}{ITEM_WORDS[name]}" for name in MemoryUse.ITEMS)
    return {name: int(total) for name, total in zip(names, totals, strict=True) if total}
