"""A plan's estimate term by term: value, share, formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner.estimate.records import MemoryUse, StepTime
from planner.explain.formula import Formula
from planner.explain.reasons import memory_items, time_terms
from planner.explain.relevance import relevant_formulas
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS, Term
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.workload import Workload


@dataclass(frozen=True)
class TermValue:
    """One term of one plan: value in base units (seconds or bytes), share of the whole, formulas that the plan uses."""

    name: str
    term: Term
    value: float
    share: float
    formulas: tuple[Formula, ...]

    def as_dict(self, unit: str, size: float) -> dict[str, Any]:
        """For JSON: the value in a unit of the given size, and every formula."""
        return {
            "term": self.name,
            "title": self.term.title,
            unit: self.value / size,
            "share": self.share,
            "formulas": [asdict(formula) for formula in self.formulas],
        }


def time_breakdown(time: StepTime, plan: Plan, workload: Workload, model: Model) -> list[TermValue]:
    """Every term of a plan's step time, largest first."""
    return _breakdown(time_terms(time), TIME_TERMS, plan, workload, model)


def memory_breakdown(memory: MemoryUse, plan: Plan, workload: Workload, model: Model) -> list[TermValue]:
    """Every item of a plan's peak, largest first."""
    return _breakdown(memory_items(memory), MEMORY_TERMS, plan, workload, model)


def _breakdown(
    values: Mapping[str, float], terms: Mapping[str, Term], plan: Plan, workload: Workload, model: Model
) -> list[TermValue]:
    total = sum(values.values())
    found = [
        TermValue(name, terms[name], value, value / total, relevant_formulas(name, terms[name], plan, workload, model))
        for name, value in values.items()
    ]
    return sorted(found, key=lambda each: (-each.value, each.name))
