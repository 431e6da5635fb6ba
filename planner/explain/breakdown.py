"""A plan's estimate term by term: value, share, formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner.estimate.records import MemoryUse, StepTime
from planner.explain.reasons import memory_items, time_terms
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS, Term


@dataclass(frozen=True)
class TermValue:
    """One term of one plan: its value in base units (seconds or bytes) and its share of the whole."""

    name: str
    term: Term
    value: float
    share: float

    def as_dict(self, unit: str, size: float) -> dict[str, Any]:
        """For JSON: the value in a unit of the given size, and every formula."""
        return {
            "term": self.name,
            "title": self.term.title,
            unit: self.value / size,
            "share": self.share,
            "formulas": [asdict(formula) for formula in self.term.formulas],
        }


def time_breakdown(time: StepTime) -> list[TermValue]:
    """Every term of a step time, largest first."""
    return _breakdown(time_terms(time), TIME_TERMS)


def memory_breakdown(memory: MemoryUse) -> list[TermValue]:
    """Every item of a peak, largest first."""
    return _breakdown(memory_items(memory), MEMORY_TERMS)


def _breakdown(values: Mapping[str, float], terms: Mapping[str, Term]) -> list[TermValue]:
    total = sum(values.values())
    found = [TermValue(name, terms[name], value, value / total) for name, value in values.items()]
    return sorted(found, key=lambda each: (-each.value, each.name))
