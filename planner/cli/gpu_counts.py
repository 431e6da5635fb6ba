"""The fewest GPUs of each accelerator, printed for people."""

from __future__ import annotations

from planner.answer.min_gpus import GpuCount, MinGpus
from planner.answer.ranked_plan import RankedPlan
from planner.cli.printing import Heading, say, table
from planner.quantities import GIB, counted, format_bytes, format_seconds, three_digits


def print_counts(found: MinGpus) -> None:
    """A row for each accelerator, then why some have no answer."""
    table(_headings(found), [_row(found, each) for each in found.counts])
    say()
    for each in found.counts:
        if each.reason:
            say(f"{each.accelerator}: {each.reason}", indent="  ")


def _headings(found: MinGpus) -> list[Heading]:
    return [
        Heading("GPU", 1, left=True),
        *([] if found.days is None else [Heading("fits\nfrom", 2)]),
        Heading("GPUs", 1),
        Heading("USD per hour", 3),
        Heading("plan", 1, left=True),
        Heading("memory per\nGPU (GiB)", 1),
        Heading("usable\n(GiB)", 3),
        Heading("fits", 1, left=True),
        Heading("largest item", 2, left=True),
        Heading("step time", 2),
        Heading("tokens/s\ntotal", 2),
        Heading("days", 2),
        Heading("GPU-hours", 3),
        Heading("USD", 2),
        Heading("next smaller", 2, left=True),
    ]


def _row(found: MinGpus, count: GpuCount) -> list[str]:
    ranked = found.answer_of(count)
    fits_from = [] if found.days is None else [_gpus(count.fewest)]
    if ranked is None:
        return [count.accelerator, *fits_from, "-", *[""] * 12]
    largest = ranked.memory_terms[0]
    return [
        count.accelerator,
        *fits_from,
        _gpus(ranked),
        _rent(ranked),
        ranked.name,
        f"{ranked.peak / GIB:.1f}",
        f"{ranked.usable / GIB:.1f}",
        ranked.verdict.name.lower(),
        f"{largest.term.title} ({format_bytes(largest.value)})",
        format_seconds(ranked.step_time),
        f"{float(ranked.speed.tokens_per_s):,.0f}",
        *_run(ranked),
        _next(count),
    ]


def _gpus(ranked: RankedPlan | None) -> str:
    return f"{ranked.question.cluster.world_size:,}" if ranked else "-"


def _rent(ranked: RankedPlan) -> str:
    price, gpus = ranked.question.price, ranked.question.cluster.world_size
    return _range(three_digits(price.low * gpus), three_digits(price.high * gpus)) if price else "-"


def _run(ranked: RankedPlan) -> list[str]:
    """Days, GPU-hours and USD of the run; empty where no tokens were given."""
    run = ranked.run
    if run is None:
        return ["", "", ""]
    money = _range(f"{run.usd_low:,.0f}", f"{run.usd_high:,.0f}") if ranked.question.price else "-"
    return [three_digits(run.days), f"{run.gpu_hours:,.0f}", money]


def _next(count: GpuCount) -> str:
    """With which single changes the next smaller count would do."""
    if not count.fewer:
        return ""
    changes = " | ".join(each.options for each in count.changes) or "no single change"
    return f"{counted(count.fewer, 'GPU')}: {changes}"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"
