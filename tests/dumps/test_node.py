"""The node that a dump makes: what is told, what is the catalogue's, and the same node back from its TOML."""

import pytest

from planner.catalogue.hardware import LOOKUP, accelerator, accelerator_names, node, standard_node
from planner.dumps.cluster_toml import cluster_toml
from planner.dumps.nccl_xml import read_nccl_xml
from planner.dumps.node import accelerator_of, host_name, node_of
from planner.dumps.own_links import NARROW_CARDS, link_bandwidth, most_links
from planner.dumps.pci import ACCELERATORS
from planner.dumps.reading import dump_of
from planner.dumps.records import Gpu, HostTopology
from planner.dumps.smi_topo import read_smi_topo
from planner.errors import SpecError
from planner.spec.cluster import Wiring
from planner.spec.read_cluster import read_cluster
from planner.topology.graph import graph
from tests.dumps.samples import DATA, all_linked, cube_mesh, matrix, real

SOCKETS = ["0-31\t0"] * 4 + ["32-63\t1"] * 4
NAMED = {
    "smi_topo_8xb200_8nic.txt": "b200-sxm",
    "smi_topo_2x2080ti_pix.txt": "rtx-2080-ti",
    "mxsmi_topo_8x_metax_other_vendor.txt": "a100-sxm-80gb",
    "xml_azure_ndv5.xml": "h100-sxm",
    "xml_azure_nc48v4.xml": None,
    "xml_aws_p4de-24xl.xml": None,
    "xml_rocm_topo_4p1h.xml": "mi210",
    "ncclinfo_graph.txt": "a100-sxm-80gb",
}


def made(text, part):
    return node_of(read_smi_topo(text)[0], accelerator(part))


def of_file(name):
    topology = dump_of(real(name), path=name).topology
    return node_of(topology, accelerator_of(topology, NAMED[name]), name=host_name(name), origin=name)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_node_written_as_toml_is_read_as_the_same_node(name, nodes, tmp_path):
    host = of_file(name)
    path = tmp_path / "host.toml"
    path.write_text(cluster_toml(host, nodes=nodes), encoding="utf-8")
    cluster = read_cluster(path, LOOKUP)
    assert cluster.node == host.node
    assert cluster.num_nodes == nodes
    assert graph(cluster).number_of_nodes() > host.node.gpus_per_node


def test_every_excerpt_with_a_topology_is_covered_above():
    with_topology = {
        path.name for path in DATA.iterdir() if path.name.startswith(("smi_topo", "xml", "mxsmi", "ncclinfo"))
    }
    assert with_topology - {"xml_aws_g5.48xl.xml"} == NAMED.keys()


def test_hostile_names_of_files_stay_data(tmp_path):
    topology = read_smi_topo(matrix(all_linked(2)))[0]
    origin = 'x"\n[[pools]]\nnodes = 9 # \x7f\x00\\'
    host = node_of(topology, accelerator("h100-sxm"), name=host_name(origin), origin=origin)
    path = tmp_path / "host.toml"
    path.write_text(cluster_toml(host), encoding="utf-8")
    cluster = read_cluster(path, LOOKUP)
    assert (cluster.num_nodes, len(cluster.pools), cluster.node) == (1, 1, host.node)


def test_eight_gpus_with_all_links_to_each_other_hang_on_a_switch():
    host = made(matrix(all_linked(8), tails=SOCKETS), "h100-sxm")
    assert (host.node.wiring, host.node.link, host.node.link_bandwidth) == (Wiring.SWITCH, "nvlink4", 450e9)
    assert host.node.sockets == 2
    assert host.node.in_network_reduction


def test_a_part_with_fewer_links_is_slower():
    assert made(matrix(all_linked(8, "NV8")), "h800-sxm").node.link_bandwidth == 200e9
    assert made(matrix(all_linked(8, "NV12")), "a100-sxm-80gb").node.link_bandwidth == 300e9


def test_four_gpus_whose_links_add_up_are_joined_pair_by_pair():
    polaris = made(matrix(all_linked(4, "NV4")), "a100-sxm-40gb").node
    assert (polaris.wiring, polaris.link_bandwidth) == (Wiring.MESH, 300e9)
    assert set(polaris.link_pairs.values()) == {100e9}
    four = made(matrix(all_linked(4, "NV6")), "h100-sxm").node
    assert (four.wiring, four.link_bandwidth) == (Wiring.MESH, 450e9)


