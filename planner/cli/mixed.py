"""`planner mixed`: the ways to use a cluster of unequal nodes, with uneven work or without the slow ones."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import question_from, question_options
from planner.cli.printing import print_json, say, whole_line


@click.command()
@question_options
def mixed(as_json: bool, quiet: bool, **asked: Any) -> None:
    """Say how to train MODEL on a CLUSTER of unequal nodes.

    Compares one pace for all with uneven micro-batches, uneven layers over pipeline stages, and parts of the cluster
    left out. CLUSTER is a cluster TOML with several pools.
    """
    from planner.answer.mixed.answer import mixed as answer
    from planner.cli.mixed_report import print_mixed

    found = answer(question_from(asked, quiet=quiet))
    if as_json:
        return print_json(found.as_dict())
    print_mixed(found)
    say()
    return whole_line(found.command)
