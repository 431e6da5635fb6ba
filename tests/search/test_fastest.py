"""The fastest plans alone are those of the whole search, on every network that shares what fits."""

import numpy as np
import pytest

from planner.answer.choices import Choices
from planner.answer.question import ask
from planner.answer.recommend import feasible_plans
from planner.estimate.memory import memory_use
from planner.search.fastest import ROUNDING, _Timed
from planner.search.fitting import fitting, peaks
from planner.search.rank import search

CASES = [
    ("llama-3.1-8b", "1xdgx-h100", {}),
    ("gpt2", "3xdgx-a100", {"network": "tcp-100"}),
    ("qwen2.5-7b", "4xdgx-h100", {"stack": "megatron-core"}),
    ("llama-3.1-70b", "16xdgx-h100", {"stack": "torchtitan", "network": "tcp-100"}),
    ("mixtral-8x7b", "4xdgx-a100", {"network": "roce-100"}),
    ("llama-3.1-8b", "2xpcie-8x-rtx-4090", {"method": "lora"}),
    ("llama-3.2-1b", "6xgb200-nvl72", {"global_batch_size": 48}),
    ("llama-3.1-8b", "4xl40s", {"offload": "optimizer"}),
    ("bert-large-uncased", "2xdgx-h100", {"fix": "recompute=full"}),
    ("llama-3.2-1b", "1xh100-sxm", {}),
    ("deepseek-v2-lite", "2xdgx-h100", {"method": "lora"}),
    ("llama-3.1-8b", "8xdgx-h100", {"network": "tcp-10"}),
    ("llama-3.1-8b", "1xdgx-a100-40gb", {"optimizer": "adamw-8bit-paged"}),
]


def searched(question, top):
    inputs = question.model, question.cluster, question.workload
    extra = {"stack": question.stack, "profile": question.profile, "fix": question.fix}
    return search(*inputs, **extra, top=top).plans


def same(some, others):
    assert len(some) == len(others)
    for name, column in others.plan.as_dict().items():
        assert np.array_equal(np.broadcast_to(some.plan.as_dict()[name], len(some)), np.broadcast_to(column, len(some)))
    assert np.array_equal(some.time.total, others.time.total)
    assert np.array_equal(some.memory.peak, others.memory.peak)


@pytest.mark.parametrize(("model", "cluster", "options"), CASES)
@pytest.mark.parametrize("top", [1, 10, 300])
def test_the_fastest_plans_are_the_first_of_the_search(model, cluster, options, top):
    question = ask(model, cluster, Choices(**options))
    same(feasible_plans(question).fastest(top, question.cluster, question.profile), searched(question, top))


@pytest.mark.parametrize(("model", "cluster", "options"), CASES)
def test_what_fits_is_what_the_search_finds_to_fit(model, cluster, options):
    asked = ask(model, cluster, Choices(**options))
    feasible = feasible_plans(asked)
    inputs = asked.model, asked.cluster, asked.workload, asked.stack
    memory = fitting(feasible.candidates, *inputs, estimate=memory_use)
    assert np.array_equal(feasible.rows, np.flatnonzero(memory.fits))
    assert np.allclose(peaks(feasible.candidates, asked.model, *inputs[2:]), memory.peak, rtol=1e-12)


@pytest.mark.parametrize("network", ["tcp-10", "roce-100", "ib-ndr400", "efa-3200"])
def test_what_fits_on_one_network_serves_another(network):
    first = ask("llama-3.1-8b", "4xdgx-h100", Choices())
    other = ask("llama-3.1-8b", "4xdgx-h100", Choices(network=network))
    feasible = feasible_plans(first)
    assert feasible.serves(other.cluster)
    same(feasible.fastest(10, other.cluster, other.profile), searched(other, 10))


def test_most_twins_of_a_plan_are_never_timed(monkeypatch):
    question = ask("llama-3.2-1b", "4xdgx-h100", Choices())
    feasible = feasible_plans(question)
    timed = []
    add = _Timed.add
    monkeypatch.setattr(_Timed, "add", lambda self, which: timed.append(which) or add(self, which))
    feasible.fastest(10, question.cluster, question.profile)
    assert len(np.concatenate(timed)) < 0.3 * len(feasible.rows)
    assert len(np.unique(np.concatenate(timed))) == len(np.concatenate(timed))


@pytest.mark.parametrize("network", ["tcp-10", "roce-100", "ib-ndr400"])
@pytest.mark.parametrize("model", ["llama-3.2-1b", "deepseek-v2-lite", "gpt2"])
def test_no_plan_takes_less_than_the_floor_of_its_twin(model, network):
    question = ask(model, "3xdgx-a100", Choices(network=network))
    feasible = feasible_plans(question)
    timed = _Timed(feasible, question.cluster, question.profile, 1)
    floor = timed.add(np.arange(len(feasible.rows)))
    assert (floor[feasible.lead] <= timed.seconds * (1 + ROUNDING)).all()
