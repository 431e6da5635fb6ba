"""`planner compare`: plans, clusters, networks, methods or models side by side, or what a change would do."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import compared_options, print_notes
from planner.cli.printing import print_json, say, whole_line


@click.command()
@click.argument("sides", nargs=-1, required=True)
@compared_options
@click.option("--what-if", metavar="NAME=VALUE,...", help="Changes to one side instead, such as nic=2x,memory=40GB.")
def compare(sides: tuple[str, ...], what_if: str | None, as_json: bool, quiet: bool, **asked: Any) -> None:
    """Set plans, clusters, networks, methods or models side by side, differences first.

    SIDES are plan.json files, or MODEL CLUSTER... with a side for each CLUSTER. An option with several values, commas
    between them, makes a side of each; so does each --fix, and MODEL may name several. --what-if NAME=VALUE,... changes
    one side: nic, latency, link, compute, memory, memory-bandwidth, seq-len, batch, nodes, price by a factor (2x) or to
    an amount (40GB), or network, precision, method, optimizer, state, attention, offload, stack to another; all is a
    usual set.
    """
    from planner.answer.compared.comparison import compare as answer
    from planner.answer.compared.sides import sides as found_sides
    from planner.cli.comparison_report import command_of, print_comparison

    found = found_sides(sides, asked)
    if not quiet:
        print_notes(*(side.question for side in found))
    command = command_of(sides, asked, what_if)
    if what_if is not None:
        return _what_if(found, what_if, command, as_json=as_json)
    comparison = answer(found)
    if as_json:
        return print_json({"command": command, **comparison.as_dict()})
    print_comparison(comparison)
    return whole_line(command)


def _what_if(found: tuple[Any, ...], wanted: str, command: str, *, as_json: bool) -> None:
    from planner.answer.compared.changes import changes
    from planner.answer.compared.what_if import what_if
    from planner.cli.what_if_report import print_what_if
    from planner.errors import NoFeasiblePlan

    if len(found) != 1:
        raise click.UsageError(f"--what-if changes one side, not {len(found)}")
    side, named = found[0], changes(wanted)
    if side.ranked is None:
        raise NoFeasiblePlan(side.reason)
    effects = what_if(side.ranked, named)
    if as_json:
        return print_json({"command": command, **effects.as_dict()})
    say(effects.sentence)
    say()
    print_what_if(effects)
    return whole_line(command)
