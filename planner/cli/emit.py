"""`planner emit`: the files that run a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option
from planner.cli.printing import note, print_json, say, whole_line

if TYPE_CHECKING:
    from planner.answer.emission import Emission

force_option = click.option("--force", is_flag=True, help="Replace files that are there already.")


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--target", required=True, metavar="NAME", help="Trainer, launcher, or both: slurm,megatron.")
@click.option("--into", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write into.")
@force_option
@json_option
def emit(plan: Path, target: str, into: Path, force: bool, as_json: bool) -> None:
    """Write the files that run a plan, and print the command that starts them.

    PLAN is a plan.json or a folder that holds one. A trainer alone is started by torchrun, a launcher alone starts the
    planner's own trainer. A plan that the target cannot express is refused, with the nearest that it can.
    """
    from planner.answer.emission import emit as write
    from planner.spec.plan_file import FILE_NAME, read_plan_file

    made = write(read_plan_file(plan / FILE_NAME if plan.is_dir() else plan), target, into, force=force)
    if as_json:
        return print_json(made.as_dict())
    say(written(made))
    say("Start it with:")
    whole_line(f"  {made.start}")
    for remark in made.notes:
        note(f"note: {remark}")
    return None


def written(made: Emission) -> str:
    """What was written, folders counted as one."""
    tops: dict[str, int] = {}
    for name in made.files:
        top, slash, _ = name.partition("/")
        tops[top + slash] = tops.get(top + slash, 0) + 1
    listed = ", ".join(f"{top} ({count} files)" if top.endswith("/") else top for top, count in sorted(tops.items()))
    return f"Wrote {listed} into {made.folder} for {made.target}."
