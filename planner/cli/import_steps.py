"""`planner import steps`: step times and memory of runs, from logs and traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.emit import force_option
from planner.cli.options import json_option
from planner.cli.printing import Heading, note, print_json, say, table

if TYPE_CHECKING:
    from planner.answer.steps.reading import ImportedSteps
    from planner.answer.steps.records import Run

HEADINGS = (
    Heading("run", left=True),
    Heading("plan", 2, left=True),
    Heading("steps", 1),
    Heading("left\nout", 3),
    Heading("step (s)"),
    Heading("spread\n(%)", 2),
    Heading("predicted\n(s)"),
    Heading("80 %\ninterval (s)", 1),
    Heading("off\n(%)"),
    Heading("peak\n(GiB)"),
    Heading("kind", 3, left=True),
    Heading("predicted\n(GiB)", 1),
    Heading("tokens/s", 3),
)
FEW_ODD = 3
"""Steps that stand out and are named one by one."""


@click.command("steps", short_help="Read step times and memory from logs and profiler traces, and write them as CSV.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="The runs' plan.json or settings.")
@click.option("--model", metavar="MODEL", help="Name, config.json or folder, where no file tells it.")
@click.option("--cluster", metavar="CLUSTER", help="Where they ran, such as 2xdgx-h100, where no file tells it.")
@click.option("--stack", metavar="STACK", help="What trained, where no file tells it [by the log].")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="OUT", help="Write rows for `validate`.")
@force_option
@json_option
def steps(files: tuple[Path, ...], csv_file: Path | None, *, force: bool, as_json: bool, **told: object) -> None:
    """Read step times and peak memory from logs of trainers, records of the planner's own, and profiler traces.

    Warm-up and steps that stand out are left out. Where files or options tell the plan, the prediction stands beside.
    """
    from planner.answer.steps.reading import import_steps, write_rows
    from planner.answer.steps.records import StepsAsked
    from planner.quantities import counted

    if force and csv_file is None:
        raise click.UsageError("--force replaces the file of --csv, which is not given")
    found = import_steps(files, StepsAsked(**told))  # type: ignore[arg-type]
    written = write_rows(found, csv_file, force=force) if csv_file else None
    if as_json:
        return print_json(found.as_dict())
    for reason in found.failed:
        note(f"note: {reason}")
    for run in found.runs:
        _print_notes(run)
    _print(found)
    if written:
        say()
        say(f"Wrote {counted(len(found.runs), 'row')} to {written}.")
    return None


def _print_notes(run: Run) -> None:
    for remark in run.notes:
        note(f"note: {run.path}: {remark}")
    if run.missing:
        note(f"note: {run.path}: for a prediction, and a whole row of the table, name {', '.join(run.missing)}")
    odd = [each.words for each in run.times.odd]
    if odd:
        more = f", and {len(odd) - FEW_ODD} more" if len(odd) > FEW_ODD else ""
        note(f"note: {run.path}: left out as they stand out: {', '.join(odd[:FEW_ODD])}{more}")


def _print(found: ImportedSteps) -> None:
    say(_sentence(found.runs))
    say()
    table(HEADINGS, [_row(run) for run in found.runs])
    traced = [run for run in found.runs if run.trace]
    if traced:
        say()
        table(*_spent(traced))


def _sentence(runs: tuple[Run, ...]) -> str:
    """The answer: `3 runs read: 8.41 s a step (median of 46 steps, spread 1.2 %), peak 61.3 GiB reserved.`."""
    from planner.quantities import GIB, counted, format_seconds

    medians = sorted(run.times.median for run in runs)
    low, high = format_seconds(medians[0]), format_seconds(medians[-1])
    steps, spread = sum(len(run.times.counted) for run in runs), max(run.times.spread for run in runs)
    words = f"{low} a step" if low == high else f"{low} to {high} a step"
    up_to = "up to " if len(runs) > 1 else ""
    parts = [f"{words} (median of {counted(steps, 'step')}, spread {up_to}{spread:.1%})".replace("%)", " %)")]
    for kind in ("reserved", "allocated", "device"):
        sizes = [run.memory[kind] / GIB for run in runs if run.memory_kind == kind]
        if sizes:
            parts.append(f"peak {max(sizes):.3g} GiB {kind}")
    return f"{counted(len(runs), 'run')} read: {', '.join(parts)}."


def _row(run: Run) -> list[str]:
    from planner.quantities import GIB, three_digits

    ranked, expected = run.ranked, run.predicted_memory
    return [
        run.stated.id,
        ranked.name if ranked else "-",
        str(len(run.times.counted)),
        str(run.times.warm_up + len(run.times.odd)),
        three_digits(run.times.median),
        f"{run.times.spread * 100:.1f}",
        three_digits(ranked.step_time) if ranked else "-",
        f"{three_digits(ranked.interval.low)} to {three_digits(ranked.interval.high)}" if ranked else "-",
        f"{run.error * 100:+.1f}" if run.error is not None else "-",
        f"{run.memory[run.memory_kind] / GIB:.1f}" if run.memory_kind else "-",
        run.memory_kind or "-",
        f"{expected[0] / GIB:.1f} ({expected[1].low / GIB:.1f} to {expected[1].high / GIB:.1f})" if expected else "-",
        f"{run.tokens_per_s:,.0f}" if run.tokens_per_step else "-",
    ]


def _spent(runs: list[Run]) -> tuple[list[Heading], list[list[str]]]:
    """What the steps of traces were spent on, as shares of a step: one row a kind, one column a run."""
    lines: dict[str, list[str]] = {}
    for place, run in enumerate(runs):
        assert run.trace is not None
        busy, step = run.trace.busy, run.times.median
        parts = {
            **busy.kinds,
            **busy.collectives,
            "exposed communication": busy.exposed,
            "idle" if run.trace.on_device else "no operator runs": busy.idle,
            "of it the host's": busy.host_bound,
        }
        for name, seconds in parts.items():
            if seconds is not None:
                share = f"{seconds * 1e3:,.4g} ms  {seconds / step:.1%}".replace("%", " %")
                lines.setdefault(name, ["-"] * len(runs))[place] = share
    headings = [Heading("of a step", left=True), *(Heading(run.stated.id) for run in runs)]
    return headings, [[name, *shares] for name, shares in lines.items()]
