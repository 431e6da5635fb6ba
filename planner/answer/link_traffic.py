"""What one plan puts on the links of its cluster, and which bandwidth would hide what its step shows of that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.answer.evaluate import links_of
from planner.answer.ranked_plan import RankedPlan
from planner.estimate.records import StepTime
from planner.estimate.setting import Job
from planner.estimate.step_time import step_time
from planner.explain.hiding import Hiding, StepOnLinks, hidings
from planner.explain.links import AxisTraffic, LinkClass, traffic_on_links
from planner.quantities import Seconds
from planner.spec.profile import Profile
from planner.topology.links import Links


@dataclass(frozen=True)
class PlanTraffic:
    """Classes of links from the outermost to the innermost, axes that send anything, and what of it a step shows."""

    step_time: Seconds
    classes: tuple[LinkClass, ...]
    axes: tuple[AxisTraffic, ...]
    hiding: tuple[Hiding, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `link_traffic` of `planner explain --links --json`."""
        return {
            "classes": [each.as_dict(self.step_time) for each in self.classes],
            "axes": [each.as_dict(self.step_time) for each in self.axes],
            "hiding": [each.as_dict(self.step_time) for each in self.hiding],
        }


def link_traffic(ranked: RankedPlan) -> PlanTraffic:
    """Bytes and seconds per step on every class of links, by axis; and the bandwidth that would hide each exposed term.

    Folded nodes count in full: figures are of the busiest link, and of the mean, among all links of the cluster.
    """
    asked, plan = ranked.question, ranked.plan
    # What waits for the last bucket of gradients waits at any bandwidth: hiding is that of the others.
    software = replace(asked.stack, gradient_bucket=0.0)

    def step_of(links: Links, profile: Profile) -> StepTime:
        return step_time(asked.model, plan, asked.workload, asked.cluster, links, profile=profile, stack=software)

    traffic = traffic_on_links(Job(asked.model, asked.workload, asked.stack), plan, asked.cluster)
    step = StepOnLinks(plan, asked.cluster, links_of(asked, plan), asked.profile, step_of)
    return PlanTraffic(ranked.step_time, traffic.classes, traffic.axes, tuple(hidings(step)))
