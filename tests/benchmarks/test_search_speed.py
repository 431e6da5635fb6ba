"""Speed of the search: `pytest --benchmark-only -s tests/benchmarks`. Candidates per CPU second are printed."""

import time

import pytest

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.profiles import profile, stack
from planner.search.enumerate import enumerate_plans
from planner.search.rank import search
from planner.spec.workload import Workload

QUESTIONS = [
    pytest.param("llama-3.1-8b", "4xdgx-h100", Workload(128, 4096), id="8B on 32 GPUs"),
    pytest.param("llama-3.1-70b", "128xdgx-h100", Workload(1024, 4096), id="70B on 1024 GPUs"),
    pytest.param("deepseek-v3", "256xdgx-h100", Workload(2048, 4096), id="DeepSeek-V3 on 2048 GPUs"),
]


def cpu_seconds(benchmark, job):
    """The job's result and its CPU time; the benchmark itself measures the wall clock."""
    started, result = time.process_time(), benchmark.pedantic(job, rounds=1, warmup_rounds=1)
    return result, (time.process_time() - started) / 2


@pytest.mark.parametrize(("name", "machines", "job"), QUESTIONS)
def test_enumeration(benchmark, name, machines, job):
    question = model(name), cluster(machines), job
    found, seconds = cpu_seconds(benchmark, lambda: enumerate_plans(*question, stack=stack("torch")))
    print(f"\n{len(found):,} candidates, {len(found) / seconds:,.0f} enumerated per CPU second")
    assert len(found) / seconds > 500_000


@pytest.mark.parametrize(("name", "machines", "job"), QUESTIONS)
def test_search(benchmark, name, machines, job):
    asked = {"stack": stack("torch"), "profile": profile("h100-sxm", "torch")}
    question = model(name), cluster(machines), job
    found, seconds = cpu_seconds(benchmark, lambda: search(*question, **asked))
    print(f"\n{found.evaluated:,} candidates ({found.feasible:,} fit), {found.evaluated / seconds:,.0f} per CPU second")
    assert found.evaluated / seconds > 10_000
