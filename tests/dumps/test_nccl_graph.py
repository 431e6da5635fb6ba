"""NCCL_DEBUG=INFO: what ran, over what, and the graph that NCCL found."""

import pytest

from planner.dumps.nccl_graph import read_nccl_log
from planner.dumps.nccl_system import read_nccl_system
from planner.dumps.records import AlgorithmChoice, TuningEntry
from tests.dumps.samples import real

LOG = """node1:10:20 [0] NCCL INFO NCCL_IB_HCA set to mlx5_5
node1:10:20 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.
node1:10:20 [0] NCCL INFO NET/IB : Using [0]mlx5_5:1/RoCE [1]mlx5_6:1/IB [RO]; OOB eno7np0:10.0.0.1<0>
node1:10:20 [0] NCCL INFO Using network IB
node1:10:20 [0] NCCL INFO comm 0x6176080 rank 1 nRanks 8 nNodes 2 localRanks 4 localRank 1 MNNVL 0
node2:11:21 [0] NCCL INFO Channel 00/04 : 0 3 6 5 4 7 2 1
node1:10:20 [0] NCCL INFO Channel 00/0 : 3[3] -> 6[2] [send] via NET/IB/0/GDRDMA
node1:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
node1:10:20 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo 1 proto 0 time 12.5
node1:10:20 [0] NCCL INFO NVLS multicast support is not available on dev 0
  1024  256  float  sum  -1node1:10:20 [0] NCCL INFO ReduceScatter: 2048 Bytes -> Algo RING proto LL128
"""
TREE = """n:1:2 [0] NCCL INFO === System : maxBw 48.0 totalBw 240.0 ===
n:1:2 [0] NCCL INFO CPU/0-0 (1/1/2)
n:1:2 [0] NCCL INFO + PCI[48.0] - PCI/0-18000 (1000c010)
n:1:3 [1] NCCL INFO === System : maxBw 1.0 totalBw 1.0 ===
n:1:2 [0] NCCL INFO               + PCI[48.0] - GPU/0-19000 (1)
n:1:2 [0] NCCL INFO                             + NVL[370.8] - NVS/0-0
n:1:2 [0] NCCL INFO               + PCI[48.0] - NIC/0-1a000
n:1:2 [0] NCCL INFO                             + NET[50.0] - NET/0-0 (0/0/1/50.000000)
n:1:2 [0] NCCL INFO + SYS[22.0] - CPU/0-1
n:1:2 [0] NCCL INFO CPU/0-1 (1/1/2)
n:1:2 [0] NCCL INFO + PCI[48.0] - GPU/0-9a000 (0)
n:1:2 [0] NCCL INFO               + NVL[370.8] - NVS/0-0
n:1:2 [0] NCCL INFO ==========================================
n:1:2 [0] NCCL INFO + PCI[48.0] - GPU/0-ff000 (7)
"""


def test_network_ranks_transports_and_settings_are_read():
    log = read_nccl_log(LOG)
    assert (log.network, log.devices) == ("IB", ("mlx5_5:1/RoCE", "mlx5_6:1/IB"))
    assert (log.ranks, log.nodes, log.hosts) == (8, 2, ("node1", "node2"))
    assert log.transports == {"NET/IB/GDRDMA": 1, "SHM": 1}
    assert log.settings == {"NCCL_IB_HCA": "mlx5_5", "NCCL_IB_DISABLE": "0"}
    assert log.rings == ((0, 3, 6, 5, 4, 7, 2, 1),)
    assert log.nvls is False


def test_choices_are_read_from_names_and_from_numbers_also_where_a_row_is_glued_in_front():
    assert read_nccl_log(LOG).choices == (
        AlgorithmChoice("all_reduce", 1024, "Ring", "LL"),
        AlgorithmChoice("reduce_scatter", 2048, "Ring", "LL128"),
    )


def test_a_real_log_tells_version_adapters_patterns_and_the_tuning_table():
    log = read_nccl_log(real("ncclinfo_graph.txt"))
    assert log.version == "2.27.7+cuda13.0"
    assert log.gpu_direct["mlx5_0"] is False
    assert [(pattern.pattern, pattern.channels, pattern.intra) for pattern in log.patterns] == [
        ("ring", 12, 20e9),
        ("balanced tree", 12, 40e9),
    ]
    assert TuningEntry("all_reduce", "Ring", "Simple", pytest.approx(15.2e-6), 240e9) in log.tuning
    assert AlgorithmChoice("all_reduce", 8388608, "Ring", "Simple") in log.choices


def test_the_graph_of_a_real_log_is_two_linked_gpus_under_one_cpu():
    topology = read_nccl_system(real("ncclinfo_graph.txt"))
    assert [gpu.bus_id for gpu in topology.gpus] == ["0000:17:00.0", "0000:65:00.0"]
    assert topology.pairs[0, 1].nccl_bandwidth == 240e9
    assert topology.pairs[0, 1].path == "PHB"
    assert topology.nic_pairs == {(0, 0): "PHB", (1, 0): "PHB"}


def test_switches_sockets_and_ports_of_a_graph_are_read_from_its_first_printer():
    topology = read_nccl_system(TREE)
    assert [gpu.bus_id for gpu in topology.gpus] == ["0000:9a:00.0", "0000:19:00.0"]
    assert [gpu.numa for gpu in topology.gpus] == [1, 0]
    assert topology.switched is True
    assert topology.pairs[0, 1].nccl_bandwidth == 370.8e9
    assert topology.pairs[0, 1].path == "SYS"
    assert topology.nics[0].speed == 50e9
    assert topology.nic_pairs == {(0, 0): "SYS", (1, 0): "PIX"}


def test_a_log_without_a_graph_has_no_topology():
    assert read_nccl_system(LOG) is None


def test_a_port_of_no_rate_is_one_of_unknown_rate():
    assert read_nccl_system(TREE.replace("50.000000", "0.000000")).nics[0].speed is None
