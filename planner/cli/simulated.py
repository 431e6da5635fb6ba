"""A simulated step printed for people: the sentence, the ranks over time, and what each of them did."""

from __future__ import annotations

from planner.answer.simulation import SimulatedStep
from planner.cli.gantt import print_gantt
from planner.cli.printing import Heading, say, table
from planner.quantities import GIB, format_bytes, format_seconds
from planner.simulate.memory_file import cause
from planner.simulate.schedules import NAME_OF
from planner.spec.plan import Schedule


def print_simulated(step: SimulatedStep) -> None:
    """The simulation on stdout."""
    say(_sentence(step))
    say()
    print_gantt(step.simulation)
    say()
    table(
        [
            Heading("pipeline rank"),
            Heading("computes\n(s)"),
            Heading("waits for\npeers (s)"),
            Heading("idle\n(s)"),
            Heading("idle"),
            Heading("in flight", 2),
            Heading("peak\n(GiB)"),
            Heading("fullest\nat (s)", 2),
            Heading("in", 3, left=True),
        ],
        _rows(step),
    )
    if step.ranked:
        say()
        say(_against_closed_form(step))


def _sentence(step: SimulatedStep) -> str:
    played = step.simulation
    ranks, microbatches = played.order.num_ranks, played.order.num_microbatches
    what = f"{step.ranked.question.model.name} with {step.ranked.name}" if step.ranked else "The table"
    fullest = max(range(ranks), key=lambda rank: played.memory[rank].peak)
    peak = played.memory[fullest].peak
    holds = f"; rank {fullest} is the fullest, with {format_bytes(peak)}" if peak else ""
    return (
        f"{what} takes {format_seconds(played.makespan)} a step: {step.schedule} on {ranks} pipeline "
        f"{'ranks' if ranks > 1 else 'rank'}, {microbatches} micro-batches; ranks idle {played.bubble_fraction:.1%} of "
        f"it{holds}."
    )


def _rows(step: SimulatedStep) -> list[list[str]]:
    played = step.simulation
    rows = []
    for rank, (use, memory) in enumerate(zip(played.ranks, played.memory, strict=True)):
        rows.append(
            [
                str(rank),
                f"{use.busy:.4g}",
                f"{use.exposed:.4g}",
                f"{use.idle:.4g}",
                f"{use.idle / played.makespan:.1%}" if played.makespan else "",
                f"{memory.peak_in_flight:.4g}",
                f"{memory.peak / GIB:.2f}" if memory.peak else "",
                f"{memory.seconds[memory.fullest]:.4g}" if memory.peak else "",
                cause(memory) if memory.peak else "",
            ]
        )
    return rows


def _against_closed_form(step: SimulatedStep) -> str:
    """The closed form's step, with the plan's own schedule."""
    assert step.ranked
    closed, own = step.ranked.step_time, NAME_OF[Schedule(int(step.ranked.plan.schedule))]
    text = f"{format_seconds(closed)} a step ({closed / step.simulation.makespan - 1:+.1%})"
    if own != step.schedule:
        return f"The plan's own schedule, {own}, takes {text} in closed form."
    return f"In closed form: {text}; planner check says where."
