"""How fast each job is on each number of accelerators, on nodes of its own and on a pool that a fabric joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd

from planner.answer.pool.jobs import JobSpec, RemoteMemory
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.economics.packing import Nodes
from planner.economics.resharding import remote_bandwidth
from planner.errors import NoFeasiblePlan, SpecError
from planner.quantities import Bytes, BytesPerSecond, Scalar
from planner.spec.cluster import Cluster, Fabric, Node, Pool
from planner.spec.node_part import first_accelerators
from planner.spec.plan import Offload

BLOCK: Bytes = float(2**20)
"""Read or written of remote memory at a time, each waited for."""
OFFLOADS = ("optimizer", "all")
"""What is tried in turn where nothing fits without."""


@dataclass(frozen=True, eq=False)
class Site:
    """Where jobs run: `cluster_of` so many accelerators, the numbers that can be had, and what a port carries.

    `bandwidth` is what one accelerator has of the network between nodes, or of the fabric.
    """

    name: str
    counts: tuple[int, ...]
    bandwidth: BytesPerSecond
    node: Node
    fabric: Fabric | None = None
    tray: int = 1
    memory: RemoteMemory | None = None
    accelerators: int = 1

    def cluster_of(self, number: int) -> Cluster:
        """So many accelerators as a cluster."""
        if self.fabric is None:
            part = self._reaching(first_accelerators(self.node, number))
            nodes = max(1, number // self.node.gpus_per_node)
            return Cluster(f"{number} GPUs of {self.node.name}", (Pool(part, nodes),))
        together = gcd(number, self.tray)
        return Cluster(f"{number} GPUs over {self.fabric.name}", (Pool(self._remote(together), number // together),))

    @property
    def nodes(self) -> Nodes:
        """The nodes that hold the parts."""
        return Nodes(self.node.gpus_per_node, self.accelerators // self.node.gpus_per_node)

    @property
    def launch_latency(self) -> float:
        """What each launch costs the host more."""
        return self.fabric.latency if self.fabric else 0.0

    def _remote(self, together: int) -> Node:
        """Accelerators of one tray with a port of the fabric each."""
        assert self.fabric is not None
        part = first_accelerators(self.node, together)
        fabric = replace(self.fabric, nics_per_node=together)
        return self._reaching(replace(part, fabric=fabric, domain_nodes=1, nics_on_accelerators=True))

    def _reaching(self, part: Node) -> Node:
        """A part of a node that has its share of the remote memory in place of the host's."""
        memory, gpus = self.memory, part.gpus_per_node
        if memory is None:
            return part
        reached = remote_bandwidth(memory.bandwidth, memory.latency, BLOCK)
        slot = min(part.accelerator.pcie_bandwidth, reached)
        return replace(
            part,
            accelerator=replace(part.accelerator, pcie_bandwidth=slot),
            nics_on_accelerators=True,  # the slot's bandwidth is that of the memory here
            host_memory=gpus * memory.size / self.accelerators,
            host_memory_bandwidth=gpus * reached,
        )


@dataclass(frozen=True, eq=False)
class Speeds:
    """One job at one site: its best plan by number of accelerators, without numbers that are no faster than fewer."""

    plans: Mapping[int, RankedPlan] = field(default_factory=dict)

    @cached_property
    def by_count(self) -> dict[int, Scalar]:
        """Tokens per second."""
        return {number: float(plan.speed.tokens_per_s) for number, plan in self.plans.items()}

    def at_most(self, number: int) -> int | None:
        """The largest number of accelerators up to `number` on which the job is known."""
        return max((count for count in self.plans if count <= number), default=None)


class SpeedTable:
    """The speeds of all jobs, each plan found once; jobs of equal questions share them.

    `reasons` has for each job the last that was said against a number of accelerators on which nothing fits.
    """

    def __init__(self, cluster: Cluster, jobs: Sequence[JobSpec]) -> None:
        self.bases = {job.name: base_question(job, cluster) for job in jobs}
        self.found: dict[tuple[object, ...], RankedPlan | None] = {}
        self.reasons: dict[str, str] = {}

    def of(self, job: JobSpec, site: Site, more: Sequence[int] = ()) -> Speeds:
        """A job's speeds on a site's numbers of accelerators, and on `more` of them."""
        plans: dict[int, RankedPlan] = {}
        for number in sorted({*site.counts, *more}):
            if job.min_gpus <= number <= job.max_gpus:
                ranked = self._plan(job, site, number)
                fastest = max((float(each.speed.tokens_per_s) for each in plans.values()), default=0.0)
                if ranked is not None and (float(ranked.speed.tokens_per_s) > fastest or number in more):
                    plans[number] = ranked
        return Speeds(plans)

    def with_memory(self, job: JobSpec, site: Site, own: Speeds) -> Speeds:
        """A job's own speeds, and those with states in a site's memory on numbers where they do not fit without."""
        plans = {n: plan for n, plan in own.plans.items() if plan.plan.offload == Offload.NONE}
        least = min(plans, default=job.max_gpus + 1)
        held = self.of(job, replace(site, counts=tuple(n for n in site.counts if n < least)))
        return Speeds({**held.plans, **plans})

    def _plan(self, job: JobSpec, site: Site, number: int) -> RankedPlan | None:
        """The best plan; with what rests in memory beside the accelerators only where nothing fits without."""
        key = (job.model, job.choices, site.name, number)
        if key not in self.found:
            tried = [None] if job.choices.offload is not None else [None, *OFFLOADS]
            self.found[key] = next((plan for how in tried if (plan := self._best(job, site, number, how))), None)
        return self.found[key]

    def _best(self, job: JobSpec, site: Site, number: int, offload: str | None) -> RankedPlan | None:
        base = self.bases[job.name]
        choices = replace(
            base.choices, global_batch_size=base.workload.global_batch_size, seq_len=base.workload.seq_len
        )
        asked = ask(base.model, site.cluster_of(number), replace(choices, offload=offload or choices.offload))
        slower = asked.profile.launch_time + site.launch_latency
        asked = replace(asked, profile=replace(asked.profile, launch_time=slower))
        try:
            return best_plan(asked)
        except (NoFeasiblePlan, SpecError) as error:
            self.reasons[job.name] = str(error)
            return None


def base_question(job: JobSpec, cluster: Cluster) -> Question:
    """The job on all accelerators: model, batch and sequence, which stay whatever it gets."""
    return ask(job.model, cluster, job.choices)


def counts_in_nodes(cluster: Cluster) -> tuple[int, ...]:
    """Parts of a node, and whole nodes."""
    size = cluster.node.gpus_per_node
    return (*(n for n in stepped(size) if n < size), *(size * nodes for nodes in stepped(cluster.num_nodes)))


def counts_of_pool(cluster: Cluster) -> tuple[int, ...]:
    """What can be had of a pool: the same, and numbers between them."""
    return tuple(sorted({*stepped(cluster.world_size), *counts_in_nodes(cluster)}))


def stepped(most: int) -> list[int]:
    """All numbers up to 4, then powers of two and one and a half times these, and the most.

    >>> stepped(40)
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40]
    """
    powers = [2**k for k in range(most.bit_length())]
    return sorted({n for n in (*powers, *(3 * n // 2 for n in powers if n > 1), most) if n <= most})
