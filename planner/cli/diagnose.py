"""`planner diagnose`: why a run is slow, out of memory or stuck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import json_option, quiet_option
from planner.cli.printing import Heading, note, print_json, say, table, whole_line

if TYPE_CHECKING:
    from planner.answer.diagnosis.records import Cause, Comparison, Diagnosis


@click.command(short_help="Say why a run is slow, out of memory or stuck, and what to change.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="The run's plan.json or settings.")
@click.option("--model", metavar="MODEL", help="Name, config.json or folder, where no file tells it.")
@click.option("--cluster", metavar="CLUSTER", help="Where it ran, such as 2xdgx-h100, where no file tells it.")
@click.option("--gpu", metavar="NAME", help="Accelerator of nccl-tests tables and dumps that do not name it.")
@click.option("--fix", metavar="K=V,...", help="The plan, where no file tells it, such as tp=8,recompute=full.")
@click.option("--seq-len", type=int, metavar="TOKENS", help="Tokens per sequence, where no file tells it.")
@click.option("--global-batch-size", metavar="N|NMtok", help="Sequences per step, where no file tells it.")
@click.option("--measured-tps", metavar="N[/gpu|/total]", help="Measured tokens per second, of one GPU or of all.")
@click.option("--measured-mem", metavar="SIZE", help="Measured peak of a GPU, such as 26.5GiB.")
@quiet_option
@json_option
def diagnose(*, quiet: bool, as_json: bool, **asked: Any) -> None:
    """Say why a run is slow, out of memory or stuck: what was expected, what was measured, and what to change.

    FILES are what there is, in any mix: settings of a trainer, plan.json, a trainer's log, an error message, logs of
    nccl-tests and NCCL, what nvidia-smi, ibstat and others print. Each is recognised by what it holds.
    """
    from planner.answer.diagnosis.diagnose import diagnose as judge
    from planner.answer.diagnosis.records import Asked

    if not asked["files"] and not asked["plan"] and not (asked["model"] and asked["cluster"]):
        raise click.UsageError("name what there is: settings, a log, an error message, a table of nccl-tests")
    found = judge(Asked(**asked))
    for remark in _remarks(found) if not quiet else ():
        note(f"note: {remark}")
    if as_json:
        return print_json(found.as_dict())
    return _print(found)


def _remarks(found: Diagnosis) -> list[str]:
    problems = [f"{each.path} {each.problem}" for each in found.case.files if each.problem]
    return [*problems, *found.case.notes]


def _print(found: Diagnosis) -> None:
    from planner.quantities import three_digits

    say(found.sentence)
    if found.case.files:
        say()
    for each in found.case.files:
        say(f"{each.path}: {each.taken_for}", indent="  ")
    if found.readings:
        figures = [(name.replace("_per_", "/").replace("_", " "), *each) for name, each in found.readings.items()]
        say()
        say(
            f"Read: {', '.join(f'{name} {three_digits(value)} {unit}' for name, value, unit, _ in figures)}.",
            indent="  ",
        )
    if found.comparisons:
        say()
        _print_figures(found.comparisons)
    for number, cause in enumerate(found.causes, start=1):
        say()
        _print_cause(number, cause)


def _print_figures(comparisons: tuple[Comparison, ...]) -> None:
    from planner.quantities import three_digits

    headings = [
        Heading("", left=True),
        Heading("measured"),
        Heading("expected"),
        Heading("low"),
        Heading("high"),
        Heading("unit", left=True),
        Heading("", left=True),
        Heading("by", 3, left=True),
    ]
    table(
        headings,
        [
            [
                each.what,
                *(three_digits(value) for value in (each.measured, each.expected, each.low, each.high)),
                each.unit,
                each.standing.name.lower(),
                each.basis,
            ]
            for each in comparisons
        ],
    )


def _print_cause(number: int, cause: Cause) -> None:
    say(f"{number}. {cause.cause} ({cause.strength.name.lower()})")
    say(f"   because {cause.evidence}", indent="     ")
    say(f"   set: {cause.setting}", indent="     ")
    whole_line(f"   run: {cause.next_command}")
