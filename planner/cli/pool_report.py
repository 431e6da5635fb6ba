"""Several jobs on one pool, printed for people."""

from __future__ import annotations

from itertools import groupby

from planner.answer.pool.answer import PoolAnswer
from planner.answer.pool.ways import HOUR, PoolWay
from planner.cli.printing import Heading, say, table
from planner.explain.words import extras
from planner.quantities import three_digits
from planner.spec.plan import Offload

_WAYS = [
    Heading("way", 1, left=True),
    Heading("all done\n(h)", 1),
    Heading("interval,\n80 % (h)", 3),
    Heading("mean turn-\naround (h)", 1),
    Heading("late", 3),
    Heading("GPU-hours\nidle", 2),
    Heading("resizes", 3),
    Heading("useful\nPFLOP/s", 2),
    Heading("of\npeak", 3),
    Heading("fabric\ncosts", 2),
    Heading("rent until all\nare done (USD)", 4),
    Heading("jobs are", 3, left=True),
]
_JOBS = [
    Heading("way", 1, left=True),
    Heading("job", 1, left=True),
    Heading("from\n(h)", 3),
    Heading("to\n(h)", 1),
    Heading("GPUs, one after\nthe other", 1, left=True),
    Heading("tokens/s\n(with most)", 2),
    Heading("plan", 3, left=True),
]


def print_pool(found: PoolAnswer) -> None:
    """The answer, the ways side by side, and what each job gets in each of them."""
    say(found.sentence)
    say()
    table(_WAYS, [_way(found, way) for way in found.ways], best=True)
    say()
    for name, reason in found.refused.items():
        say(f"{name}: {reason}", indent="  ")
    if found.refused:
        say()
    table(_JOBS, [_job(way, number) for way in found.ways for number in range(len(found.jobs))])


def _way(found: PoolAnswer, way: PoolWay) -> list[str]:
    line, usd, cost = way.timeline, found.usd_of(way), found.fabric_cost.get(way.name)
    money = list(dict.fromkeys(f"{each:,.0f}" for each in usd)) if usd else ["-"]
    return [
        way.name,
        three_digits(line.makespan / HOUR),
        "-".join(three_digits(float(end) / HOUR) for end in (way.interval.low, way.interval.high)),
        three_digits(line.mean_turnaround / HOUR),
        f"{line.late}" if any(each.timeline.late for each in found.ways) else "",
        f"{way.idle_share:.0%}",
        f"{line.resizes}",
        three_digits(way.useful / 1e15),
        f"{way.share_of_peak:.0%}",
        f"{cost:.0%}" if cost is not None else "",
        "-".join(money),
        f"{way.policy}{' (none is better)' if way.proven else ''}",
    ]


def _job(way: PoolWay, number: int) -> list[str]:
    line, job = way.timeline, way.timeline.jobs[number]
    spans = [span for span in line.spans if span.job == number]
    most = max(span.accelerators for span in spans)
    plan = way.speeds[job.name].plans[most]
    offloaded = extras(plan.plan).rpartition(", ")[2] if plan.plan.offload != Offload.NONE else ""
    counts = [str(count) for count, _ in groupby(span.accelerators for span in spans)]
    return [
        way.name if number == 0 else "",
        job.name,
        three_digits(min(span.start for span in spans) / HOUR),
        f"{three_digits(line.ends[number] / HOUR)}{' late' if line.ends[number] > job.deadline else ''}",
        ", ".join(counts),
        f"{job.speeds[most]:,.0f}",
        f"{plan.name}{f', {offloaded}' if offloaded else ''}",
    ]
