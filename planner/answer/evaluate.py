"""One plan judged under one question: links, memory, time."""

from __future__ import annotations

from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.estimate.memory import memory_use
from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.step_time import step_time
from planner.search.refine import refined
from planner.spec.plan import Plan
from planner.topology.group_links import group_links
from planner.topology.links import Links


def links_of(question: Question, plan: Plan) -> Links:
    """What each parallel group of one plan gets of the network, as scalars."""
    links = group_links(plan, question.cluster)
    return links if links.is_scalar else links[0]


def evaluate(question: Question, plan: Plan, *, rank: int = 1) -> RankedPlan:
    """A plan with its estimates. Raises SpecError where the accelerator lacks the precision."""
    asked = question
    memory = memory_use(asked.model, plan, asked.workload, asked.stack)
    links = links_of(asked, plan)
    time = step_time(asked.model, plan, asked.workload, asked.cluster, links, profile=asked.profile, stack=asked.stack)
    return RankedPlan(asked, plan, played(asked, plan, time, links), memory, rank=rank)


def played(question: Question, plan: Plan, time: StepTime, links: Links | None = None) -> StepTime:
    """A plan's step time with its pipeline's schedule played."""
    if plan.pp == 1:
        return time
    asked = question
    setting = Setting.of(asked.model, asked.workload, asked.cluster, asked.profile, asked.stack)
    return refined(setting, plan, links or links_of(asked, plan), time)
