"""A whole answer: the ranked plans, why the best is best, what limits it, and what was turned down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.answer.plan_files import plan_file_of
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.software import targets_of
from planner.errors import NoFeasiblePlan
from planner.explain.reasons import limits, why_more_memory, why_slower
from planner.explain.words import FAMILY_NAMES, PlanFamily
from planner.quantities import counted, format_bytes, format_seconds
from planner.topology.links import Links

SCHEMA_VERSION = 1
SAME = 0.0005
"""Plans whose times differ by less are not worth a comparison of their terms."""
TWICE = 1.0
"""From this excess on people count times, not percent."""


def format_rate(rate: float) -> str:
    """A speed for people: whole numbers where it is large, three digits where it is small.

    >>> format_rate(213377.4), format_rate(12.34)
    ('213,377', '12.3')
    """
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def refusal(question: Question, error: NoFeasiblePlan) -> dict[str, Any]:
    """The JSON of `planner recommend --json` where nothing fits: no plans, the reasons, and what would help."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": question.command(),
        **question.as_dict(),
        "feasible": 0,
        "rejected": dict(error.rejected),
        "plans": [],
        "message": str(error),
        "assumed": list(question.assumed),
        "notes": list(question.notes),
    }


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The answer to a question.

    `evaluated` counts distinct, canonical, legal plans, `feasible` those that fit, `rejected` the others by reason.
    `families` holds the best plan of each kind that has one, `front` the plans that no other beats in both time and
    memory, fastest first; `too_large` the smallest peak of simple families that do not fit at all; `links` belong to
    the best plan.
    """

    question: Question
    plans: tuple[RankedPlan, ...]
    evaluated: int
    feasible: int
    rejected: Mapping[str, int]
    families: Mapping[PlanFamily, RankedPlan]
    front: tuple[RankedPlan, ...]
    too_large: Mapping[PlanFamily, float]
    links: Links
    search_seconds: float

    @property
    def best(self) -> RankedPlan:
        """The first plan."""
        return self.plans[0]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        best, asked = self.best, self.question
        name, total, each = best.rate
        gpus = counted(asked.cluster.world_size, "GPU")
        return (
            f"Train {asked.model.name} on {asked.cluster.name} ({gpus}) with {best.words}: "
            f"{format_seconds(best.step_time)} per step ({format_seconds(float(best.interval.low))} to "
            f"{format_seconds(float(best.interval.high))}, {asked.profile.level}), "
            f"{format_rate(total)} {name} in total, {format_rate(each)} per GPU; "
            f"peak {format_bytes(best.peak)} of {format_bytes(best.usable)} usable per GPU "
            f"({best.verdict.name.lower().replace('_', ' ')})."
        )

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """One sentence each: against the next plan, then against the best of each other family."""
        following = self.plans[1:2]
        others = {
            kind: plan
            for kind, plan in self.families.items()
            if not any(plan.same(listed) for listed in (self.best, *following))
        }
        return (
            *(self._against(plan, plan.name) for plan in following),
            *(self._against(plan, f"{plan.name} (best {FAMILY_NAMES[kind]})") for kind, plan in others.items()),
            *self._absent(),
        )

    @property
    def simpler(self) -> RankedPlan | None:
        """Of the families' best plans that tie with the best, the one with the fewest kinds of parallelism.

        None if the best is as simple, or another objective than speed was asked for.
        """
        ties = [plan for plan in self.families.values() if plan.tie and _axes(plan) < _axes(self.best)]
        asked_for_speed = self.question.objective != "memory"
        return min(ties, key=lambda plan: (_axes(plan), plan.step_time), default=None) if asked_for_speed else None

    @property
    def limit(self) -> str:
        """What takes the step's time."""
        return limits(self.best.time, self.links, self.question.cluster)

    @property
    def targets(self) -> tuple[str, ...]:
        """The trainers that can run the best plan, as `--target` names them."""
        return targets_of(plan_file_of(self.best))

    def _against(self, other: RankedPlan, name: str) -> str:
        """Why the best is better than another plan."""
        best = self.best
        if self.question.objective == "memory":
            return f"{name} needs {format_bytes(other.peak)}: {why_more_memory(best.memory, other.memory)}"
        slower, more = other.step_time / best.step_time - 1, other.peak - best.peak
        if slower < SAME:
            return f"{name} takes the same time and {format_bytes(abs(more))} {'more' if more >= 0 else 'less'} memory"
        verb = "ties, with" if other.tie else "takes"
        more_time = f"{slower:.1%} more time" if slower < TWICE else f"{1 + slower:.1f} times as long"
        return f"{name} {verb} {more_time}: {why_slower(best.time, other.time)}"

    def _absent(self) -> list[str]:
        """The simplest families of which no plan fits."""
        return [
            f"{FAMILY_NAMES[family]}: no plan fits, the smallest needs {format_bytes(peak)} per GPU"
            for family, peak in self.too_large.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner recommend --json`."""
        asked = self.question
        return {
            "schema_version": SCHEMA_VERSION,
            "command": asked.command(),
            **asked.as_dict(),
            "evaluated": self.evaluated,
            "feasible": self.feasible,
            "rejected": dict(self.rejected),
            "search_seconds": self.search_seconds,
            "plans": [plan.as_dict() for plan in self.plans],
            "families": {FAMILY_NAMES[family]: plan.as_dict() for family, plan in self.families.items()},
            "front": [
                {key: entry[key] for key in ("name", "plan", "step_time_s", "peak_memory_gib")}
                for entry in (plan.as_dict() for plan in self.front)
            ],
            "reasons": list(self.reasons),
            "limit": self.limit,
            "simpler": self.simpler.as_dict() if self.simpler else None,
            "targets": list(self.targets),
            "assumed": list(asked.assumed),
            "notes": list(asked.notes),
        }


def _axes(ranked: RankedPlan) -> int:
    """Kinds of model parallelism in a plan, interleaving as one of its own."""
    plan = ranked.plan
    return sum(int(degree) > 1 for degree in (plan.tp, plan.pp, plan.cp, plan.ep, plan.virtual_stages))
