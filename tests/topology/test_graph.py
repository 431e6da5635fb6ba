from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest

from planner.errors import SpecError
from planner.topology.graph import folded_nodes, graph


def kinds(links):
    return Counter(kind for _, kind in links.nodes(data="kind"))


def test_a_node_of_eight_is_drawn_with_its_switch_its_nics_and_their_rails(dgx):
    assert kinds(graph(dgx(1))) == {"gpu": 8, "nvswitch": 1, "socket": 2, "nic": 8, "leaf": 8, "spine": 1}


def test_every_link_has_a_twin_in_the_other_direction(machines):
    links = graph(machines.sites(machines.pcie(peers=False, gpus_per_pcie_switch=4), (2, 2), wan=1.0))
    for one, other, data in links.edges(data=True):
        assert links.edges[other, one] == data
        assert data["capacity"] > 0
        assert data["latency"] >= 0


def test_a_cluster_of_16384_gpus_is_drawn_by_a_few_nodes(dgx, machines):
    assert folded_nodes(dgx(2048)) == [0, 1]
    leaves = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, per_leaf=32)), 2048)
    assert folded_nodes(leaves) == [0, 1, 32]
    assert folded_nodes(machines.cluster(machines.nvl72(), 4096)) == [0, 1, 18]
    assert len(graph(leaves)) < 100


def test_every_pool_is_drawn(machines):
    assert folded_nodes(machines.sites(machines.switched(), (5, 1, 3), wan=1.0)) == [0, 1, 5, 6, 7]


def test_what_undrawn_nodes_share_keeps_its_whole_capacity(machines):
    node = machines.switched(fabric=machines.fabric(8, 50.0, over=4, per_leaf=32))
    uplink = graph(machines.cluster(node, 2048)).edges[("leaf", 0, 0), ("spine", "")]
    assert uplink["capacity"] == pytest.approx(32 * 8 * 50e9 / 4)
    assert uplink["shared_by"] == 32


def test_a_leaf_of_a_rail_serves_one_nic_of_every_node(dgx):
    uplink = graph(dgx(100)).edges[("leaf", 0, 3), ("spine", "")]
    assert uplink["capacity"] == pytest.approx(100 * 50e9)


def test_spines_of_a_pod_lie_between_its_leaves_and_the_core(machines):
    fabric = machines.fabric(8, 50.0, over=2, per_leaf=2, nodes_per_pod=384, pod_oversubscription=7)
    links = graph(machines.cluster(machines.switched(fabric=fabric), 2048))
    assert kinds(links)["pod"] == 2
    assert links.edges[("leaf", 0, 0), ("pod", 0, 0)]["capacity"] == pytest.approx(2 * 8 * 50e9 / 2)
    core = links.edges[("pod", 0, 1), ("spine", "")]
    assert (core["capacity"], core["shared_by"]) == (pytest.approx(384 * 8 * 50e9 / 14), 384)


def test_all_nodes_can_be_drawn_and_all_gpus_reach_each_other(machines):
    cluster = machines.sites(machines.dgx1(), (2, 3), wan=1.0)
    links = graph(cluster, range(5))
    assert kinds(links)["gpu"] == 40
    assert nx.is_strongly_connected(links)


def test_links_of_accelerators_name_their_generation_and_others_their_kind(machines):
    links = graph(machines.sites(machines.switched(), (1, 1), wan=1.0))
    assert {kind for _, _, kind in links.edges(data="kind")} == {"nvlink4", "pcie", "upi", "infiniband", "wan"}
    assert links.edges[("gpu", 0, 0), ("nvswitch", 0, 0)]["kind"] == "nvlink4"


def test_trays_of_a_rack_share_one_switch(machines):
    links = graph(machines.cluster(machines.nvl72(), 36))
    assert links.has_edge(("gpu", 1, 3), ("nvswitch", 0, 0))
    assert links.has_edge(("gpu", 18, 0), ("nvswitch", 0, 1))


def test_the_hybrid_cube_mesh_has_six_links_a_gpu(machines):
    links = graph(machines.cluster(machines.dgx1()))
    for i in range(8):
        own = [data["capacity"] for _, to, data in links.out_edges(("gpu", 0, i), data=True) if to[0] == "gpu"]
        assert sum(own) == pytest.approx(6 * 25e9)


def test_a_nic_sits_beside_the_gpus_that_use_it(machines):
    links = graph(machines.cluster(machines.switched(fabric=machines.fabric(4, 12.5), gpus_per_pcie_switch=2)))
    for i in range(8):
        assert nx.has_path(links, ("gpu", 0, i), ("nic", 0, i // 2))
        assert links.has_edge(("pcie", 0, i // 2), ("nic", 0, i // 2))


def test_a_mesh_without_links_is_refused(machines):
    node = replace(machines.dgx1(), link_pairs={})
    with pytest.raises(SpecError, match="link_pairs is empty"):
        graph(machines.cluster(node))
