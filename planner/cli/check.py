"""`planner check`: closed forms against the simulation."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import plan_from, question_from, question_or_plan_options
from planner.cli.printing import Heading, print_json, say, table, whole_line


@click.command()
@question_or_plan_options
def check(as_json: bool, quiet: bool, **asked: Any) -> None:
    """Compare the closed forms of a plan's step with its simulation, term by term.

    Checks the best plan for MODEL on CLUSTER within --fix, or the plan in a plan.json given instead of both. The
    simulated term of a transfer is what the step gets shorter by without it.
    """
    from planner.answer.agreement import agreement
    from planner.answer.recommend import answer
    from planner.explain.terms import TIME_TERMS
    from planner.quantities import format_bytes, format_seconds

    ranked = plan_from(asked, quiet=quiet) or answer(question_from(asked, quiet=quiet), top=1).best
    found = agreement(ranked)
    if as_json:
        return print_json(found.as_dict())
    played = found.step.simulation.makespan
    say(
        f"{ranked.question.model.name} with {ranked.name}: {format_seconds(ranked.step_time)} a step in closed form, "
        f"{format_seconds(played)} simulated ({found.difference:+.1%}); at the peak {format_bytes(ranked.peak)} and "
        f"{format_bytes(found.peak)} per GPU ({ranked.peak / found.peak - 1:+.1%})."
    )
    say()
    table(
        [Heading("term", left=True), Heading("closed form\n(s)"), Heading("simulated\n(s)"), Heading("of the step")],
        [
            [TIME_TERMS[name].title, f"{closed:.4g}", f"{found.played[name]:.4g}", f"{share:+.1%}"]
            for name, closed in found.closed.items()
            if max(closed, found.played[name]) > 1e-6 * played
            for share in [(closed - found.played[name]) / played]
        ],
    )
    say()
    return whole_line(ranked.question.command("check"))
