"""Collectives on 2 to 540 nodes of two machines, by the way that a plan on a user's cluster takes.

The node type of the catalogue, its graph, the class of its fabric: no table of calls is read. Bus bandwidths are those
of 1 GiB in GB/s, measured with nccl-tests: boeschf/nccl-benchmark-on-alps-2025 (Alps: four GH200 and four 200 Gb/s
Slingshot adapters a node) and argonne-lcf/alcf-nccl-tests (Polaris: four A100 and two adapters a node, OFI plugin).
"""

import pytest

import planner
from planner.estimate.communication import Network

GIB = 2.0**30
ALPS = [(8, 92), (16, 91), (32, 90), (64, 88), (128, 65), (256, 36), (512, 48)]
POLARIS = [(2, 36), (8, 36), (128, 32.5), (256, 24), (540, 11)]


def reached(node, number, collective):
    """Bus bandwidth in GB/s of a group of all ranks that exchanges 1 GiB."""
    cluster = planner.cluster(f"{number}x{node}")
    links = planner.group_links(planner.Plan(dp_shard=cluster.world_size), cluster).dp_shard
    network = Network.of(cluster, planner.ask("gpt2", cluster, planner.Choices()).profile)
    time = float(getattr(network, collective)(GIB, links))
    rounds = {"all_reduce": 2, "all_gather": 1}[collective]
    return rounds * (1 - 1 / cluster.world_size) * GIB / time / 1e9


@pytest.mark.parametrize(("nodes", "measured"), ALPS)
def test_an_all_reduce_on_8_to_512_nodes_of_alps_falls_as_measured(nodes, measured):
    assert reached("alps-gh200", nodes, "all_reduce") == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("nodes", "measured"), POLARIS)
def test_an_all_gather_on_2_to_540_nodes_of_polaris_falls_as_measured(nodes, measured):
    assert reached("polaris", nodes, "all_gather") == pytest.approx(measured, rel=0.25)


def test_an_all_gather_has_no_tree_so_that_it_falls_further_than_an_all_reduce():
    falls = {name: reached("polaris", 512, name) / reached("polaris", 8, name) for name in ("all_reduce", "all_gather")}
    assert falls["all_gather"] < 0.6 * falls["all_reduce"]
