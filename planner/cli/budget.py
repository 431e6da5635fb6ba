"""`planner budget`: days, money and energy of a whole run, checkpoints under failures, rent or buy."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import question_from, question_options
from planner.cli.printing import note, print_json, say, whole_line


@click.command()
@question_options
@click.option("--power-kw-per-gpu", type=float, metavar="KW", help="With its share of the node [1.5 x the board's].")
@click.option("--pue", type=float, metavar="X", help="Power of the building over that of the machines [1.56].")
@click.option("--power-price", type=float, metavar="USD", help="Per kWh [0.08].")
@click.option(
    "--buy", metavar="K=V,...", help="usd_per_gpu, years, utilisation, hosting (USD per kW and month), resale (share)."
)
@click.option("--mtbf-hours-per-gpu", type=float, metavar="H", help="Hours between failures of one GPU [50,677].")
@click.option("--failures-per-day", type=float, metavar="N", help="Of the whole job, in place of the former.")
@click.option(
    "--checkpoint-gb-per-s", type=float, metavar="GB/S", help="Of the storage, for all GPUs [by their number]."
)
@click.option("--restart-minutes", type=float, metavar="MIN", help="From a failure until the checkpoint is read [10].")
@click.option("--preemptions-per-day", type=float, metavar="N", help="Of the whole job on spot instances: adds them.")
@click.option("--spot-discount", type=float, metavar="SHARE", help="What spot instances cost less [0.58].")
@click.option("--against", metavar="NAME[xNICS]", help="Another network: adds what the faster one may cost more.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of simulated failures."
)
def budget(as_json: bool, quiet: bool, **asked: Any) -> None:
    """Say what a run over --tokens takes: days, GPU-hours, money, energy, and what failures add to it.

    Checkpoints are spaced by the storage's speed and the failures to expect. What is not given is a public figure,
    named on stderr with its source.
    """
    from dataclasses import fields

    from planner.answer.budget import budget as answer
    from planner.answer.budget_assumptions import BudgetChoices
    from planner.cli.budget_report import print_budget

    chosen = BudgetChoices(**{field.name: asked.pop(field.name) for field in fields(BudgetChoices)})
    found = answer(question_from(asked, quiet=quiet), chosen)
    for each in found.assumed.assumed if not quiet else ():
        note(f"assumed: {each}")
    if as_json:
        return print_json(found.as_dict())
    print_budget(found)
    say()
    return whole_line(found.command)
