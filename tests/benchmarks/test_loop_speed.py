"""Speed of questions that are loops over the search: `pytest --benchmark-only -s tests/benchmarks/test_loop_speed.py`.

Processor time, and as a ratio to as many whole recommendations, which the machine and its other guests decide less.
"""

import time

import pytest

import planner
from planner.answer.compared.what_if import what_if
from planner.answer.min_gpus import USUAL_ACCELERATORS, min_gpus
from planner.answer.scaling import scaling

ROUNDS = 2
NETWORKS = "ib-ndr400,roce-400,tcp-100"


def processor_time(job):
    started = time.process_time()
    found = job()
    return found, time.process_time() - started


def timed(benchmark, job):
    """The job's result and its least processor time."""
    took = []

    def once():
        found, seconds = processor_time(job)
        took.append(seconds)
        return found

    return benchmark.pedantic(once, rounds=ROUNDS), min(took)


def of_recommending(model, clusters, **options):
    """Processor time of a whole recommendation for each cluster."""
    return sum(
        processor_time(lambda text=text: planner.recommend(model, text, planner.Choices(**options), top=1))[1]
        for text in clusters
    )


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"])
def test_scale_from_one_node_to_16384_gpus_on_three_networks(benchmark, model):
    found, seconds = timed(benchmark, lambda: scaling(model, "dgx-h100", planner.Choices(network=NETWORKS)))
    sizes = [point.gpus // 8 for point in found.networks[0].points if point.ranked]
    whole = of_recommending(model, [f"{nodes}xdgx-h100" for nodes in sizes], global_batch_size=4096)
    print(f"\n{model}: {seconds:.1f} s, {seconds / (3 * whole):.2f} of recommending each size on each network")
    assert seconds < 3 * whole


@pytest.mark.parametrize(("model", "days"), [("llama-3.1-8b", 30), ("llama-3.1-70b", 90)])
def test_min_gpus_of_ten_accelerators_to_finish_in_time(benchmark, model, days):
    choices = planner.Choices(tokens="1T")
    found, seconds = timed(benchmark, lambda: min_gpus(model, choices, accelerators=USUAL_ACCELERATORS, days=days))
    clusters = [plan.question.cluster_text for each in found.counts for plan in (each.fewest, each.in_time) if plan]
    whole = of_recommending(model, clusters, tokens="1T")
    print(f"\n{model}: {seconds:.1f} s, {seconds / whole:.1f} times recommending what it answers")
    assert seconds < 10 * whole


def test_min_gpus_of_ten_accelerators(benchmark):
    found, seconds = timed(benchmark, lambda: min_gpus("llama-3.1-8b", accelerators=USUAL_ACCELERATORS))
    clusters = [each.fewest.question.cluster_text for each in found.counts if each.fewest]
    whole = of_recommending("llama-3.1-8b", clusters)
    print(f"\n{seconds:.1f} s, {seconds / whole:.2f} of recommending each count that it answers")
    assert seconds < 2 * whole


def test_ten_what_ifs(benchmark):
    best = planner.recommend("llama-3.1-8b", "4xdgx-h100", top=1).best
    _, seconds = timed(benchmark, lambda: what_if(best, "all"))
    whole = of_recommending("llama-3.1-8b", ["4xdgx-h100"] * 10)
    print(f"\n{seconds:.1f} s, {seconds / whole:.2f} of ten recommendations")
    assert seconds < 2 * whole