def test_a_cube_mesh_is_the_catalogues_dgx_1():
    host = made(matrix(cube_mesh(), tails=SOCKETS), "v100-sxm2-32gb")
    assert host.node.link_pairs == node("dgx-1-v100").link_pairs
    assert host.node.link_bandwidth == node("dgx-1-v100").link_bandwidth


def test_sixteen_volta_gpus_hang_on_a_switch_though_their_usual_node_is_a_mesh():
    host = made(matrix(all_linked(16, "NV6")), "v100-sxm2-32gb")
    assert (host.node.wiring, host.node.link_bandwidth) == (Wiring.SWITCH, 150e9)


def test_bridges_join_cards_pair_by_pair():
    rows = [row.split() for row in ("X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X")]
    host = made(matrix(rows), "rtx-a6000")
    assert host.node.link_pairs == {(0, 1): 56.25e9, (2, 3): 56.25e9}
    assert host.node.link == "nvlink3"


def test_trays_of_a_rack_share_its_link_domain():
    host = made(matrix(all_linked(4)), "gb200")
    assert (host.node.wiring, host.node.link_bandwidth, host.node.domain_nodes) == (Wiring.SWITCH, 900e9, 18)
    assert "18 hosts share one link domain, as in gb200-nvl72" in host.assumed


def test_one_broken_pair_does_not_make_another_kind_of_node():
    host = made(matrix(all_linked(8, broken=[(2, 5)])), "h100-sxm")
    assert host.node.wiring == Wiring.SWITCH
    assert "all pairs are alike, though 1 pair has other links (planner topo check says which)" in host.assumed


def test_cards_without_links_reach_each_other_over_pcie_or_through_the_host():
    rows = [["X", "PHB"], ["PHB", "X"]]
    assert made(matrix(rows), "a100-pcie-80gb").node.wiring == Wiring.PCIE
    assert made(matrix(rows), "rtx-4090").node.wiring == Wiring.HOST
    peers = "nvidia-smi topo -p2p r\n\tGPU0\tGPU1\n GPU0\tX\t{0}\n GPU1\t{0}\tX\n"
    assert made(matrix(rows) + peers.format("OK"), "rtx-4090").node.wiring == Wiring.PCIE
    assert made(matrix(rows) + peers.format("CNS"), "a100-pcie-80gb").node.wiring == Wiring.HOST


