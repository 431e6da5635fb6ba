"""`planner ls`: what the catalogue knows by name."""

from __future__ import annotations

import click

from planner.cli.options import json_option
from planner.cli.printing import Heading, print_json, say, table

KINDS = ("models", "gpus", "nodes", "networks", "stacks")


@click.command()
@click.argument("kind", type=click.Choice(KINDS, case_sensitive=False), required=False)
@json_option
def ls(kind: str | None, as_json: bool) -> None:
    """List the catalogue: models, GPUs, nodes, networks, stacks.

    Without KIND: how many there are of each.
    """
    from planner.answer.listing import listing

    kinds = [kind] if kind else list(KINDS)
    found = {each: listing(each) for each in kinds}
    if as_json:
        return print_json({"schema_version": 1, **{each: rows.as_dicts() for each, rows in found.items()}})
    if not kind:
        for each, rows in found.items():
            say(f"{len(rows.rows):4} {each:9} planner ls {each}")
        return None
    rows = found[kind]
    return table([Heading(column.title, column.priority, column.left) for column in rows.columns], rows.as_text())
