"""Speed and memory of the simulator: `pytest --benchmark-only -s tests/benchmarks`. Seconds are of processor time."""

import json
import subprocess
import sys
import time

import pytest

from planner.simulate.schedules import known_order
from planner.simulate.simulation import simulate
from planner.spec.durations import Block, Durations, Segment

ROUNDS = 3
LAYER = Block(
    "layer",
    (Segment("attention", 1.0), Segment("tp", transfer=0.2, axis="tp"), Segment("matmul", 1.0)),
    (Segment("matmul", 2.0), Segment("tp", transfer=0.2, axis="tp"), Segment("attention", 2.0)),
    gather=0.5,
    gather_again=0.5,
    reduce=0.7,
    kept=1e9,
    gathered=1e9,
    reducing=1e9,
)
"""A layer under ZeRO-3 (FSDP) and tensor parallelism."""


def step(stages, microbatches, layers):
    """A step with so many layers on each stage, and all that is said of it."""
    links = {"tp": "domain", "dp": "network", "pp": "network"}
    order = known_order("1f1b", stages, microbatches)
    blocks = ((LAYER,) * layers,) * stages
    table = Durations(blocks, order.rank_of, microbatches, "1f1b", send=0.1, penalty=0.45, links=links)
    simulation = simulate(table, order)
    return simulation, simulation.ranks, simulation.memory


def tasks_and_seconds(size):
    """How many tasks a step of this size has, and the least processor time that it takes."""
    took = []
    for _ in range(ROUNDS):
        started, (simulation, *_) = time.process_time(), step(*size)
        took.append(time.process_time() - started)
    return len(simulation.step.tasks), min(took)


def test_32_layers_with_fsdp_on_8_stages_and_64_micro_batches(benchmark):
    tasks, seconds = benchmark.pedantic(lambda: tasks_and_seconds((8, 64, 4)), rounds=1)
    print(f"\n{tasks:,} tasks in {seconds:.2f} s")
    assert seconds < 1


DEEP = """
import json, resource, sys, time
sys.path[:0] = {path}
from tests.benchmarks.test_simulator_speed import step
started = time.process_time()
simulation, ranks, memory = step(64, 512, 2)
seconds, kibibytes = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([len(simulation.step.tasks), seconds, kibibytes * 1024]))
"""


def test_128_layers_with_fsdp_on_64_stages_and_512_micro_batches(benchmark):
    """In a process of its own, whose memory is all counted."""
    command = [sys.executable, "-c", DEEP.format(path=sys.path)]
    printed = benchmark.pedantic(
        lambda: subprocess.run(command, capture_output=True, check=True, text=True).stdout, rounds=1
    )
    tasks, seconds, peak = json.loads(printed)
    print(f"\n{tasks:,} tasks in {seconds:.1f} s and {peak / 1e6:,.0f} MB")
    assert seconds < 20
    assert peak < 1e9


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([(8, 16, 4), (8, 64, 4), (8, 256, 4)], id="micro-batches"),
        pytest.param([(4, 64, 4), (16, 64, 4), (64, 64, 4)], id="stages"),
        pytest.param([(8, 32, 2), (8, 32, 8), (8, 32, 32)], id="layers"),
    ],
)
def test_time_grows_as_the_number_of_tasks(benchmark, sizes):
    """Sixteen times the tasks, at most twice the time for each."""

    runs = benchmark.pedantic(lambda: [tasks_and_seconds(size) for size in sizes], rounds=1)
    rates = [seconds / tasks for tasks, seconds in runs]
    print("\n" + ", ".join(f"{tasks:,} tasks in {seconds:.2f} s" for tasks, seconds in runs))
    assert runs[-1][0] > 12 * runs[0][0]
    assert max(rates) < 2 * min(rates)
