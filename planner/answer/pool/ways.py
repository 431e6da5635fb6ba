"""Fixed nodes, shared nodes and a disaggregated pool: the best timeline that each gives the jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.answer.budget_checkpoints import checkpoint_size
from planner.answer.pool.jobs import JobSpec
from planner.answer.pool.speeds import Site, Speeds, stepped
from planner.answer.ranked_plan import RankedPlan
from planner.economics.pool_records import PoolJob, Timeline
from planner.economics.pool_search import key_of, searched
from planner.economics.pool_timeline import Rule, played, reserved, reserved_counts
from planner.economics.resharding import resharding_time
from planner.estimate.interval import Interval, step_time_interval
from planner.quantities import Bytes, FlopPerSecond, Scalar, Seconds
from planner.spec.codec import plan_to_plain

FIXED, SHARED, MEMORY, POOL = "fixed nodes", "shared nodes", "shared nodes with the memory pool", "pool"
OBJECTIVES = ("makespan", "turnaround")
HOUR = 3600.0
WORDS = {
    (Rule.TOGETHER, True): "resized so that the last is done soonest",
    (Rule.TOGETHER, False): "divided so that the last is done soonest",
    (Rule.SHORTEST_FIRST, True): "resized, short jobs first",
    (Rule.SHORTEST_FIRST, False): "short jobs first",
}
RESERVED = "each on its own from arrival to end"
SEARCHED = "as a search over divisions found"


@dataclass(frozen=True, eq=False)
class PoolWay:
    """One way to run the jobs: where, by which policy, and the timeline that this gives.

    `proven` says that no other sequence of divisions at arrivals and ends is better.
    """

    kind: str
    site: Site
    speeds: Mapping[str, Speeds]
    policy: str
    timeline: Timeline
    proven: bool = False

    @property
    def name(self) -> str:
        """The kind, and the fabric of a pool."""
        return f"pool over {self.site.name}" if self.kind == POOL else self.kind

    @property
    def interval(self) -> Interval:
        """80 % interval of the makespan: errors of speeds are mostly shared, so that all jobs are slower or faster."""
        profiles = (plan.question.profile for each in self.speeds.values() for plan in each.plans.values())
        return step_time_interval(self.timeline.makespan, max(profiles, key=lambda profile: profile.error))

    @property
    def useful(self) -> FlopPerSecond:
        """The models' FLOP per second of all jobs together, over the whole time."""
        return self.work / self.timeline.makespan

    @property
    def work(self) -> float:
        """The models' FLOP of all jobs."""
        return sum(job.work * _flops_per_token(self.speeds[job.name]) for job in self.timeline.jobs)

    @property
    def share_of_peak(self) -> Scalar:
        """Useful FLOP/s over the peak of all accelerators, idle ones included."""
        plan = next(iter(next(iter(self.speeds.values())).plans.values())).question
        peak = float(plan.cluster.accelerator.peak_flops(plan.workload.precision))
        return self.useful / (peak * self.timeline.accelerators)

    @property
    def idle_share(self) -> Scalar:
        """Share of all GPU-hours until the last job is done that no job uses, in its own nodes or outside."""
        line = self.timeline
        used = 0.0
        for span in line.spans:
            plan = self.speeds[line.jobs[span.job].name].plans[span.accelerators]
            used += plan.question.cluster.world_size * (span.end - span.start)
        return max(0.0, 1 - used / (line.accelerators * line.makespan))

    def counts(self, job: int) -> list[int]:
        """Accelerators that a job has, one after the other."""
        return [span.accelerators for span in self.timeline.spans if span.job == job]

    def key(self, objective: str) -> tuple[float, float, float]:
        """By what ways are compared: deadlines first, then the objective, then the other one."""
        return key_of(self.timeline, objective)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        line = self.timeline
        return {
            "name": self.name,
            "kind": self.kind,
            "policy": self.policy,
            "proven": self.proven,
            "makespan_h": line.makespan / HOUR,
            "makespan_interval_h": [float(self.interval.low) / HOUR, float(self.interval.high) / HOUR],
            "mean_turnaround_h": line.mean_turnaround / HOUR,
            "late": line.late,
            "gpu_hours_held": line.held / HOUR,
            "gpu_hours_paused": line.paused / HOUR,
            "idle_share": self.idle_share,
            "resizes": line.resizes,
            "useful_pflops": self.useful / 1e15,
            "share_of_peak": self.share_of_peak,
            "jobs": [self._job(number) for number in range(len(line.jobs))],
        }

    def _job(self, number: int) -> dict[str, Any]:
        line, job = self.timeline, self.timeline.jobs[number]
        speeds = self.speeds[job.name]
        return {
            "name": job.name,
            "start_h": min(span.start for span in line.spans if span.job == number) / HOUR,
            "end_h": line.ends[number] / HOUR,
            "deadline_met": line.ends[number] <= job.deadline,
            "spans": [
                {
                    "gpus": span.accelerators,
                    "start_h": span.start / HOUR,
                    "end_h": span.end / HOUR,
                    "paused_s": span.paused,
                    "tokens_per_s": speeds.by_count[span.accelerators],
                    "plan_name": speeds.plans[span.accelerators].name,
                    "plan": plan_to_plain(speeds.plans[span.accelerators].plan),
                }
                for span in line.spans
                if span.job == number
            ],
            "tokens_per_s_by_gpus": {str(n): speed for n, speed in speeds.by_count.items()},
        }


