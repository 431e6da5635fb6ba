"""A plan's closed forms against its simulation, term by term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.answer.ranked_plan import RankedPlan
from planner.answer.simulation import SCHEMA_VERSION, SimulatedStep, simulated
from planner.quantities import GIB, Seconds
from planner.simulate.terms import step_terms

TERM_OF = {"weights": "matmul"}
"""Names of segments that are another term of the step time."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """Seconds of each term in closed form and as simulated; both add up to their step time."""

    ranked: RankedPlan
    step: SimulatedStep
    closed: dict[str, Seconds]
    played: dict[str, Seconds]

    @property
    def difference(self) -> float:
        """How much longer the closed form is than the simulation, over the latter."""
        return self.ranked.step_time / self.step.simulation.makespan - 1

    @property
    def peak(self) -> float:
        """Bytes of the fullest rank as simulated."""
        return max(memory.peak for memory in self.step.simulation.memory)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner check`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.ranked.name,
            "closed_form_step_time_s": self.ranked.step_time,
            "simulated_step_time_s": self.step.simulation.makespan,
            "difference": self.difference,
            "terms": [
                {"term": name, "closed_form_s": self.closed[name], "simulated_s": self.played[name]}
                for name in self.closed
            ],
            "closed_form_peak_memory_gib": self.ranked.peak / GIB,
            "simulated_peak_memory_gib": self.peak / GIB,
        }


def agreement(ranked: RankedPlan) -> Agreement:
    """Compare the two. Raises as `simulated` does."""
    step = simulated(ranked)
    closed = {name: float(value) for name, value in ranked.time.as_dict().items()}
    played = dict.fromkeys(closed, 0.0)
    for name, value in step_terms(step.simulation).items():
        played[TERM_OF.get(name, name)] += value
    # What the table brings from or takes to the host is in its optimizer step and gathers.
    closed["optimizer"] += closed.pop("offload")
    played.pop("offload")
    return Agreement(ranked, step, closed, played)
