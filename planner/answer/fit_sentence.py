"""A memory verdict in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.answer.ranked_plan import RankedPlan
from planner.estimate.interval import FULL, Verdict
from planner.explain.words import MOMENT_NAMES
from planner.quantities import format_bytes

if TYPE_CHECKING:
    from planner.answer.fits import FitReport

VERDICTS = {Verdict.FITS: "Fits", Verdict.TIGHT: "Tight", Verdict.DOES_NOT_FIT: "Does not fit"}


def fit_sentence(report: FitReport) -> str:
    """The verdict in one sentence: peak, room, chance to fit, moment, rank, largest item."""
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
        f"{ranked.p_fits:.0%}), at {MOMENT_NAMES[ranked.moment]}{_where(ranked)}, the largest item "
        f"{dominant.term.title} ({format_bytes(dominant.value)}){host}."
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
