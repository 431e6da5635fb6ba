"""`planner min-gpus`: how few GPUs of each kind, to fit and to finish in time, and what would make fewer do."""

from __future__ import annotations

from typing import Any

import click

from planner.answer.choices import Choices
from planner.cli.options import model_options, names_given, print_notes
from planner.cli.printing import print_json, say, whole_line


@click.command("min-gpus")
@model_options
@click.option(
    "--gpu",
    callback=names_given,
    metavar="NAME,...",
    help="Accelerators to compare [ten common ones]. (planner ls gpus)",
)
@click.option("--days", type=float, metavar="D", help="With --tokens: the fewest that finish the run in D days.")
def min_gpus(gpu: tuple[str, ...] | None, days: float | None, as_json: bool, quiet: bool, **asked: Any) -> None:
    """Say how few GPUs of each kind MODEL needs, to fit and to finish in time.

    Counts are 1, 2, 4 and 8 in one node, then whole nodes up to 16,384 GPUs.
    """
    from planner.answer.min_gpus import USUAL_ACCELERATORS
    from planner.answer.min_gpus import min_gpus as answer
    from planner.cli.gpu_counts import print_counts

    model = asked.pop("model")
    found = answer(model, Choices(**asked), accelerators=USUAL_ACCELERATORS if gpu is None else gpu, days=days)
    if not quiet:
        print_notes(*found.questions)
    if as_json:
        return print_json(found.as_dict())
    say(found.sentence)
    say()
    print_counts(found)
    return whole_line(found.command)
