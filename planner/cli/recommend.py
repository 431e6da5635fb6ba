"""`planner recommend`: the answer, the table that is its evidence, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.emit import force_option, written
from planner.cli.options import question_from, question_options
from planner.cli.printing import note, print_json, say, whole_line
from planner.errors import NoFeasiblePlan

if TYPE_CHECKING:
    from planner.answer.ranked_plan import RankedPlan


@click.command()
@question_options
@click.option("--top", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N", help="Plans to show.")
@click.option("--explain", is_flag=True, help="Add the derivation: every term with value, formula and source.")
@click.option(
    "--emit",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write plan.json of the best plan there, and with --target the files that run it.",
)
@force_option
def recommend(
    top: int, explain: bool, emit: Path | None, *, force: bool, as_json: bool, quiet: bool, **asked: Any
) -> None:
    """Rank the parallelism plans for MODEL on CLUSTER, and say why the best is best.

    MODEL is a catalogue name, a config.json or a folder that holds one. CLUSTER is NODESxNODE (2xdgx-h100), GPUSxGPU
    (2xrtx-4090) or a cluster TOML.
    """
    from planner.answer.mixed.answer import leads, mixed
    from planner.answer.mixed.parts import is_mixed
    from planner.answer.recommend import answer
    from planner.answer.recommendation import refusal
    from planner.cli.derivation import print_derivation
    from planner.cli.ranking import print_ranking

    if force and emit is None:
        raise click.UsageError("--force replaces files of --emit DIR, which is not given")
    question = question_from(asked, quiet=quiet)
    try:
        recommendation = answer(question, top=top)
    except NoFeasiblePlan as error:
        if as_json:
            print_json(refusal(question, error))
        if is_mixed(question.cluster) and not quiet:
            note("note: that is with all nodes at one pace; planner mixed tries uneven work, and parts of the cluster")
        raise
    remarks = [] if emit is None else _write(recommendation.best, asked["target"], emit, force=force)
    for remark in remarks if not quiet else ():
        note(remark)
    uneven = mixed(question, recommendation.best) if leads(question) else None
    if as_json:
        return print_json(recommendation.as_dict() | ({"mixed": uneven.as_dict()} if uneven else {}))
    if uneven:
        say(uneven.sentence)
        say(f"Below, all nodes at one pace ({uneven.loss}); planner mixed shows every way.", indent="  ")
        say()
    print_ranking(recommendation)
    if explain:
        say()
        print_derivation(recommendation.best, recommendation.links)
    say()
    return whole_line(f"{question.command()} --top {top}")


def _write(best: RankedPlan, target: str | None, folder: Path, *, force: bool) -> list[str]:
    """Write the best plan, and with a target what runs it; what there is to say of it."""
    from planner.answer.emission import emit, keep
    from planner.answer.plan_files import plan_file_of

    if target is None:
        return [f"wrote {keep(plan_file_of(best), folder, force=force)}"]
    made = emit(plan_file_of(best), target, folder, force=force)
    return [written(made), f"start it with: {made.start}", *(f"note: {each}" for each in made.notes)]
