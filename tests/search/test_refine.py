"""The first of some plans when their schedules are played: what playing all of them gives, with few of them played."""

from types import SimpleNamespace

import numpy as np
import pytest

from planner.answer.choices import Choices
from planner.answer.question import ask
from planner.answer.recommend import feasible_plans
from planner.estimate.setting import Setting
from planner.estimate.stage_seconds import stage_seconds, stage_seconds_of_each
from planner.search import refine
from planner.search.refine import first_refined, refined, worth_playing
from planner.topology.group_links import group_links

CASES = [
    ("llama-3.1-8b", "4xdgx-h100", {"network": "tcp-10"}),
    ("llama-3.1-70b", "16xdgx-h100", {"stack": "megatron-core"}),
    ("qwen2.5-7b", "3xdgx-a100-40gb", {"fix": "pp=2..", "global_batch_size": 96}),
    ("deepseek-v2-lite", "2xdgx-h100", {"fix": "pp=2.."}),
]


def fastest(model, cluster, options, count=40):
    question = ask(model, cluster, Choices(**options))
    found = feasible_plans(question).fastest(count, question.cluster, question.profile)
    inputs = question.model, question.workload, question.cluster, question.profile, question.stack
    return SimpleNamespace(
        setting=Setting.of(*inputs), plans=found.plan, links=group_links(found.plan, question.cluster), time=found.time
    )


@pytest.mark.parametrize(("model", "cluster", "options"), CASES)
def test_the_first_is_the_first_of_all_played(model, cluster, options):
    some = fastest(model, cluster, options)
    assert worth_playing(some.plans).any()
    for begin in range(0, 30, 7):
        part = slice(begin, begin + 10)
        rows = some.plans[part], some.links[part], some.time[part]
        first, time = first_refined(some.setting, *rows)
        totals = [float(refined(some.setting, *(each[i] for each in rows)).total) for i in range(len(rows[0]))]
        assert first == int(np.argmin(totals))
        assert float(time.total) == min(totals)


@pytest.mark.parametrize(("model", "cluster", "options"), CASES)
def test_stages_of_many_plans_are_those_of_each(model, cluster, options):
    some = fastest(model, cluster, options)
    pipelines = np.flatnonzero(np.asarray(some.plans.pp) > 1)
    each = stage_seconds_of_each(some.setting, some.plans[pipelines], some.links[pipelines])
    for row, found in zip(pipelines.tolist(), each, strict=True):
        assert found == stage_seconds(some.setting, some.plans[row], some.links[row])


@pytest.mark.parametrize(("model", "cluster", "options"), CASES)
def test_no_schedule_is_shorter_than_the_way_down_the_work_and_the_way_back(model, cluster, options):
    some = fastest(model, cluster, options)
    for row in np.flatnonzero(worth_playing(some.plans)).tolist():
        plan, time = some.plans[row], some.time[row]
        one = refine._Pipeline(plan, time, stage_seconds(some.setting, plan, some.links[row]))
        assert one.least <= float(one.refined().total) * (1 + 1e-9)


def test_only_schedules_that_may_be_the_shortest_are_played(monkeypatch):
    some = fastest("qwen2.5-7b", "3xdgx-a100-40gb", {"fix": "pp=2..", "global_batch_size": 96})
    played, whole = [], refine.schedule_time
    monkeypatch.setattr(refine, "schedule_time", lambda plan, each: played.append(plan) or whole(plan, each))
    first_refined(some.setting, some.plans, some.links, some.time)
    assert 1 <= len(played) < int(worth_playing(some.plans).sum())
