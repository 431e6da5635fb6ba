"""plan.json from an answer, and a question from plan.json."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.software import profile_of
from planner.errors import FileFormatError
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.spec.plan import Plan
from planner.spec.plan_file import PlanFile, ProfileReference, read_plan_file, write_plan_file


def write_plan(ranked: RankedPlan, folder: Path) -> Path:
    """Write a plan with its question and prediction as plan.json; returns its path. Raises FileFormatError."""
    return write_plan_file(plan_file_of(ranked), folder)


def plan_file_of(ranked: RankedPlan) -> PlanFile:
    """What is written of a plan; its fields are Python's integers, as if they were read from a file."""
    asked = ranked.question
    return PlanFile(
        plan=Plan(**{name: int(value) for name, value in ranked.plan.as_dict().items()}),
        model=asked.model,
        cluster=asked.cluster,
        workload=asked.workload,
        stack=asked.stack,
        profile=ProfileReference.of(asked.profile),
        prediction=ranked.prediction(),
        command=asked.command(),
        planner_version=version("planner"),
    )


def read_plan(path: Path) -> RankedPlan:
    """The plan of a plan.json, predicted anew; a note says so where the profile has changed since.

    Raises FileFormatError for a file that is no plan.json or whose plan is not legal, SpecError where the catalogue has
    no such profile any more.
    """
    contents = read_plan_file(path)
    problem = Problem.of(contents.model, contents.cluster, contents.workload, contents.stack)
    for broken in reasons(contents.plan, problem)[:1]:
        raise FileFormatError(f"the plan is not legal: {broken}", where=str(path))
    now = profile_of(contents.cluster, contents.stack)
    changed = ProfileReference.of(now).hash != contents.profile.hash
    note = f"{path} was written with another profile ({contents.profile.name}): the prediction is made anew"
    question = Question(
        model=contents.model,
        cluster=contents.cluster,
        workload=contents.workload,
        stack=contents.stack,
        profile=now,
        choices=Choices(stack=contents.stack.name),
        model_text=contents.model.name,
        cluster_text=contents.cluster.name,
        notes=(note,) if changed else (),
        plan_file=str(path),
    )
    return evaluate(question, contents.plan)
