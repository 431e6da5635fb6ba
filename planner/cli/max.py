"""`planner max`: the longest sequence, largest batch or model that fits, and the fastest."""

from __future__ import annotations

from typing import Any

import click

from planner.answer.choices import Choices
from planner.cli.options import print_notes, question_options
from planner.cli.printing import print_json, say, whole_line

SOLVED_FOR = ("seq-len", "micro-batch", "params", "global-batch")


@click.command("max")
@question_options
@click.option("--solve", type=click.Choice(SOLVED_FOR, case_sensitive=False), required=True, help="What is looked for.")
def max(solve: str, as_json: bool, quiet: bool, **asked: Any) -> None:
    """Say the longest sequence, largest batch or model that fits CLUSTER, and the fastest.

    --solve params asks for MODEL in other sizes: layers, heads, hidden and feed-forward sizes in proportion.
    """
    from planner.answer.largest import largest
    from planner.cli.size_table import print_sizes

    model, cluster = asked.pop("model"), asked.pop("cluster")
    found = largest(model, cluster, Choices(**asked), solve=solve)
    if not quiet:
        print_notes(found.largest.question, found.fastest.question)
    if as_json:
        return print_json(found.as_dict())
    say(found.sentence)
    say()
    print_sizes(found)
    return whole_line(found.command)
