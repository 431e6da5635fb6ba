"""`planner show`: what was read of one thing."""

from __future__ import annotations

import click

from planner.cli.options import json_option
from planner.cli.printing import print_json, say


@click.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print what the planner read from a model, accelerator, node type, network or stack.

    NAME is a catalogue name or alias, a config.json, or a folder that holds one.
    """
    from planner.answer.showing import as_dict, lines, thing

    shown = thing(name)
    if as_json:
        return print_json(as_dict(shown))
    rows = lines(shown)
    width = max(len(what) for what, _, _ in rows)
    for what, value, source in rows:
        say(f"{what:{width}}  {value}{f'  [{source}]' if source else ''}", indent=" " * (width + 2))
    return None
