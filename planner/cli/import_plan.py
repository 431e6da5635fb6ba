"""`planner import plan`: a framework's settings as a plan, and what it will do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.emit import force_option
from planner.cli.options import json_option, quiet_option
from planner.cli.printing import Heading, note, print_json, say, table, whole_line

if TYPE_CHECKING:
    from planner.answer.importing import Import
    from planner.answer.ranked_plan import RankedPlan


@click.command("plan", short_help="Read a framework's settings as a plan, and say what it will do.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", metavar="MODEL", help="Name, config.json or folder [the config.json beside it].")
@click.option("--cluster", metavar="CLUSTER", help="Where it runs, such as 4xdgx-h100.")
@click.option("--emit", type=click.Path(path_type=Path), metavar="DIR", help="Write the plan.json there.")
@force_option
@quiet_option
@json_option
def plan(file: Path, emit: Path | None, *, force: bool, quiet: bool, as_json: bool, **named: str | None) -> None:
    """Read the settings in FILE as a plan: torchrun and launch scripts, Megatron-LM, torchtitan, accelerate, DeepSpeed.

    With model and cluster it says how long a step takes and whether it fits; without, what the file tells. What it
    cannot tell is noted on stderr.
    """
    from planner.answer.importing import import_plan

    if force and emit is None:
        raise click.UsageError("--force replaces the file of --emit DIR, which is not given")
    made = import_plan(file, model=named["model"], cluster=named["cluster"])
    remarks = [*made.remarks, *_keep(made, emit, force=force)]
    for remark in remarks if not quiet else ():
        note(f"note: {remark}")
    if as_json:
        return print_json(made.as_dict())
    return _print(made)


def _keep(made: Import, folder: Path | None, *, force: bool) -> list[str]:
    """Write the plan.json; what there is to say of it."""
    from planner.answer.emission import keep
    from planner.answer.plan_files import plan_file_of

    if folder is None:
        return []
    if made.ranked is None:
        raise click.UsageError("--emit needs --model and --cluster: a plan.json holds both")
    return [f"wrote {keep(plan_file_of(made.ranked), folder, force=force)}"]


def _print(made: Import) -> None:
    from planner.answer.importing import told

    if made.ranked is None:
        say(f"{made.path}: {made.settings.what}.")
        say()
        return table(
            [Heading("field", left=True), Heading("value", left=True)],
            [[name, _text(value)] for name, value in told(made.settings).items()],
        )
    for line in _summary(made.ranked):
        say(line, indent="  ")
    say()
    return whole_line(made.command) if made.command else None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _summary(ranked: RankedPlan) -> list[str]:
    """The plan, its time and its memory, a sentence each."""
    from planner.answer.fit_sentence import VERDICTS
    from planner.quantities import format_bytes, format_seconds

    asked, interval = ranked.question, ranked.interval
    job = asked.workload
    low, high = format_seconds(interval.low), format_seconds(interval.high)
    tokens = f"{job.global_batch_size:,} x {job.seq_len:,} tokens"
    largest = max(ranked.memory_terms, key=lambda each: each.value)
    return [
        f"Train {asked.model.name} on {asked.cluster.name} with {ranked.words}.",
        f"A step of {tokens} takes {format_seconds(ranked.step_time)} ({low} to {high} with 80 % probability): "
        f"{ranked.speed.tokens_per_s:,.0f} tokens/s, MFU {ranked.speed.mfu:.1%}.",
        f"{VERDICTS[ranked.verdict]}: peak {format_bytes(ranked.peak)} per GPU of {format_bytes(ranked.usable)} "
        f"usable, the largest item {largest.term.title} ({format_bytes(largest.value)}).",
    ]
