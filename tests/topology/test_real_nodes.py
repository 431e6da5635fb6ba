"""Node types of the catalogue, drawn as graphs, against what such machines print of themselves."""

from pathlib import Path

import networkx as nx
import pytest

from planner.catalogue.hardware import accelerator, node
from planner.dumps.host import data_nics, path_of
from planner.dumps.node import node_of
from planner.dumps.reading import read_dump
from planner.spec.cluster import Cluster, Pool, Wiring
from planner.topology.graph import graph, nics_of

TESTS = Path(__file__).parents[1]
PUBLIC = TESTS.parents[1] / "shared" / "files" / "topo"
"""A larger collection of public files, which is not part of the repository."""
MACHINES = [
    ("dgx-1-v100", "nodes/dgx-1-v100.txt"),
    ("frontier", "nodes/frontier.xml"),
    ("azure-nd-mi300x-v5", "nodes/azure-nd-mi300x-v5.xml"),
    ("aws-p4d", "dumps/xml_aws_p4de-24xl.xml"),
    ("aws-p4de", "dumps/xml_aws_p4de-24xl.xml"),
    ("azure-nd-h100-v5", "dumps/xml_azure_ndv5.xml"),
    ("dgx-b200", "dumps/smi_topo_8xb200_8nic.txt"),
    ("gcp-a4-highgpu-8g", "dumps/smi_topo_8xb200_8nic.txt"),
    ("azure-ndv2", "xml_azure_ndv2.xml"),
    ("hgx-h100", "smi_topo_8xh100_nv18.txt"),
    ("dgx-h100", "smi_topo_8xh100_nv18.txt"),
    ("pcie-8x-rtx-pro-6000", "smi_topo_8x_rtx6000pro_phb_sys.txt"),
]
FILES = {name: (TESTS / "data" if "/" in file else PUBLIC) / file for name, file in MACHINES}
FAR = {"PIX": "switch", "PXB": "switch", "PHB": "socket", "NODE": "socket", "SYS": "sockets"}
"""What two devices have in common, by the words of a dump."""
NEAR_TO_FAR = ("switch", "socket", "sockets")
COUNTS_ARE_NOT_TOLD = ("frontier",)
"""Whose dump has 1 for whatever number of links joins a pair."""
NICS_ARE_OTHERS = ("frontier",)
"""Whose dump is of a machine with another network."""


@pytest.fixture(params=FILES)
def pair(request):
    """A node of the catalogue, and what such a machine prints."""
    path = FILES[request.param]
    if not path.exists():
        pytest.skip("the collection of public files is not here")
    return node(request.param), read_dump(path).topology


def common(links, one, other):
    """What the ways of two devices over PCIe have in common: a switch, a socket, or the link between sockets."""
    inside = links.subgraph(v for v in links if v[0] in ("gpu", "nic", "pcie", "socket"))
    kinds = [v[0] for v in nx.shortest_path(inside, one, other)[1:-1]]
    return "sockets" if kinds.count("socket") > 1 else "switch" if "socket" not in kinds else "socket"


def drawn(known):
    """The graph of one node without its accelerators' own links, and these links."""
    links = graph(Cluster("one", (Pool(known, 1),)))
    own = {(a[2], b[2]): data["capacity"] for a, b, data in links.edges(data=True) if (a[0], b[0]) == ("gpu", "gpu")}
    host = links.copy()
    host.remove_edges_from([(a, b) for a, b in links.edges if (a[0], b[0]) == ("gpu", "gpu")])
    return host, own


def test_accelerators_have_the_links_that_the_machine_says(pair):
    known, topology = pair
    assert known.gpus_per_node == len(topology.gpus)
    made = node_of(topology, accelerator(known.accelerator.name), usual=known).node
    assert (made.wiring, made.link) == (known.wiring, known.link)
    if not topology.links_told or known.wiring == Wiring.PCIE:
        return
    _, own = drawn(known)
    told = {pair: link.links for pair, link in topology.pairs.items() if link.direct}
    if known.wiring == Wiring.SWITCH:
        assert len(told) == len(topology.pairs)
        assert made.link_bandwidth == known.link_bandwidth
    elif known.name in COUNTS_ARE_NOT_TOLD:
        assert {pair for pair in own if pair[0] < pair[1]} == set(told)
    else:
        assert own == {way: made.link_pairs[pair] for pair in told for way in (pair, pair[::-1])}


def test_accelerators_share_the_switches_and_sockets_that_the_machine_says(pair):
    known, topology = pair
    host, _ = drawn(known)
    told = {pair: FAR[path_of(link)] for pair, link in topology.pairs.items() if path_of(link)}
    for (one, other), what in told.items():
        assert common(host, ("gpu", 0, one), ("gpu", 0, other)) == what, (one, other)
    near = {(gpu, nic) for (gpu, nic), word in topology.nic_pairs.items() if FAR[word] == "switch"}
    together = {(a, b) for a, nic in near for b, same in near if nic == same and a < b}
    for one, other in together:
        assert common(host, ("gpu", 0, one), ("gpu", 0, other)) == "switch", (one, other)


def test_each_accelerator_is_as_near_to_its_network_adapters_as_the_machine_says(pair):
    known, topology = pair
    adapters = sorted(data_nics(topology), key=lambda nic: topology.nics[nic].name)
    if not adapters or known.name in NICS_ARE_OTHERS:
        return
    assert known.fabric.nics_per_node == len(adapters)
    told = {
        (gpu, place): FAR[topology.nic_pairs[gpu, nic]]
        for gpu in range(known.gpus_per_node)
        for place, nic in enumerate(adapters)
    }
    host, _ = drawn(known)
    for gpu in range(known.gpus_per_node):
        best = min((told[gpu, place] for place in range(len(adapters))), key=NEAR_TO_FAR.index)
        for nic in nics_of(known, gpu):
            assert told[gpu, nic] == best
            shared = sum(told[other, nic] == "switch" for other in range(known.gpus_per_node)) != 1
            # A bridge that only one accelerator and its adapter are behind is not drawn.
            assert common(host, ("gpu", 0, gpu), ("nic", 0, nic)) == (best if shared else "socket")
