"""The answer for several jobs on one pool: which way is done first, and whether disaggregation pays."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from planner.answer.pool.jobs import JobSpec, PoolFile, read_jobs
from planner.answer.pool.trial import PoolChoices, Trial, fabric_cost
from planner.answer.pool.ways import HOUR, POOL, SHARED, PoolWay, measure
from planner.answer.question import machines_of
from planner.catalogue.prices import Price, usd_per_gpu_hour
from planner.errors import NoFeasiblePlan, SpecError
from planner.quantities import Scalar, Seconds, counted, format_seconds
from planner.spec.cluster import Cluster

SCHEMA_VERSION = 1
SAME = 0.005
"""Ways whose figures differ by less are as good."""


@dataclass(frozen=True, eq=False)
class PoolAnswer:
    """Every way, best first; `refused` says of a way that cannot be why.

    Of each way with a fabric `fabric_cost` is the share of speed that it costs, and `without_cost` what the way would
    be with a fabric that costs nothing.
    """

    file: str
    cluster: Cluster
    cluster_text: str
    jobs: tuple[JobSpec, ...]
    choices: PoolChoices
    ways: tuple[PoolWay, ...]
    refused: Mapping[str, str]
    fabric_cost: Mapping[str, Scalar]
    without_cost: Mapping[str, Seconds]
    assumed: tuple[str, ...]

    @property
    def best(self) -> PoolWay:
        """The first way."""
        return self.ways[0]

    @property
    def price(self) -> Price | None:
        """USD per accelerator and hour."""
        own = self.choices.usd_per_gpu_hour
        return Price(own, own) if own else usd_per_gpu_hour(self.cluster)

    def measure(self, way: PoolWay) -> Seconds:
        """What the ways are compared by."""
        return measure(way, self.choices.objective)

    def usd_of(self, way: PoolWay) -> tuple[float, float] | None:
        """Rent of all accelerators until the last job is done; None where no price is known."""
        hours = way.timeline.accelerators * way.timeline.makespan / HOUR
        return (self.price.low * hours, self.price.high * hours) if self.price else None

    def of_kind(self, kind: str) -> PoolWay | None:
        """The best way of a kind."""
        return next((way for way in self.ways if way.kind == kind), None)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        best = self.best
        what = "all done in" if self.choices.objective == "makespan" else "with a mean turnaround of"
        others = "; ".join(f"{_the(way)} {self._against(way)}" for way in self.ways[1:])
        late = best.timeline.late
        missed = f", {counted(late, 'deadline')} missed" if late else ""
        gpus, taken = counted(self.cluster.world_size, "GPU"), format_seconds(self.measure(best))
        return (
            f"{counted(len(self.jobs), 'job')} on {self.cluster.name} ({gpus}): best on {_the(best)}, {what} {taken}"
            f"{missed}{f'; {others}' if others else ''}. {self.verdict[0].upper()}{self.verdict[1:]}."
        )

    def _against(self, way: PoolWay) -> str:
        """A way against the best."""
        more = self.measure(way) / self.measure(self.best) - 1
        late = way.timeline.late
        missed = f" and {counted(late, 'deadline')} missed" if late else ""
        return f"{format_seconds(self.measure(way))} ({'as good' if abs(more) < SAME else f'{more:+.0%}'}{missed})"

    @property
    def verdict(self) -> str:
        """Whether disaggregation pays, and why."""
        pool, local = self.of_kind(POOL), self._local
        if pool is None:
            return "no pool can run all the jobs"
        if local is None:
            return "disaggregation pays: without it a job fits nowhere"
        late = pool.timeline.late - local.timeline.late
        gain = 1 - self.measure(pool) / self.measure(local)
        cost = self.fabric_cost.get(pool.name, 0.0)
        ideal = 1 - self.without_cost[pool.name] / self.measure(local)
        won = f"would win {ideal:.0%}" if ideal >= SAME else "would win nothing"
        why = f"any number of GPUs {won} against {local.name}, and the fabric costs the jobs {cost:.0%} of their speed"
        if late > 0 or (late == 0 and gain < -SAME):
            return f"disaggregation does not pay: {why}"
        if late < 0 or gain > SAME:
            return f"disaggregation pays: {why}"
        return f"disaggregation changes nothing: {why}"

    @property
    def _local(self) -> PoolWay | None:
        """The best way without disaggregation."""
        return next((way for way in self.ways if way.kind != POOL), None)

    @property
    def command(self) -> str:
        """The whole question as one command line."""
        given = {
            f"--{field.name.replace('_', '-')}": getattr(self.choices, field.name) for field in fields(PoolChoices)
        }
        options = [word for name, value in given.items() if value is not None for word in (name, _plain(value))]
        return shlex.join(["planner", "pool", self.file, self.cluster_text, *options])

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner pool`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "answer": self.sentence,
            "verdict": self.verdict,
            "cluster": {
                "name": self.cluster.name,
                "gpus": self.cluster.world_size,
                "nodes": self.cluster.num_nodes,
                "node": self.cluster.node.name,
                "accelerator": self.cluster.accelerator.name,
                "usd_per_gpu_hour_range": [self.price.low, self.price.high] if self.price else None,
            },
            "objective": self.choices.objective,
            "restart_s": self.choices.restart_seconds,
            "ways": [
                {
                    **way.as_dict(),
                    "usd_range": self.usd_of(way),
                    "fabric_cost": self.fabric_cost.get(way.name),
                }
                for way in self.ways
            ],
            "refused": dict(self.refused),
            "assumed": list(self.assumed),
        }


def pool(file: str | Path, cluster: Cluster | str, choices: PoolChoices | None = None) -> PoolAnswer:
    """Several jobs on the nodes of a cluster: fixed to nodes, sharing them, or on a pool over one or more fabrics.

    `file` names the jobs (docs/pool.md). Raises FileFormatError for a file that is wrong, SpecError for what cannot be
    asked, NoFeasiblePlan where a job fits on no number of accelerators in any way.
    """
    chosen = choices or PoolChoices()
    asked, machines = read_jobs(Path(file)), machines_of(cluster, chosen.network)
    _check(asked, machines, str(file))
    trial = Trial(asked, machines, chosen)
    ways = {**trial.on_nodes(), **trial.over_fabrics()}
    found = sorted((way for way in ways.values() if way), key=lambda way: way.key(chosen.objective))
    if not found:
        raise NoFeasiblePlan(trial.nowhere)
    shared = ways[SHARED]
    known = measure(shared, chosen.objective) if shared and not shared.timeline.late else inf
    costs = {w.name: fabric_cost(w, trial.own, chosen.objective, known=known) for w in found if w.kind == POOL}
    return PoolAnswer(
        file=str(file),
        cluster=machines,
        cluster_text=machines.name if isinstance(cluster, Cluster) else cluster,
        jobs=asked.jobs,
        choices=chosen,
        ways=tuple(found),
        refused={name: trial.refusal(name) for name, way in ways.items() if way is None},
        fabric_cost={name: cost for name, (cost, _) in costs.items()},
        without_cost={name: measure for name, (_, measure) in costs.items()},
        assumed=tuple(trial.assumed()),
    )


def _the(way: PoolWay) -> str:
    return f"the {way.name}" if way.kind == POOL else way.name


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check(asked: PoolFile, machines: Cluster, file: str) -> None:
    """Raise SpecError for unlike nodes, and for a job that asks for more than there is."""
    if len(machines.pools) > 1:
        raise SpecError("must have nodes of one kind for a pool; planner mixed is for unequal nodes", where="CLUSTER")
    for job in asked.jobs:
        if job.nodes and job.nodes > machines.num_nodes:
            raise SpecError(f"has {job.nodes} nodes, the cluster {machines.num_nodes}", where=f"{file}: {job.name}")
        if job.min_gpus > machines.world_size:
            raise SpecError(
                f"needs {job.min_gpus} GPUs, the cluster has {machines.world_size}", where=f"{file}: {job.name}"
            )
