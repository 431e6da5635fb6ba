"""The figures of a side, inputs and results, in one order for all sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planner.answer.compared.sides import Side
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommendation import format_rate
from planner.explain.reasons import memory_items, time_terms
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS
from planner.explain.words import RECOMPUTE_NAMES, SCHEDULE_NAMES, extras
from planner.quantities import GIB, format_bandwidth, format_bytes, format_count, format_seconds, three_digits
from planner.spec.plan import Plan, Recompute, Schedule

RESULT, TIME, MEMORY, PLAN, INPUT = "result", "time", "memory", "plan", "input"
"""What a figure is of, in the order in which differences are shown."""
NOTHING = "-"


@dataclass(frozen=True)
class Figure:
    """A figure of one side: a number or a text, and how it is printed (with its unit)."""

    value: float | str | None
    text: str


@dataclass(frozen=True)
class Line:
    """One figure of every side. `name` is for people, `key` for JSON."""

    section: str
    key: str
    name: str
    figures: tuple[Figure, ...]

    @property
    def differs(self) -> bool:
        """Whether the sides can be told apart by what is printed."""
        return len({figure.text for figure in self.figures}) > 1

    @property
    def spread(self) -> float:
        """Greatest less smallest number, what is absent counted as 0; 0 of texts."""
        numbers = [figure.value or 0.0 for figure in self.figures if not isinstance(figure.value, str)]
        return max(numbers, default=0.0) - min(numbers, default=0.0)

    @property
    def change(self) -> str:
        """Of two sides with quantities, how much more the second has; empty otherwise."""
        if self.section in (PLAN, INPUT) or self.key == "mfu":
            return ""
        numbers = [figure.value for figure in self.figures if isinstance(figure.value, int | float)]
        if len(self.figures) != 2 or len(numbers) != 2 or not numbers[0] or not self.differs:
            return ""
        return percent(numbers[1] / numbers[0])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = [figure.value for figure in self.figures]
        return {"key": self.key, "section": self.section, "name": self.name, "values": values}


def percent(ratio: float) -> str:
    """A change for people: percent up to twice, times from there.

    >>> percent(1.25), percent(0.5), percent(3.0), percent(1.0)
    ('+25 %', '-50 %', 'x 3.00', '0 %')
    """
    if ratio >= 2:
        return f"x {three_digits(ratio)}"
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "0 %"
    return f"{change:+.1f} %" if abs(change) < 10 else f"{change:+.0f} %"


def lines(sides: Sequence[Side]) -> list[Line]:
    """Every line of all sides: differences first, results before what they are made of, and inputs last.

    Parts of time and memory come in the order of how far the sides are apart.
    """
    parts = sum(side.ranked is not None for side in sides) > 1
    each = [dict(_figures(side, parts=parts)) for side in sides]
    keys = dict.fromkeys(key for figures in each for key in figures)
    absent = Figure(None, NOTHING)
    found = [Line(*key, figures=tuple(figures.get(key, absent) for figures in each)) for key in keys]
    order = [RESULT, TIME, MEMORY, PLAN, INPUT]

    def place(line: Line) -> tuple[bool, int, float]:
        return (not line.differs, order.index(line.section), -line.spread if line.section in (TIME, MEMORY) else 0.0)

    return sorted(found, key=place)


def _figures(side: Side, *, parts: bool) -> Iterator[tuple[tuple[str, str, str], Figure]]:
    """What there is to say of one side; with the parts of its time and memory where another has them too."""
    if side.ranked is not None:
        yield from _results(side.ranked)
        yield from _parts(side.ranked) if parts else ()
        yield from _plan(side.ranked)
    else:
        yield (RESULT, "plan", "plan"), Figure("nothing fits", "nothing fits")
    yield from _inputs(side.question)


def _results(ranked: RankedPlan) -> Iterator[tuple[tuple[str, str, str], Figure]]:
    rate, total, each = ranked.rate
    money, run = ranked.usd_per_million_tokens, ranked.run
    numbers: list[tuple[str, str, float, str]] = [
        ("step_time_s", "step time", ranked.step_time, format_seconds(ranked.step_time)),
        ("rate", f"{rate}, total", total, format_rate(total)),
        ("rate_per_gpu", f"{rate}, per GPU", each, format_rate(each)),
        ("mfu", "MFU", float(ranked.speed.mfu), f"{100 * float(ranked.speed.mfu):.1f} %"),
        ("peak_memory_gib", "peak memory per GPU", ranked.peak / GIB, format_bytes(ranked.peak)),
        ("usable_memory_gib", "usable memory per GPU", ranked.usable / GIB, format_bytes(ranked.usable)),
    ]
    if money:
        numbers.append(("usd_per_million_tokens", "USD per Mtok", sum(money) / 2, _range(*money)))
    if run:
        numbers.append(("days", "days of the run", run.days, three_digits(run.days)))
        numbers.append(("gpu_hours", "GPU-hours of the run", run.gpu_hours, f"{run.gpu_hours:,.0f}"))
    yield (RESULT, "plan", "plan"), Figure(ranked.name, ranked.name)
    for key, name, value, text in numbers:
        yield (RESULT, key, name), Figure(float(value), text)
    verdict = ranked.verdict.name.lower()
    yield (RESULT, "memory_verdict", "memory verdict"), Figure(verdict, verdict.replace("_", " "))


def _parts(ranked: RankedPlan) -> Iterator[tuple[tuple[str, str, str], Figure]]:
    """Every term of the step and item of the peak that is not nothing."""
    for name, value in time_terms(ranked.time).items():
        if value:
            yield (TIME, f"{name}_s", f"time: {TIME_TERMS[name].title}"), Figure(value, format_seconds(value))
    for name, value in memory_items(ranked.memory).items():
        if value:
            figure = Figure(value / GIB, format_bytes(value))
            yield (MEMORY, f"{name}_gib", f"memory: {MEMORY_TERMS[name].title}"), figure


def _plan(ranked: RankedPlan) -> Iterator[tuple[tuple[str, str, str], Figure]]:
    degrees = ("tp", "pp", "cp", "ep", "dp_shard", "dp_replicate", "virtual_stages", "micro_batch_size")
    for name in (*degrees, "num_microbatches"):
        value = int(getattr(ranked.plan, name))
        yield (PLAN, name, name), Figure(value, str(value))
    words: dict[str, Callable[[Plan], str]] = {
        "schedule": lambda plan: SCHEDULE_NAMES[Schedule(int(plan.schedule))],
        "recompute": lambda plan: RECOMPUTE_NAMES[Recompute(int(plan.recompute))],
        "also": lambda plan: extras(plan) or NOTHING,
    }
    for name, word in words.items():
        yield (PLAN, name, name), Figure(word(ranked.plan), word(ranked.plan))


def _inputs(asked: Question) -> Iterator[tuple[tuple[str, str, str], Figure]]:
    cluster, job, price = asked.cluster, asked.workload, asked.price
    node, part = cluster.node, cluster.accelerator
    nics = f"{node.fabric.nics_per_node} x {format_bandwidth(node.fabric.nic_bandwidth)}"
    peak = part.peak_flops(job.precision) / 1e12
    texts = {
        "model": asked.model.name,
        "parameters": format_count(asked.model.parameters),
        "cluster": cluster.name,
        "GPUs": f"{cluster.world_size:,}",
        "nodes": f"{cluster.num_nodes:,}",
        "accelerator": part.name,
        "peak TFLOP/s per GPU": f"{peak:,.0f}",
        "memory bandwidth per GPU": format_bandwidth(part.memory_bandwidth),
        "link in the node": f"{node.link}, {format_bandwidth(node.link_bandwidth)}",
        "network": node.fabric.name,
        "NICs per node": nics if cluster.num_nodes > 1 else NOTHING,
        "sequence length": f"{job.seq_len:,}",
        "global batch (sequences)": f"{job.global_batch_size:,}",
        "precision": job.precision,
        "state": job.state,
        "optimizer": job.optimizer,
        "method": job.method,
        "attention": job.attention,
        "offload": asked.choices.offload or "none",
        "stack": asked.stack.name,
        "efficiencies": f"{asked.profile.name} ({asked.profile.level})",
        "USD per GPU-hour": _range(price.low, price.high) if price else NOTHING,
        "held fixed": asked.choices.fix or NOTHING,
    }
    for name, text in texts.items():
        yield (INPUT, name, name), Figure(text, text)


def _range(low: float, high: float) -> str:
    ends = [three_digits(each) for each in (low, high)]
    return ends[0] if ends[0] == ends[1] else "-".join(ends)
