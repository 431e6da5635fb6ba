"""`planner feed`: what storage, loaders and host have to keep up with, what launches cost, a change of batch."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import question_from, question_options
from planner.cli.printing import note, print_json, say, whole_line


@click.command()
@question_options
@click.option("--storage-gb-per-s", type=float, metavar="GB/S", help="Of the storage, for all GPUs [by their number].")
@click.option(
    "--sample-bytes", type=float, metavar="BYTES", help="Of a stored sequence or image [ids of 2 or 4 bytes]."
)
@click.option(
    "--samples-per-s-per-worker", type=float, metavar="N", help="What a loader worker prepares [text, tokenised]."
)
@click.option("--from-batch", metavar="N|NMtok", help="The global batch before: adds what the learning rate becomes.")
@click.option("--learning-rate", type=float, metavar="LR", help="At that batch.")
def feed(as_json: bool, quiet: bool, **asked: Any) -> None:
    """Say what storage, loaders and host have to keep up with, and what launches and the batch do.

    All of it is of the plan that recommend puts first.
    """
    from dataclasses import fields

    from planner.answer.feed import FeedChoices
    from planner.answer.feed import feed as answer
    from planner.cli.feed_report import print_feed

    chosen = FeedChoices(**{field.name: asked.pop(field.name) for field in fields(FeedChoices)})
    found = answer(question_from(asked, quiet=quiet), chosen)
    for each in found.assumed if not quiet else ():
        note(f"assumed: {each}")
    if as_json:
        return print_json(found.as_dict())
    print_feed(found)
    say()
    return whole_line(found.command)
