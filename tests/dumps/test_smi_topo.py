"""`nvidia-smi topo -m` in the forms that people paste."""

import pytest

from planner.dumps import smi_topo
from planner.dumps.text import plain_text
from planner.errors import FileFormatError
from tests.dumps.samples import all_linked, cube_mesh, matrix, real


def read_smi_topo(text):
    """The first host of a text."""
    return smi_topo.read_smi_topo(text)[0]


def kinds(topology):
    return {pair: link.kind for pair, link in topology.pairs.items()}


def test_eight_gpus_and_eight_nics_are_read_with_their_names_and_sockets():
    topology = read_smi_topo(real("smi_topo_8xb200_8nic.txt"))
    assert [gpu.index for gpu in topology.gpus] == list(range(8))
    assert {link.links for link in topology.pairs.values()} == {18}
    assert [nic.name for nic in topology.nics] == [f"mlx5_{i}" for i in range(8)]
    assert [gpu.numa for gpu in topology.gpus] == [0] * 4 + [1] * 4
    assert topology.gpus[7].cpus == "56-111,168-223"
    assert [topology.nic_pairs[0, nic] for nic in range(8)] == [
        "PIX",
        "PIX",
        "NODE",
        "NODE",
        "SYS",
        "SYS",
        "SYS",
        "SYS",
    ]
    assert topology.notes == ()


def test_links_of_another_vendor_are_direct_but_not_counted():
    topology = read_smi_topo(real("mxsmi_topo_8x_metax_other_vendor.txt"))
    assert topology.source == "mx-smi topo -m"
    assert topology.pairs[0, 1].direct
    assert topology.pairs[0, 1].links is None
    assert topology.pairs[0, 4].kind == "NODE"
    assert topology.gpus[5].numa == 0
    assert topology.gpus[5].cpus == "0-31,64-95"


def test_the_peer_matrix_below_is_told_from_the_links():
    topology = read_smi_topo(real("smi_topo_2x2080ti_pix.txt"))
    assert kinds(topology) == {(0, 1): "PIX"}
    assert topology.peer_access == {(0, 1): "NS"}


def test_a_peer_matrix_alone_asks_for_the_topology():
    text = "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
    with pytest.raises(FileFormatError, match="peer access only"):
        read_smi_topo(text)


def test_atomics_and_nvlink_peers_do_not_count_as_peer_access():
    wired = matrix([["X", "PHB"], ["PHB", "X"]])
    asked = "nvidia-smi topo -p2p {}\n\tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n"
    assert read_smi_topo(wired + asked.format("n")).peer_access == {}
    assert read_smi_topo(wired + asked.format("r")).peer_access == {(0, 1): "NS"}


def test_terminal_escapes_are_no_part_of_a_device():
    text = matrix([["X", "NV4"], ["NV4", "X"]]).replace("GPU0", "\x1b[4mGPU0\x1b[0m", 1)
    assert kinds(read_smi_topo(plain_text(text))) == {(0, 1): "NV4"}
    assert kinds(read_smi_topo(plain_text(text.replace("\x1b", "")))) == {(0, 1): "NV4"}


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-01-02T03:04:05.678Z ", "node001: ", "worker-0 | "])
def test_prefixes_of_launchers_are_passed_over(prefix):
    lines = matrix([["X", "NV12", "PIX"], ["NV12", "X", "SYS"]], nics=1).splitlines()
    topology = read_smi_topo("\n".join(prefix + line for line in lines))
    assert kinds(topology) == {(0, 1): "NV12"}
    assert topology.nic_pairs == {(0, 0): "PIX", (1, 0): "SYS"}


def test_a_header_that_lacks_a_column_is_mended_by_the_rows():
    text = matrix([["X", "NV4", "PIX"], ["NV4", "X", "SYS"]], nics=1) + "NIC0\tPIX\tSYS\tX\n"
    topology = read_smi_topo(text.replace("\tNIC0\tCPU", "\tCPU", 1))
    assert topology.nic_pairs == {(0, 0): "PIX", (1, 0): "SYS"}


def test_rows_without_any_header_are_read():
    text = matrix(cube_mesh()).partition("\n")[2]
    assert kinds(read_smi_topo(text)) == kinds(read_smi_topo(matrix(cube_mesh())))


