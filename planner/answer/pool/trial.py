"""The jobs of a file tried on one cluster: on its nodes, and on pools that fabrics join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from planner.answer.pool.jobs import PoolFile, RemoteMemory, fabric_of, names_of
from planner.answer.pool.speeds import Site, Speeds, SpeedTable, counts_in_nodes, counts_of_pool
from planner.answer.pool.ways import (
    FIXED,
    MEMORY,
    OBJECTIVES,
    POOL,
    SHARED,
    PoolWay,
    fixed_way,
    measure,
    shared_way,
    with_speeds,
)
from planner.errors import SpecError, unknown_name
from planner.quantities import Scalar, Seconds, format_seconds
from planner.spec.cluster import Cluster, Fabric

RESTART: Seconds = 60.0
"""Of a job that goes on with another number of accelerators, beside moving its state. An assumption: processes and
communicators start again, and what is compiled is compiled again."""


@dataclass(frozen=True)
class PoolChoices:
    """What a user may choose beside the file: fabrics (names with commas), the nodes' network, objective, price."""

    fabric: str | None = None
    network: str | None = None
    objective: str = "makespan"
    restart_seconds: Seconds = RESTART
    usd_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES, where="--objective")
        if self.usd_per_gpu_hour is not None and not 0 < self.usd_per_gpu_hour < inf:
            raise SpecError("must be above zero", where="--usd-per-gpu-hour")
        if not 0 <= self.restart_seconds < inf:
            raise SpecError("must be zero or more", where="--restart-seconds")


class Trial:
    """The jobs of a file tried on one cluster in every way."""

    def __init__(self, asked: PoolFile, machines: Cluster, chosen: PoolChoices) -> None:
        self.asked, self.machines, self.chosen = asked, machines, chosen
        self.table = SpeedTable(machines, asked.jobs)
        named = [fabric_of(name, where="--fabric") for name in names_of(chosen.fabric or "")]
        self.fabrics = named or list(asked.fabrics)
        self.nodes = _nodes(machines)
        size = machines.node.gpus_per_node
        self.own = {
            job.name: self.table.of(job, self.nodes, [size * job.nodes] if job.nodes else []) for job in asked.jobs
        }

    def on_nodes(self) -> dict[str, PoolWay | None]:
        """Fixed and shared nodes; with a memory pool, nodes that reach it."""
        jobs, restart, objective = self.asked.jobs, self.chosen.restart_seconds, self.chosen.objective
        ways = {
            FIXED: fixed_way(jobs, self.nodes, self.own, restart, objective),
            SHARED: shared_way(SHARED, jobs, self.nodes, self.own, restart=restart, objective=objective),
        }
        if self.asked.memory is not None:
            site = replace(self.nodes, name="nodes with remote memory", memory=self.asked.memory)
            speeds = {job.name: self.table.with_memory(job, site, self.own[job.name]) for job in jobs}
            ways[MEMORY] = shared_way(MEMORY, jobs, site, speeds, restart=restart, objective=objective)
        return ways

    def over_fabrics(self) -> dict[str, PoolWay | None]:
        """A pool over each fabric."""
        jobs, ways = self.asked.jobs, dict[str, PoolWay | None]()
        for fabric in self.fabrics or [_own_port(self.machines)]:
            site = _pool_site(self.machines, fabric, self.asked)
            speeds = {job.name: self.table.of(job, site) for job in jobs}
            ways[f"{POOL} over {site.name}"] = shared_way(
                POOL, jobs, site, speeds, restart=self.chosen.restart_seconds, objective=self.chosen.objective
            )
        return ways

    @property
    def nowhere(self) -> str:
        """Which job fits on no number of nodes, and what was said against the last of them."""
        for job in self.asked.jobs:
            if not self.own[job.name].plans:
                reason = self.table.reasons.get(job.name, "no number of GPUs is both possible and allowed")
                return f"{job.name} fits on no number of GPUs that it may have: {reason}"
        return "some job fits on no number of GPUs that it may have there"

    def refusal(self, kind: str) -> str:
        """Why there is no such way."""
        size = self.machines.node.gpus_per_node
        for job in self.asked.jobs if kind == FIXED else ():
            if self.own[job.name].at_most(size * (job.nodes or self.machines.num_nodes)) is None:
                return f"{job.name} fits on no number of nodes that it may have"
        return self.nowhere

    def assumed(self) -> Iterator[str]:
        """What the file and the options leave open."""
        asked, port = self.asked, _own_port(self.machines)
        if not self.fabrics:
            yield f"a pool over the cluster's own network {port.name}, {port.nic_bandwidth / 1e9:.3g} GB/s per GPU"
        if asked.memory is None and self.machines.node.host_memory:
            yield "the pool's memory is that of the hosts, over the fabric"
        for job in asked.jobs:
            if job.choices.global_batch_size is None:
                base = self.table.bases[job.name].workload
                yield f"{job.name}: global batch {base.global_batch_size:,} sequences of {base.seq_len:,} tokens"
        yield (
            f"{format_seconds(self.chosen.restart_seconds)} until a job goes on with another number of GPUs, beside "
            "moving its state"
        )


