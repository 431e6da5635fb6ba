"""`planner calibrate`: measure the machine at hand, and say what a profile rests on."""

from __future__ import annotations

import time
from pathlib import Path

import click

from planner.cli.printing import note, whole_line

DEFAULT_MINUTES = 10.0
DEFAULT_STACK = "pytorch"


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
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
def run(device: str | None, minutes: float, *, out: Path, processes: int | None, stack: str, quiet: bool) -> None:
    """Measure this machine within a budget of time, and write a profile that every command takes as --profile.

    Under torchrun its ranks measure together; otherwise as many are started as there are GPUs.
    """
    deadline = time.time() + 60 * minutes
    from calibration.command import Request, measure_here

    report = measure_here(Request(device, out, deadline, processes, stack, quiet))
    if report is None:
        return
    for remark in report.notes if not quiet else ():
        note(f"note: {remark}")
    whole_line(report.sentence)
    for line in report.commands:
        whole_line(line)