def measure(way: PoolWay, objective: str) -> Seconds:
    """What ways are compared by."""
    return way.timeline.makespan if objective == "makespan" else way.timeline.mean_turnaround


def fixed_way(
    jobs: Sequence[JobSpec], site: Site, speeds: Mapping[str, Speeds], restart: Seconds, objective: str
) -> PoolWay | None:
    """Whole nodes, a job's own for good: as many as the file says, or as end the last job soonest.

    What a job cannot use of its nodes is stranded. Where there are not enough nodes for all at once, jobs take turns.
    None where a job fits on no number of nodes.
    """
    stated = all(job.nodes for job in jobs)
    whole = {job.name: _on_whole_nodes(speeds[job.name], site, job.nodes if stated else None) for job in jobs}
    if not all(each.plans for each in whole.values()):
        return None
    timed = _timed(jobs, site, whole, restart)
    counts = reserved_counts(timed, site.accelerators)
    if counts is not None:
        return PoolWay(FIXED, site, whole, RESERVED, reserved(timed, site.accelerators, counts))
    lines = {rule: played(timed, site.accelerators, rule, resize=False) for rule in Rule}
    ways = [PoolWay(FIXED, site, whole, f"in turns, {WORDS[rule, False]}", line) for rule, line in lines.items()]
    return min(ways, key=lambda way: way.key(objective))


def shared_way(
    kind: str,
    jobs: Sequence[JobSpec],
    site: Site,
    speeds: Mapping[str, Speeds],
    *,
    restart: Seconds,
    objective: str,
) -> PoolWay | None:
    """The best of all policies (each rule with and without resizing, each job on its own) and of a search.

    None where a job fits on no number of accelerators.
    """
    if not all(speeds[job.name].plans for job in jobs):
        return None
    policy, line, proven = _best_line(_timed(jobs, site, speeds, restart), site, kind, objective)
    return PoolWay(kind, site, speeds, policy, line, proven)


def _on_whole_nodes(speeds: Speeds, site: Site, stated: int | None) -> Speeds:
    """What a job makes of whole nodes: its best plan on as many of their accelerators as it may have."""
    size, plans = site.node.gpus_per_node, dict[int, RankedPlan]()
    for nodes in [stated] if stated else stepped(site.accelerators // size):
        used = speeds.at_most(size * nodes)
        if used and (stated or speeds.plans[used] not in plans.values()):
            plans[size * nodes] = speeds.plans[used]
    return Speeds(plans)


def with_speeds(way: PoolWay, speeds: Mapping[str, Mapping[int, Scalar]], objective: str) -> PoolWay:
    """The best timeline for the same jobs at other speeds, on any number of accelerators."""
    jobs = [replace(job, speeds=speeds[job.name]) for job in way.timeline.jobs]
    policy, line, proven = _best_line(jobs, way.site, POOL, objective)
    return replace(way, policy=policy, timeline=line, proven=proven)


def _best_line(jobs: Sequence[PoolJob], site: Site, kind: str, objective: str) -> tuple[str, Timeline, bool]:
    """The best policy's timeline, or a better one of a search, and whether none is better; with what it is called."""
    nodes = None if kind == POOL else site.nodes
    lines = {
        WORDS[rule, resize]: played(jobs, site.accelerators, rule, resize=resize, nodes=nodes)
        for rule in Rule
        for resize in (False, True)
    }
    counts = reserved_counts(jobs, site.accelerators, nodes)
    if counts is not None:
        lines[RESERVED] = reserved(jobs, site.accelerators, counts)
    policy, known = min(lines.items(), key=lambda each: key_of(each[1], objective))
    line, proven = searched(known, objective, nodes)
    return (policy if line is known else SEARCHED), line, proven


def _timed(jobs: Sequence[JobSpec], site: Site, speeds: Mapping[str, Speeds], restart: Seconds) -> list[PoolJob]:
    """The jobs as they are played: their work in tokens, and what a change of number costs them."""
    timed = []
    for job in jobs:
        plans = speeds[job.name]
        some = next(iter(plans.plans.values()))
        work = job.tokens or (job.steps or 0) * float(some.question.workload.tokens_per_step)
        pause = _pause(checkpoint_size(some), site, restart)
        timed.append(PoolJob(job.name, work, plans.by_count, job.priority, job.arrival, job.deadline, pause))
    return timed


def _pause(state: Bytes, site: Site, restart: Seconds) -> Callable[[int, int], Seconds]:
    return lambda before, after: float(resharding_time(state, site.bandwidth, min(before, after), restart))


def _flops_per_token(speeds: Speeds) -> float:
    """The model's FLOP of a token, from MFU, peak and speed of any plan."""
    plan = next(iter(speeds.plans.values()))
    asked = plan.question
    peak = float(asked.cluster.accelerator.peak_flops(asked.workload.precision)) * asked.cluster.world_size
    return float(plan.speed.mfu) * peak / float(plan.speed.tokens_per_s)
