"""A larger collection of public files, where it is at hand: each is read right or refused in a plain sentence."""

import csv
import re
from collections import defaultdict

import pytest

from planner.dumps.findings import findings
from planner.dumps.reading import read_dump
from planner.dumps.words import lines_of
from planner.errors import FileFormatError
from tests.dumps.samples import PUBLIC

TOPO, LOGS = PUBLIC / "files" / "topo", PUBLIC / "files" / "nccl-tests"
POINTS = PUBLIC / "data" / "collectives.csv"
pytestmark = pytest.mark.skipif(not POINTS.exists(), reason="the collection of public files is not here")
GPUS = {
    "mxsmi_topo_8x_metax_other_vendor.txt": (8, 6),
    "ncclinfo_graph_system_dump_roce.txt": (2, 1),
    "smi_topo_1gpu_no_gpu1_column.txt": (1, 0),
    "smi_topo_2gpu_phb.txt": (2, 0),
    "smi_topo_2x2080ti_pix.txt": (2, 0),
    "smi_topo_2xa100pcie_node.txt": (2, 0),
    "smi_topo_2xv100pcie_sys_cpulist.txt": (2, 0),
    "smi_topo_8x_rtx6000pro_phb_sys.txt": (8, 0),
    "smi_topo_8x_rtx6000pro_switch_pix_phb.txt": (8, 0),
    "smi_topo_8xb200_8nic.txt": (8, 8),
    "smi_topo_8xh100_6nic_partial_rails.txt": (8, 6),
    "smi_topo_8xh100_nv18.txt": (8, 0),
    "xml_aws_p4de-24xl.xml": (8, 4),
    "xml_azure_nc48v4.xml": (2, 1),
    "xml_azure_ncv4.xml": (4, 1),
    "xml_azure_ndv2.xml": (8, 1),
    "xml_azure_ndv5.xml": (8, 8),
    "xml_oci_flattened_b4.xml": (8, 8),
    "xml_rocm_16p1h.xml": (16, 8),
    "xml_rocm_topo_4p1h.xml": (4, 1),
}
"""Accelerators and NICs of each file, counted by hand."""
TABLES = {
    "aks_ipoib_sockets_excerpt.txt": [("all_reduce", 16)],
    "b200_2n_1gpu_allgather_k8s.txt": [("all_gather", 2)],
    "gb200_nvl72_excerpt.txt": [("all_reduce", 72)],
    "gh200_2n_socket_fallback.txt": [("all_reduce", 8)],
    "h100_10nodes_8gpu_multi_collective_double.txt": [
        (name, 80) for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
    ],
    "h100_1node_4gpu_info.txt": [("all_gather", 4)],
    "mi300x_rccl_8gpu.txt": [("all_reduce", 8)],
    "mi355x_rccl_2n.txt": [("all_reduce", 16)],
    "p3dn_v100_2n_efa_info_interleaved.txt": [("all_reduce", 16)],
    "rtx2080ti_2gpu_pcie.txt": [("all_reduce", 2)],
}
"""Tables of files that are not in the table of measured points."""


def files(folder):
    return sorted(path for path in folder.glob("*") if path.name != "SOURCES.md")


@pytest.mark.parametrize("path", [*files(TOPO), *files(LOGS)], ids=lambda path: path.name)
def test_every_file_is_read_or_refused_in_a_plain_sentence(path):
    if path.name == "xml_aws_g5.48xl.xml":
        with pytest.raises(FileFormatError, match="line 14: NCCL topology XML whose 9 devices have no class"):
            read_dump(path)
        return
    dump = read_dump(path)
    assert lines_of(dump)
    findings(dump)


@pytest.mark.parametrize("name", GPUS)
def test_every_topology_has_all_accelerators_and_adapters(name):
    topology = read_dump(TOPO / name).topology
    assert (len(topology.gpus), len(topology.nics)) == GPUS[name]
    assert len(topology.pairs) == len(topology.gpus) * (len(topology.gpus) - 1) // 2


@pytest.mark.parametrize("name", TABLES)
def test_every_log_has_all_tables(name):
    assert [(table.collective, table.ranks) for table in read_dump(LOGS / name).tables] == TABLES[name]


def measured():
    """Path of a log -> published tables of the source that it comes from."""
    sources = dict(re.findall(r"^- (\S+): (.+)$", (LOGS / "SOURCES.md").read_text(), re.MULTILINE))
    by_source = defaultdict(lambda: defaultdict(list))
    with POINTS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_source[row["source"].replace(" : ", " ")][row["source_id"]].append(row)
    return {name: by_source[source] for name, source in sources.items() if source in by_source}


def same(table, rows):
    """Whether a table has the collective, sizes, times and bandwidths of published rows."""
    mine = {sample.size: sample for sample in table.samples}
    return table.collective == rows[0]["collective"] and all(
        (sample := mine.get(int(row["size_bytes"])))
        and sample.time * 1e6 == pytest.approx(float(row["time_us"]))
        and sample.algbw / 1e9 == pytest.approx(float(row["algbw_gbs"]), abs=1e-9)
        and sample.busbw / 1e9 == pytest.approx(float(row["busbw_gbs"]), abs=1e-9)
        for row in rows
    )


def test_tables_agree_row_by_row_with_the_published_points():
    agreed = set()
    for name, published in measured().items():
        for table in read_dump(LOGS / name).tables:
            for source_id, rows in published.items():
                if same(table, rows):
                    agreed.add((name, source_id))
                    assert str(table.ranks) == rows[0]["n_ranks"], name
                    assert table.nodes is None or str(table.nodes) == rows[0]["n_nodes"], name
    assert len({name for name, _ in agreed}) == len(measured())
