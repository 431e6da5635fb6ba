"""A memory verdict printed for people: the sentence, the items, the moments, the dials."""

from __future__ import annotations

from planner.answer.fits import FitReport
from planner.answer.recommendation import format_rate
from planner.cli.printing import Heading, say, table
from planner.estimate.interval import Verdict
from planner.estimate.records import Role
from planner.explain.words import MOMENT_NAMES
from planner.quantities import GIB, format_seconds


def print_fit(report: FitReport) -> None:
    """The verdict on stdout."""
    ranked = report.ranked
    say(report.sentence)
    say()
    say(f"Plan: {ranked.words}.", indent="  ")
    say()
    table(
        [Heading("item", left=True), Heading("per GPU\n(GiB)"), Heading("share")],
        [
            [each.term.title, f"{each.value / GIB:.2f}", f"{each.share:.1%}"]
            for each in ranked.memory_terms
            if each.value > 0
        ],
    )
    say()
    _print_timeline(report)
    if ranked.verdict is not Verdict.FITS:
        say()
        _print_dials(report)


def _print_timeline(report: FitReport) -> None:
    """Peak by moment, for each pipeline role that there is."""
    roles = list(Role) if report.ranked.plan.pp > 2 else [Role.FIRST, Role.LAST] if report.ranked.plan.pp > 1 else []
    shown = roles or [report.ranked.role]
    headings = [Heading("moment of the step", left=True)]
    headings += [Heading(f"{role.name.lower()} stage\n(GiB)" if roles else "per GPU\n(GiB)") for role in shown]
    table(
        headings,
        [
            [name, *(f"{report.timeline[role, moment] / GIB:.1f}" for role in shown)]
            for moment, name in MOMENT_NAMES.items()
        ],
    )


def _print_dials(report: FitReport) -> None:
    """What single changes would give, those that fit first."""
    if not report.dials:
        say("No single change of the plan or the job is possible.")
        return
    say("Dials, one change each:")
    table(
        [
            Heading("change", left=True),
            Heading("per GPU\n(GiB)"),
            Heading("fits", left=True),
            Heading("step time"),
            Heading(report.ranked.rate[0]),
            Heading("option", 2, left=True),
        ],
        [
            [
                dial.words,
                f"{dial.ranked.peak / GIB:.1f}",
                dial.ranked.verdict.name.lower().replace("_", " "),
                format_seconds(dial.ranked.step_time),
                format_rate(dial.ranked.rate[1]),
                dial.options,
            ]
            for dial in report.dials
        ],
    )
