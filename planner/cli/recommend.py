"""`planner recommend`: the answer, the table that is its evidence, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.cli.options import question_from, question_options
from planner.cli.printing import note, print_json, say, whole_line
from planner.errors import NoFeasiblePlan


@click.command()
@question_options
@click.option("--top", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N", help="Plans to show.")
@click.option("--explain", is_flag=True, help="Add the derivation: every term with value, formula and source.")
@click.option("--emit", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write plan.json there.")
def recommend(top: int, explain: bool, emit: Path | None, as_json: bool, quiet: bool, **asked: Any) -> None:
    """Rank the parallelism plans for MODEL on CLUSTER, and say why the best is best.

    MODEL is a catalogue name, a config.json or a folder that holds one. CLUSTER is NODESxNODE (2xdgx-h100), GPUSxGPU
    (2xrtx-4090) or a cluster TOML.
    """
    from planner.answer.plan_files import write_plan
    from planner.answer.recommend import answer
    from planner.answer.recommendation import refusal
    from planner.cli.derivation import print_derivation
    from planner.cli.ranking import print_ranking

    _check_emit(emit, asked["target"])
    question = question_from(asked, quiet=quiet)
    try:
        recommendation = answer(question, top=top)
    except NoFeasiblePlan as error:
        if as_json:
            print_json(refusal(question, error))
        raise
    if emit:
        path = write_plan(recommendation.best, emit)
        if not quiet:
            note(f"wrote {path}")
    if as_json:
        return print_json(recommendation.as_dict())
    print_ranking(recommendation)
    if explain:
        say()
        print_derivation(recommendation.best, recommendation.links)
    say()
    return whole_line(f"{question.command()} --top {top}")


def _check_emit(emit: Path | None, target: str | None) -> None:
    if emit and target:
        raise click.UsageError(
            f"launch files for {target} cannot be written yet; without --target, --emit writes plan.json"
        )
