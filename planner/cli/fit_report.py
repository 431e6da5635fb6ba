"""A memory verdict printed for people: the sentence, the items, the moments, the dials."""

from __future__ import annotations

from planner.answer.fits import FitReport
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommendation import format_rate
from planner.cli.printing import Heading, say, table
from planner.estimate.interval import FULL, Verdict
from planner.estimate.records import Moment, Role
from planner.quantities import GIB, format_bytes, format_seconds

VERDICTS = {Verdict.FITS: "Fits", Verdict.TIGHT: "Tight", Verdict.DOES_NOT_FIT: "Does not fit"}

MOMENTS = {
    Moment.FORWARD_END: "end of forward",
    Moment.LOSS: "loss",
    Moment.BACKWARD: "backward",
    Moment.REDUCE: "gradient reduction",
    Moment.OPTIMIZER: "optimizer step",
}


def print_fit(report: FitReport) -> None:
    """The verdict on stdout."""
    ranked = report.ranked
    say(_sentence(report))
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


def _sentence(report: FitReport) -> str:
    ranked, dominant = report.ranked, report.dominant
    if not report.host_fits:
        nodes = [pool.node for pool in ranked.question.cluster.pools]
        least = min(float(node.host_memory) / node.gpus_per_node for node in nodes if node.host_memory)
        return (
            f"Does not fit: hosts would hold {format_bytes(float(ranked.memory.host))} per GPU of the "
            f"{format_bytes(least)} that they have; "
            f"the GPUs' peak is {format_bytes(ranked.peak)} of {format_bytes(ranked.usable)} usable."
        )
    host = f"; host memory {format_bytes(float(ranked.memory.host))} per GPU" if ranked.memory.host > 0 else ""
    return (
        f"{VERDICTS[ranked.verdict]}: {ranked.question.model.name} with {ranked.name} peaks at "
        f"{format_bytes(ranked.peak)} per GPU of {format_bytes(ranked.usable)} usable ({_room(ranked)}; chance to fit "
        f"{ranked.p_fits:.0%}), at {MOMENTS[ranked.moment]}{_where(ranked)}, the largest item {dominant.term.title} "
        f"({format_bytes(dominant.value)}){host}."
    )


def _room(ranked: RankedPlan) -> str:
    """What is left, or too much; between the two lies the share that no plan may count on."""
    spare = ranked.usable - ranked.peak
    if spare < 0:
        return f"{format_bytes(-spare)} too much"
    if ranked.verdict is Verdict.DOES_NOT_FIT:
        return f"over the {FULL:.0%} of it, {format_bytes(FULL * ranked.usable)}, that a plan may take"
    return f"{format_bytes(spare)} to spare"


def _where(ranked: RankedPlan) -> str:
    return f" on the {ranked.role.name.lower()} pipeline stage" if ranked.plan.pp > 1 else ""


def _print_timeline(report: FitReport) -> None:
    """Peak by moment, for each pipeline role that there is."""
    roles = list(Role) if report.ranked.plan.pp > 2 else [Role.FIRST, Role.LAST] if report.ranked.plan.pp > 1 else []
    shown = roles or [report.ranked.role]
    headings = [Heading("moment of the step", left=True)]
    headings += [Heading(f"{role.name.lower()} stage\n(GiB)" if roles else "per GPU\n(GiB)") for role in shown]
    table(
        headings,
        [[name, *(f"{report.timeline[role, moment] / GIB:.1f}" for role in shown)] for moment, name in MOMENTS.items()],
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
