"""What stands at the top of a trainer's own files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from planner.emit.header import expected
from planner.emit.quoting import comment
from planner.spec.plan import PLAN_KINDS, PLAN_SWITCHES, Plan
from planner.spec.plan_file import PlanFile


def preface(contents: PlanFile, written_for: str) -> str:
    """Comment lines, each ended: who wrote the file, for what model and plan, and what is expected of it."""
    return "".join(
        f"{line}\n" for name, text in facts(contents, written_for).items() for line in comment(f"{name}: {text}")
    )


def facts(contents: PlanFile, written_for: str) -> dict[str, str]:
    """The same as a mapping, for files that have no comments."""
    stated = {
        "written by": f"planner {contents.planner_version} for {written_for}",
        "model": contents.model.name,
        "cluster": f"{contents.cluster.name}: {contents.plan.world_size} GPUs",
        "plan": plan_phrase(contents.plan),
        **dict(expected(contents.prediction)),
        "question": contents.command,
    }
    return {name: text for name, text in stated.items() if text}


def plan_phrase(plan: Plan) -> str:
    """The fields of a plan that are not at their defaults.

    >>> plan_phrase(Plan(tp=8, dp_shard=4, sharding=3, sequence_parallel=1))
    'tp 8, dp_shard 4, sharding zero3, sequence_parallel'
    """
    return ", ".join(_fields(plan)) or "one rank"


def _fields(plan: Plan) -> Iterator[str]:
    for each in fields(Plan):
        value = int(getattr(plan, each.name))
        if each.name in PLAN_SWITCHES:
            if value != each.default:
                yield each.name if value else f"not {each.name}"
        elif value != each.default:
            yield f"{each.name} {PLAN_KINDS[each.name](value).name.lower() if each.name in PLAN_KINDS else value}"
