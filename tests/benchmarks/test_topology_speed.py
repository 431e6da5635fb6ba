"""How long links take: a cluster drawn, and the groups of many plans evaluated (run with --benchmark-only)."""

import time
from dataclasses import replace

import numpy as np
import pytest

from planner.catalogue.hardware import cluster as known_cluster
from planner.catalogue.models import model
from planner.catalogue.stacks import stack
from planner.quantities import divisors
from planner.search.enumerate import enumerate_plans
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wiring
from planner.spec.plan import Plan
from planner.spec.workload import Workload
from planner.topology.graph import graph
from planner.topology.group_links import _halves, _network, group_links, placed_links

ROWS = 300_000


def cluster_of(world, *, gpus=8, **fabric):
    accelerator = Accelerator("h100", "x", "x", 80e9, 79e9, 3.35e12, {"bf16": 989e12}, 132, 63e9)
    network = Fabric("ib", "infiniband", gpus, 50e9, 5e-6, **fabric)
    node = Node("dgx-h100", accelerator, gpus, Wiring.SWITCH, "nvlink4", 450e9, 2e-6, network)
    return Cluster("large", (Pool(node, world // gpus),))


def layouts_of(world):
    """Every way to divide the ranks, tensor groups up to 64, in both usual orders, spread over the rows in order."""
    found = [
        (tp, cp, pp, shard, rest // shard, ep, order)
        for tp in divisors(world)[divisors(world) <= 64].tolist()
        for cp in divisors(world // tp)[:6].tolist()
        for pp in divisors(world // tp // cp)[:8].tolist()
        for rest in [world // tp // cp // pp]
        for shard in divisors(rest).tolist()
        for ep in divisors(tp * cp * shard)[:7].tolist()
        for order in (0, 1)
    ]
    rows = np.array(found)[np.arange(ROWS) * len(found) // ROWS].T
    return Plan(**dict(zip(("tp", "cp", "pp", "dp_shard", "dp_replicate", "ep", "rank_order"), rows, strict=True)))


def forget():
    _network.cache_clear()
    _halves.cache_clear()


@pytest.mark.parametrize("world", [1024, 1536, 16384])
def test_links_of_300_thousand_plans(benchmark, world):
    cluster, plans = cluster_of(world), layouts_of(world)
    links = benchmark(group_links, plans, cluster)
    assert len(links) == ROWS


def test_placements_of_300_thousand_plans(benchmark):
    links = benchmark(placed_links, layouts_of(16384), cluster_of(16384))
    assert len(links.row) == ROWS


@pytest.mark.parametrize("world", [1024, 16384])
def test_shares_of_all_layouts_evaluated_anew(benchmark, world):
    cluster, plans = cluster_of(world, oversubscription=2.0, nodes_per_leaf=32), layouts_of(world)
    few = plans[np.arange(0, ROWS, 20)]
    links = benchmark.pedantic(group_links, (few, cluster), setup=forget, rounds=3)
    assert len(links) == len(few)


def test_a_cluster_of_16384_gpus_is_drawn(benchmark):
    assert len(benchmark(graph, cluster_of(16384, nodes_per_leaf=32))) < 100


THREE_TIERS = [
    pytest.param({"nodes_per_leaf": 2, "nodes_per_pod": 384, "pod_oversubscription": 7.0}, id="racks in pods of 3072"),
    pytest.param({"nodes_per_pod": 128, "oversubscription": 1.5, "pod_oversubscription": 2.0}, id="pods of rails"),
]
"""The first is the fabric of Llama 3 (arXiv 2407.21783, section 3.3.1)."""


@pytest.mark.parametrize("fabric", THREE_TIERS)
@pytest.mark.parametrize("name", ["llama-3.1-405b", "deepseek-v3"])
def test_links_of_all_candidates_on_16384_gpus_of_a_three_tier_fabric(benchmark, name, fabric):
    base = known_cluster("2048xgrand-teton-h100")
    node = replace(base.node, fabric=replace(base.node.fabric, **fabric))
    cluster = replace(base, pools=(Pool(node, 2048),))
    plans = enumerate_plans(model(name), cluster, Workload(16384, 8192), stack=stack()).plans
    took = []

    def links():
        forget()
        started = time.process_time()
        found = placed_links(plans, cluster)
        took.append(time.process_time() - started)
        return found

    found = benchmark.pedantic(links, rounds=3)
    print(f"\n{len(plans):,} candidates, {len(found.placements):,} placements: {min(took):.2f} s of processor time")
    assert len(found.row) == len(plans)
    assert min(took) < 3
