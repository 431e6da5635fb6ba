"""Speed of the search: `pytest --benchmark-only -s tests/benchmarks`. Rates are per second of processor time.

These are benchmarks, not tests: the machine and its other guests decide the figures, so the best of some rounds counts.
"""

import json
import resource
import subprocess
import sys
import time

import pytest

from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.profiles import profile
from planner.catalogue.stacks import stack
from planner.search.enumerate import enumerate_plans
from planner.search.rank import search
from planner.spec.workload import Workload

ROUNDS = 5
QUESTIONS = [
    pytest.param("llama-3.1-8b", "4xdgx-h100", Workload(128, 4096), id="8B on 32 GPUs"),
    pytest.param("llama-3.1-70b", "128xdgx-h100", Workload(1024, 4096), id="70B on 1024 GPUs"),
    pytest.param("deepseek-v3", "256xdgx-h100", Workload(2048, 4096), id="DeepSeek-V3 on 2048 GPUs"),
]


def processor_time(benchmark, job):
    """The job's result and its least processor time; pytest-benchmark itself shows the wall clock."""
    took = []

    def once():
        started, result = time.process_time(), job()
        took.append(time.process_time() - started)
        return result

    return benchmark.pedantic(once, rounds=ROUNDS), min(took)


@pytest.mark.parametrize(("name", "machines", "job"), QUESTIONS)
def test_enumeration(benchmark, name, machines, job):
    question = model(name), cluster(machines), job
    found, seconds = processor_time(benchmark, lambda: enumerate_plans(*question, stack=stack()))
    print(f"\n{len(found):,} candidates, {len(found) / seconds:,.0f} enumerated per second")
    assert len(found) / seconds > 1_000_000


@pytest.mark.parametrize(("name", "machines", "job"), QUESTIONS)
def test_search(benchmark, name, machines, job):
    asked = {"stack": stack(), "profile": profile("h100-sxm")}
    question = model(name), cluster(machines), job
    found, seconds = processor_time(benchmark, lambda: search(*question, **asked))
    print(f"\n{found.evaluated:,} candidates ({found.feasible:,} fit), {found.evaluated / seconds:,.0f} per second")
    assert found.evaluated / seconds > 100_000


def test_whole_command(benchmark):
    """Start-up, search and printing of 70B on 1,024 GPUs."""
    command = [sys.executable, "-m", "planner", "recommend", "llama-3.1-70b", "128xdgx-h100", "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = benchmark.pedantic(lambda: subprocess.run(command, capture_output=True, check=True).stdout, rounds=ROUNDS)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / ROUNDS
    evaluated = json.loads(printed)["evaluated"]
    print(f"\n{evaluated:,} candidates in {seconds:.2f} s, start-up included; {after.ru_maxrss / 1024:.0f} MiB")
    assert seconds < 2
    assert after.ru_maxrss < 500e6 / 1024