def test_a_missing_row_is_read_from_the_others():
    lines = matrix(all_linked(4)).splitlines()
    topology = read_smi_topo("\n".join(lines[:-1]))
    assert len(topology.gpus) == 4
    assert {link.kind for link in topology.pairs.values()} == {"NV18"}
    assert "GPU3 is missing" in topology.notes[0]


def test_a_row_that_ends_early_is_noted_and_filled_from_the_others():
    lines = matrix(all_linked(4)).splitlines()
    topology = read_smi_topo("\n".join([*lines[:-1], "GPU3\tNV18\tNV18"]))
    assert len(topology.pairs) == 6
    assert "ends early" in topology.notes[0]


def test_rows_that_contradict_each_other_are_noted():
    rows = all_linked(3)
    rows[2][0] = "SYS"
    topology = read_smi_topo(matrix(rows))
    assert topology.pairs[0, 2].kind == "NV18"
    assert "GPU0 and GPU2 contradict" in topology.notes[0]


@pytest.mark.parametrize(
    ("tail", "cpus", "numa"),
    [
        ("0-47\t0", "0-47", 0),
        ("0,2,4,6\t1", "0,2,4,6", 1),
        ("0-11\tN/A", "0-11", None),
        ("\t1", "", 1),
        ("N/A\tN/A", "", None),
        ("", "", None),
        ("0-63\t0-1", "0-63", 0),
    ],
)
def test_affinities_may_be_ranges_lists_blank_or_not_available(tail, cpus, numa):
    topology = read_smi_topo(matrix([["X", "SYS"], ["SYS", "X"]], tails=[tail, tail]))
    assert (topology.gpus[0].cpus, topology.gpus[0].numa) == (cpus, numa)


def test_a_single_gpu_is_a_topology_without_pairs():
    topology = read_smi_topo("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\tN/A\t\tN/A\n")
    assert len(topology.gpus) == 1
    assert topology.pairs == {}


def test_old_words_and_renamed_adapters_are_known():
    text = "\tGPU0\tGPU1\troceo12399\tmlx5_bond_0\nGPU0\tX\tSOC\tPIX\tSOC\nGPU1\tSOC\tX\tSOC\tPIX\n"
    topology = read_smi_topo(text)
    assert kinds(topology) == {(0, 1): "SYS"}
    assert [nic.name for nic in topology.nics] == ["roceo12399", "mlx5_bond_0"]
    assert topology.nic_pairs[1, 1] == "PIX"


def test_processors_of_grace_nodes_are_no_adapters():
    text = "\tGPU0\tGPU1\tCPU0\tCPU Affinity\nGPU0\tX\tNV18\tC2C\t0-71\nGPU1\tNV18\tX\tSYS\t72-143\n"
    assert read_smi_topo(text).nics == ()


def test_gpus_of_a_container_keep_their_numbers():
    text = "\tGPU4\tGPU5\nGPU4\tX\tNV12\nGPU5\tNV12\tX\n"
    topology = read_smi_topo(text)
    assert [gpu.index for gpu in topology.gpus] == [4, 5]
    assert topology.pairs[0, 1].links == 12


def test_of_several_hosts_the_first_is_read_and_the_others_are_compared():
    whole, broken = matrix(all_linked(4)), matrix(all_linked(4, broken=[(1, 2)]))
    first, second, third = smi_topo.read_smi_topo(whole + whole + broken)
    assert [host.pairs[1, 2].kind for host in (first, second, third)] == ["NV18", "NV18", "SYS"]
    assert first.notes == ("3 hosts in the file, of which the first is taken; 1 of the others differ from it",)


def test_the_words_of_a_text_are_no_matrix():
    with pytest.raises(FileFormatError, match="no row of a matrix"):
        read_smi_topo("GPU0 and GPU1 are joined by NVLink\nSYS = Connection traversing PCIe\n")


def test_a_list_of_gpus_beside_the_matrix_is_no_row_of_it():
    text = matrix([["X", "NV12"], ["NV12", "X"]]) + "GPU0 NVIDIA A100\nGPU1 NVIDIA A100\n"
    assert read_smi_topo(text) == read_smi_topo(matrix([["X", "NV12"], ["NV12", "X"]]))


def test_absurdly_wide_matrices_are_refused():
    with pytest.raises(FileFormatError, match="devices; at most"):
        read_smi_topo("\t" + "\t".join(f"GPU{i}" for i in range(2000)) + "\nGPU0\tX\n")
