"""What is set side by side: plans of files, and the best plans of questions, one for each value that was given.

A side that nothing fits on is a side too: it says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.answer.plan_files import read_plan
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.errors import NoFeasiblePlan, SpecError

MOST_SIDES = 8
"""More columns than this are no longer read side by side."""
WHOLE, REAL = ("seq_len", "lora_rank"), ("usd_per_gpu_hour",)
"""Choices that are numbers."""


@dataclass(frozen=True, eq=False)
class Side:
    """One side: its name, its question, and its plan; without a plan (nothing fits) `reason` says why."""

    label: str
    question: Question
    ranked: RankedPlan | None
    reason: str = ""

    @classmethod
    def of(cls, label: str, question: Question) -> Side:
        """The best plan of a question."""
        try:
            return cls(label, question, best_plan(question))
        except NoFeasiblePlan as error:
            return cls(label, question, None, str(error))


def sides(arguments: Sequence[str], given: Mapping[str, Any] | None = None) -> tuple[Side, ...]:
    """The sides that a command line names.

    `arguments` are plan.json files (or folders with one), and a model with clusters, several models with commas between
    them. `given` are choices by their names, of which each may have several values with commas between them; `fix` is
    one text, or a sequence of texts of which each is a side. Every combination is a side.
    Raises SpecError or FileFormatError for what cannot be read, and where there are more than eight.
    """
    choices = {name: value for name, value in (given or {}).items() if value not in (None, ())}
    files = [text for text in arguments if is_plan_file(text)]
    names = [text for text in arguments if text not in files]
    if choices and not names:
        name = next(iter(choices)).replace("_", "-")
        raise SpecError(f"a plan.json answers its own question: leave out --{name}")
    if len(names) == 1:
        raise SpecError("missing CLUSTER, such as 2xdgx-h100", where=names[0])
    asked = list(_questions(names[0], names[1:], choices)) if names else []
    if len(files) + len(asked) > MOST_SIDES:
        raise SpecError(f"{len(files) + len(asked)} sides; at most {MOST_SIDES} can be read side by side")
    plans = [Side(text, ranked.question, ranked) for text, ranked in ((text, _plan(text)) for text in files)]
    return (*plans, *(Side.of(label, ask(model, cluster, chosen)) for label, model, cluster, chosen in asked))


def is_plan_file(text: str) -> bool:
    """Whether an argument is a plan.json or a folder with one, rather than a model or a cluster.

    A JSON file that is missing or broken is taken for one, unless it is called config.json.
    """
    path = Path(text)
    if os.path.exists(path / "plan.json"):
        return True
    if path.suffix != ".json":
        return False
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return path.name != "config.json"
    return isinstance(data, dict) and "plan" in data


def _plan(text: str) -> RankedPlan:
    path = Path(text)
    return read_plan(path / "plan.json" if path.is_dir() else path)


def _questions(
    models: str, clusters: Sequence[str], given: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, Choices]]:
    """Label, model, cluster and choices of each combination; what all have in common is not in the label."""
    own = {"model": _several(models), "cluster": list(clusters)}
    axes = own | {name: _values(name, value) for name, value in given.items()}
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        varied = [str(value) for name, value in chosen.items() if len(axes[name]) > 1]
        model, cluster = chosen.pop("model"), chosen.pop("cluster")
        yield ", ".join(varied) or f"{model} on {cluster}", model, cluster, Choices(**chosen)


def _values(name: str, value: Any) -> list[Any]:
    if name not in {field.name for field in fields(Choices)}:
        raise SpecError("is no choice of a question", where=name)
    if name == "fix":
        return list(dict.fromkeys([value] if isinstance(value, str) else value))
    kind = int if name in WHOLE else float if name in REAL else str
    option = f"--{name.replace('_', '-')}"
    texts = _several(str(value), where=option)
    try:
        return [kind(each) for each in texts]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise SpecError(f"write {what} with commas between them, not {str(value)!r:.40}", where=option) from None


def _several(text: str, *, where: str = "MODEL") -> list[str]:
    """Values with commas between them, each once."""
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not values:
        raise SpecError("names nothing", where=where)
    return list(dict.fromkeys(values))
