"""`planner simulate`: what every pipeline rank does, when, and what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import plan_from, question_from, simulated_options
from planner.cli.printing import note, print_json, say, whole_line
from planner.errors import SpecError

if TYPE_CHECKING:
    from planner.answer.simulation import Circumstances, SimulatedStep

OWN = ("durations", "schedule", "balance", "slow", "jitter", "seed", "trace", "memory")
"""Options that are not the question's."""


@click.command()
@simulated_options
@click.option("--durations", type=click.Path(path_type=Path), metavar="FILE", help="Play a table of one's own instead.")
@click.option("--schedule", metavar="NAME|FILE", help="Another than the plan's: gpipe, 1f1b, zb-v, ..., or a file.")
@click.option("--balance", is_flag=True, help="Deal the layers to stages anew, so that the step is shortest.")
@click.option("--slow", metavar="RANKS=X,...", help="Pipeline ranks that compute X times as long, or on part X.")
@click.option("--jitter", type=float, default=0.0, metavar="S", help="Spread of each task's time (0.05 = 5 %).")
@click.option("--seed", type=int, default=0, metavar="N", help="Of the jitter.")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write a timeline for Perfetto.")
@click.option("--memory", type=click.Path(path_type=Path), metavar="FILE", help="Write each rank's memory over time.")
def simulate(as_json: bool, quiet: bool, **asked: Any) -> None:
    """Play one step of a plan action by action: what each pipeline rank does, when, and what it holds.

    Plays the best plan for MODEL on CLUSTER within --fix, the plan in a plan.json given instead of both, or a table of
    one's own (--durations). Ranks that differ in data or tensor parallelism do the same and are shown once.
    """
    from planner.cli.simulated import print_simulated
    from planner.simulate.memory_file import write_memory
    from planner.simulate.trace import write_trace

    trace, memory = asked["trace"], asked["memory"]
    step = _step(asked, quiet=quiet)
    if trace is not None:
        write_trace(trace, step.simulation)
    if memory is not None:
        write_memory(memory, step.simulation)
    if as_json:
        return print_json(step.as_dict())
    print_simulated(step)
    if step.ranked:
        say()
        whole_line(step.ranked.question.command("simulate"))
    return None


def _step(asked: dict[str, Any], *, quiet: bool) -> SimulatedStep:
    """What is to be played, played."""
    from planner.answer.balance import balanced
    from planner.answer.recommend import answer
    from planner.answer.simulation import simulated, simulated_table
    from planner.spec.durations_file import read_durations

    own = {name: asked.pop(name) for name in OWN}
    circumstances = _circumstances(own)
    if own["durations"] is not None:
        if own["balance"] or any(value is not None for value in asked.values()):
            raise click.UsageError("--durations is played as it is: leave out MODEL, CLUSTER and their options")
        return simulated_table(read_durations(own["durations"]), circumstances)
    if asked["model"] is None:
        raise click.UsageError("missing MODEL and CLUSTER, a plan.json, or --durations FILE")
    ranked = plan_from(asked, quiet=quiet) or answer(question_from(asked, quiet=quiet), top=1).best
    if own["balance"]:
        found = balanced(ranked.question, ranked.plan)
        note(f"balance: {found.reason}")
        ranked = found.after
    return simulated(ranked, circumstances)


def _circumstances(own: dict[str, Any]) -> Circumstances:
    from planner.answer.simulation import Circumstances

    slow: dict[int, float] = {}
    parts: dict[int, str] = {}
    for entry in (own["slow"] or "").split(",") if own["slow"] else ():
        ranks, _, value = entry.partition("=")
        for rank in _ranks(ranks, entry):
            try:
                slow[rank] = float(value)
            except ValueError:
                parts[rank] = value.strip()
    return Circumstances(own["schedule"] or "", slow, parts, own["jitter"], own["seed"])


def _ranks(text: str, entry: str) -> range:
    """Ranks as `3` or `0..3`."""
    first, _, last = text.strip().partition("..")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise SpecError(f"{entry!r}; such as 3=1.2 or 0..1=a100-sxm-80gb", where="--slow") from None