def test_a_switch_that_four_cards_share_is_told():
    rows = [["X" if i == j else "PIX" if i // 4 == j // 4 else "SYS" for j in range(8)] for i in range(8)]
    host = made(matrix(rows, tails=SOCKETS), "rtx-pro-6000")
    assert (host.node.gpus_per_pcie_switch, host.node.sockets) == (4, 2)


def test_nics_show_which_gpus_share_a_switch_where_links_hide_it():
    rows = [[*row, *(["PXB" if i // 2 == k else "SYS" for k in range(4)])] for i, row in enumerate(all_linked(8))]
    host = made(matrix(rows, nics=4), "h100-sxm")
    assert host.node.gpus_per_pcie_switch == 2
    assert host.node.fabric.nics_per_node == 4


def test_adapters_that_are_near_no_gpu_are_not_counted():
    host = of_file("mxsmi_topo_8x_metax_other_vendor.txt")
    assert host.node.fabric.nics_per_node == 4
    assert "4 NICs (2 further off or down)" in host.told


def test_more_adapters_than_usual_share_the_usual_rate_until_ibstat_says_otherwise():
    rows = [[*row, *["PIX"] * 16] for row in all_linked(8)]
    text = matrix(rows, nics=16) + "".join(f"  NIC{i}: mlx5_{i}\n" for i in range(16))
    topology = dump_of(text, path="x").topology
    usual = node_of(topology, accelerator("h100-sxm")).node.fabric
    assert (usual.nics_per_node, usual.node_bandwidth) == (16, node("hgx-h100").fabric.node_bandwidth)
    ports = "".join(f"CA 'mlx5_{i}'\nPort 1:\nState: Active\nRate: 400\nLink layer: Ethernet\n" for i in range(16))
    told = node_of(dump_of(text + ports, path="x").topology, accelerator("h100-sxm")).node.fabric
    assert (told.kind, told.nics_per_node, told.nic_bandwidth) == ("roce", 16, 50e9)


def test_adapters_that_are_down_do_not_count():
    rows = [[*row, "PIX", "PIX"] for row in all_linked(2)]
    text = matrix(rows, nics=2) + "  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
    ports = "CA 'mlx5_0'\nPort 1:\nState: Active\nRate: 400\nCA 'mlx5_1'\nPort 1:\nState: Down\nRate: 10\n"
    host = node_of(dump_of(text + ports, path="x").topology, accelerator("h100-sxm"))
    assert (host.node.fabric.nics_per_node, host.node.fabric.nic_bandwidth) == (1, 50e9)


def test_a_providers_file_takes_its_links_from_the_usual_node():
    host = of_file("xml_aws_p4de-24xl.xml")
    assert (host.node.wiring, host.node.link_bandwidth) == (Wiring.SWITCH, 300e9)
    assert (host.node.fabric.kind, host.node.fabric.nics_per_node) == ("efa", 4)
    assert "links between accelerators as in dgx-a100" in host.assumed


def test_links_that_a_search_counted_are_turned_into_links():
    host = of_file("ncclinfo_graph.txt")
    assert host.node.link_bandwidth == 300e9
    assert host.node.gpus_per_node == 2


def test_one_gpu_alone_is_a_node():
    host = made("\tGPU0\tCPU Affinity\nGPU0\tX\t0-7\n", "h100-sxm")
    assert host.node.gpus_per_node == 1
    assert made("\tGPU0\tCPU Affinity\nGPU0\tX\t0-7\n", "v100-sxm2-32gb").node.gpus_per_node == 1


def test_more_links_than_the_named_part_has_are_another_part():
    with pytest.raises(SpecError, match="a pair has 18 links, but a100-sxm-80gb has 12"):
        made(matrix(all_linked(8)), "a100-sxm-80gb")


def test_links_that_nobody_tells_are_not_invented():
    gpu = '<pci busid="0000:{0:02x}:00.0" class="0x030200"/>'
    text = f"<system><cpu numaid='0'>{''.join(gpu.format(i) for i in range(16))}</cpu></system>"
    with pytest.raises(SpecError, match="leaves out the links between its 16 accelerators"):
        node_of(read_nccl_xml(text)[0], accelerator("mi300x"))


def test_the_accelerator_is_named_by_the_dump_or_by_the_user():
    named = HostTopology("x", (Gpu(0, name="NVIDIA H100 80GB HBM3"), Gpu(1, name="NVIDIA H100 80GB HBM3")))
    assert accelerator_of(named).name == "h100-sxm"
    assert accelerator_of(named, "h200").name == "h200-sxm"
    assert accelerator_of(HostTopology("x", (Gpu(0, device_id="10de:20b5"),))).name == "a100-pcie-80gb"
    with pytest.raises(SpecError, match="--gpu: which accelerator it is has to be said"):
        accelerator_of(HostTopology("x", (Gpu(0),)))
    with pytest.raises(SpecError, match="NVIDIA Graphics Device, which is no single accelerator"):
        accelerator_of(HostTopology("x", (Gpu(0, name="NVIDIA Graphics Device"),)))
    with pytest.raises(SpecError, match="unknown accelerator"):
        accelerator_of(named, "h1000")


def test_every_pci_id_and_narrow_card_is_of_the_catalogue():
    assert set(ACCELERATORS.values()) | set(NARROW_CARDS) <= accelerator_names().keys()


@pytest.mark.parametrize("part", accelerator_names())
def test_every_accelerator_makes_a_node_of_two_without_links(part):
    host = made(matrix([["X", "SYS"], ["SYS", "X"]], tails=["0-3\t0", "4-7\t1"]), part)
    assert host.node.wiring in (Wiring.PCIE, Wiring.HOST)
    assert (host.node.gpus_per_node, host.node.sockets) == (2, 2)


@pytest.mark.parametrize("part", accelerator_names())
def test_links_of_the_usual_node_are_whole_numbers_of_links(part):
    usual = node(standard_node(part))
    if usual.wiring == Wiring.SWITCH:
        links = most_links(accelerator(part), usual)
        assert links * link_bandwidth(accelerator(part), usual) == pytest.approx(usual.link_bandwidth)
