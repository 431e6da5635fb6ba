"""`planner explain`: the derivation of one plan."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import plan_from, question_from, question_or_plan_options
from planner.cli.printing import print_json, say, whole_line


@click.command()
@question_or_plan_options
@click.option("--links", is_flag=True, help="Show what the plan puts on each kind of link instead.")
def explain(as_json: bool, quiet: bool, links: bool, **asked: Any) -> None:
    """Show every term of a plan's time and memory with its value, formula and source.

    Explains the best plan for MODEL on CLUSTER within --fix, or the plan in a plan.json given instead of both. With
    --links: bytes per step on each kind of link, the link that holds each axis back, and the bandwidth that would hide
    what the step shows of it.
    """
    from planner.answer.evaluate import links_of
    from planner.answer.explanation import explanation
    from planner.answer.recommend import answer
    from planner.cli.derivation import print_derivation
    from planner.cli.link_traffic import print_link_traffic

    ranked = plan_from(asked, quiet=quiet) or answer(question_from(asked, quiet=quiet), top=1).best
    if as_json:
        return print_json(explanation(ranked, links_too=links))
    if links:
        print_link_traffic(ranked)
    else:
        print_derivation(ranked, links_of(ranked.question, ranked.plan))
    say()
    return whole_line(ranked.question.command("explain"))
