"""Every value that was tried for the largest that fits, printed for people."""

from __future__ import annotations

from planner.answer.largest import Largest, SizePoint
from planner.cli.printing import Heading, say, table
from planner.quantities import GIB, format_count, format_seconds


def print_sizes(found: Largest) -> None:
    """The table, and which values were tried."""
    table(_headings(found), [_row(found, point) for point in found.shown])
    say()
    say(f"tried: {found.solved.steps}", indent="  ")
    if any(point.ranked is None for point in found.shown):
        say("memory where nothing fits: of the plan that needs least", indent="  ")
    say()


def _headings(found: Largest) -> list[Heading]:
    sizes = [Heading("layers", 3), Heading("hidden\nsize", 3)] if found.solved.name == "params" else []
    batch = [] if found.solved.name == "global-batch" else [Heading("global batch\n(sequences)", 3)]
    return [
        Heading(f"{found.solved.name}\n({found.solved.unit}s)", 1),
        *sizes,
        *batch,
        Heading("fits", 1, left=True),
        Heading("plan", 2, left=True),
        Heading("step time", 1),
        Heading("tokens/s\ntotal", 1),
        Heading("MFU (%)", 3),
        Heading("memory per\nGPU (GiB)", 1),
        Heading("", 1, left=True),
    ]


def _row(found: Largest, point: SizePoint) -> list[str]:
    model, ranked = point.model, point.ranked
    of_model = found.solved.name == "params"
    sizes = [f"{model.num_hidden_layers:,}", f"{model.hidden_size:,}"] if of_model else []
    value = format_count(point.value) if of_model else f"{point.value:,}"
    batch = [] if found.solved.name == "global-batch" else [_batch(point)]
    if ranked is None:
        least = f"{point.least_memory / GIB:,.1f}" if point.least_memory else ""
        return [value, *sizes, *batch, "no" if least else "not legal", "", "", "", "", least, ""]
    marks = {"largest": ranked is found.largest, "fastest": ranked is found.fastest and not of_model}
    marks["highest MFU"] = ranked is found.fastest and of_model
    return [
        value,
        *sizes,
        *batch,
        ranked.verdict.name.lower(),
        ranked.name,
        format_seconds(ranked.step_time),
        f"{float(ranked.speed.tokens_per_s):,.0f}",
        f"{100 * float(ranked.speed.mfu):.1f}",
        f"{ranked.peak / GIB:.1f}",
        ", ".join(mark for mark, holds in marks.items() if holds),
    ]


def _batch(point: SizePoint) -> str:
    return f"{point.ranked.question.workload.global_batch_size:,}" if point.ranked else ""
