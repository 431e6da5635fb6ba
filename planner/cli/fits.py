"""`planner fits`: does it fit, when and where is it fullest, what dominates, and which dial to turn."""

from __future__ import annotations

from typing import Any

import click

from planner.cli.options import plan_from, question_from, question_or_plan_options
from planner.cli.printing import print_json, say, whole_line

DOES_NOT_FIT = 5


@click.command()
@question_or_plan_options
def fits(as_json: bool, quiet: bool, **asked: Any) -> None:
    """Say whether a plan fits in memory, what dominates, and which dial to turn.

    --fix says which plan; what it leaves open is chosen for speed. A plan.json in place of MODEL and CLUSTER is judged
    as it is. Exit code 5 says that it does not fit.
    """
    from planner.answer.fits import fit_report
    from planner.answer.fits import fits as judge
    from planner.cli.fit_report import print_fit

    given = plan_from(asked, quiet=quiet)
    report = fit_report(given) if given else judge(question_from(asked, quiet=quiet))
    if as_json:
        print_json(report.as_dict())
    else:
        print_fit(report)
        say()
        whole_line(report.ranked.question.command("fits"))
    if not report.fits:
        click.get_current_context().exit(DOES_NOT_FIT)
