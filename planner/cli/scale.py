"""`planner scale`: how far a job scales on a node type, on several networks side by side."""

from __future__ import annotations

from typing import Any

import click

from planner.answer.choices import Choices
from planner.cli.options import model_options, print_notes
from planner.cli.printing import print_json, say, whole_line


@click.command()
@model_options
@click.argument("nodetype")
@click.option(
    "--gpus", metavar="A..B", default="8..16384", show_default=True, help="Sizes: one node doubled, within these."
)
@click.option("--weak", is_flag=True, help="The batch grows with the GPUs.")
@click.option("--strong", is_flag=True, help="The batch stays as it is [this].")
@click.option("--max-global-batch-size", metavar="N|NMtok", help="Beyond it convergence suffers [16M tokens].")
def scale(
    nodetype: str,
    gpus: str,
    max_global_batch_size: str | None,
    *,
    weak: bool,
    strong: bool,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Say how far MODEL scales on nodes of NODETYPE, for one or several networks.

    NODETYPE is a node type (planner ls nodes) or an accelerator, for its standard node. --network takes several names
    with commas between them.
    """
    from planner.answer.scaling import scaling
    from planner.cli.scale_table import print_scaling

    if weak and strong:
        raise click.UsageError("--weak and --strong exclude each other")
    model = asked.pop("model")
    found = scaling(
        model, nodetype, Choices(**asked), sizes=gpus, weak=weak, max_global_batch_size=max_global_batch_size
    )
    if not quiet:
        print_notes(*found.questions)
    if as_json:
        return print_json(found.as_dict())
    say(found.sentence)
    say()
    print_scaling(found)
    return whole_line(found.command)