def _nodes(machines: Cluster) -> Site:
    """The nodes as they are."""
    node = machines.node
    port = node.fabric.node_bandwidth / node.gpus_per_node or node.link_bandwidth
    return Site("nodes", counts_in_nodes(machines), port, node, accelerators=machines.world_size)


def _own_port(machines: Cluster) -> Fabric:
    """The cluster's own network as a fabric: each accelerator's share of its node's ports."""
    fabric, node = machines.node.fabric, machines.node
    share = fabric.node_bandwidth / node.gpus_per_node or node.accelerator.pcie_bandwidth
    return Fabric(fabric.name, fabric.kind if fabric.nics_per_node else "infiniband", 1, share, fabric.latency)


def _pool_site(machines: Cluster, fabric: Fabric, asked: PoolFile) -> Site:
    """The pool over a fabric; without a memory of its own, the hosts' memory is reached over it."""
    memory, hosts = asked.memory, machines.num_nodes * machines.node.host_memory
    if memory is None and hosts:
        memory = RemoteMemory(hosts, fabric.nic_bandwidth, fabric.latency)
    return Site(
        fabric.name,
        counts_of_pool(machines),
        fabric.nic_bandwidth,
        machines.node,
        fabric=fabric,
        tray=asked.tray,
        memory=memory,
        accelerators=machines.world_size,
    )


def fabric_cost(
    way: PoolWay, own: Mapping[str, Speeds], objective: str, *, known: Seconds = inf
) -> tuple[Scalar, Seconds]:
    """The share of speed that the fabric costs the jobs as they run in the pool, and the measure if it cost none.

    A job's speed over the fabric is held against that on nodes with the largest number of GPUs that both have, up to
    what it has there; jobs count by their GPU-hours. A slow fabric costs less where jobs keep to few GPUs for it.
    `known` is what nodes give, which a pool without cost does at least.
    """
    spent = lost = 0.0
    for span in way.timeline.spans:
        job = way.timeline.jobs[span.job]
        here, there = job.speeds, own[job.name].by_count
        both = max((n for n in here if n <= span.accelerators and n in there), default=None)
        hours = span.accelerators * (span.end - span.start)
        spent += hours
        lost += hours * (1 - here[both] / there[both]) if both else 0.0
    free = {job.name: _free_speeds(job.speeds, own[job.name].by_count, way.site.counts) for job in way.timeline.jobs}
    return max(lost / spent, 0.0), min(known, measure(with_speeds(way, free, objective), objective))


def _free_speeds(
    speeds: Mapping[int, Scalar], own: Mapping[int, Scalar], counts: Sequence[int]
) -> Mapping[int, Scalar]:
    """Speeds on any number of GPUs if the fabric cost nothing.

    Those on nodes, and between two of these the lower's for each GPU, at most the higher. Without any on nodes, what
    there is over the fabric.
    """
    free = {}
    for number in counts:
        lower = max((n for n in own if n <= number), default=None)
        if lower:
            higher = min((n for n in own if n >= number), default=None)
            free[number] = min(own[lower] * number / lower, own[higher] if higher else own[lower])
    return free or speeds
