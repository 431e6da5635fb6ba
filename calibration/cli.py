"""`planner calibrate`: measure the machine at hand, and say what a profile rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import json_option
from planner.cli.printing import Heading, note, print_json, say, table, whole_line

if TYPE_CHECKING:
    from calibration.status import Status

DEFAULT_MINUTES = 10.0
DEFAULT_STACK = "pytorch"


HEADINGS = (
    Heading("parameter", left=True),
    Heading("value", 2, left=True),
    Heading("origin", left=True),
    Heading("measurements"),
    Heading("last", 2, left=True),
)
model_option = click.option("--model", metavar="MODEL", help="With --cluster: measure what this decision hangs on.")
cluster_option = click.option("--cluster", metavar="CLUSTER", help="Name or TOML of what the ranks run on.")


@click.group()
def calibrate() -> None:
    """Measure what predictions rest on, on the machine at hand, and show what a profile rests on."""


@calibrate.command()
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="What is measured [cuda where there is one].")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.05, max=1440),
    default=DEFAULT_MINUTES,
    show_default=True,
    metavar="M",
    help="Time for the whole run; the most valuable measurements come first.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("calibration.json"),
    show_default=True,
    metavar="FILE.json",
    help="The profile; a run on the same file goes on where the last one ended.",
)
@click.option("--processes", type=click.IntRange(1, 1024), metavar="N", help="Ranks to start [one a GPU; 2 on a CPU].")
@click.option("--stack", default=DEFAULT_STACK, show_default=True, metavar="NAME", help="Whose factors are the rest.")
@model_option
@cluster_option
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
def run(device: str | None, minutes: float, **given: Any) -> None:
    """Measure this machine within a budget of time, and write a profile that every command takes as --profile.

    Under torchrun its ranks measure together; otherwise as many are started as there are GPUs.
    """
    from calibration.command import Request, measure_here

    report = measure_here(Request(device=device, seconds=60 * minutes, **given))
    if report is None:
        return
    for remark in report.notes if not given["quiet"] else ():
        note(f"note: {remark}")
    whole_line(report.sentence)
    for line in report.commands:
        whole_line(line)


@calibrate.command()
@click.option(
    "--profile", type=click.Path(path_type=Path), required=True, metavar="FILE.json", help="The profile to look at."
)
@model_option
@cluster_option
@json_option
def status(profile: Path, model: str | None, cluster: str | None, as_json: bool) -> None:
    """Show what of a profile was measured, what is taken from elsewhere, its age, and what to measure next."""
    from calibration.command import planned
    from calibration.record import Record
    from calibration.status import status_of

    order = None
    if model or cluster:
        order = planned(Record.read(profile).machine, model, cluster, profile)
    found = status_of(profile, order)
    if as_json:
        return print_json(found.as_dict())
    return _print(found)


def _print(found: Status) -> None:
    dates = found.dates
    when = (
        f"{found.age_days:.1f} days old, measured {dates[0][:10]} to {dates[1][:10]}"
        if dates
        else "nothing measured here"
    )
    say(f"{found.profile.name}: {found.profile.level}; {when}")
    if found.record:
        here = found.record.machine
        say(f"on {here.host}: {here.processes} x {here.name}, torch {here.versions.get('torch', '?')}")
    say()
    rows = [[one.name, one.value, one.origin, str(one.measurements or "-"), one.last] for one in found.parameters]
    table(HEADINGS, rows)
    for text in found.untold:
        say(f"not told apart: {text}")
    for number, one in enumerate(found.next, start=1):
        say(f"{'next' if number == 1 else 'then'}: {one.key}")
