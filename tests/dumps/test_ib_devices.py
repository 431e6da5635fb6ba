"""ibstat, ibv_devinfo and show_gids."""

import pytest

from planner.dumps.ib_devices import read_gids, read_ports
from planner.errors import FileFormatError

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: {state}
\t\tPhysical state: {physical}
\t\tRate: {rate}
\t\tLink layer: InfiniBand
"""
DEVINFO = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tboard_id:\t\t\tMT_0000000011
\tphys_port_cnt:\t\t\t2
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tactive_mtu:\t\t4096 (5)
\t\t\tlink_layer:\t\tEthernet
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t25.0 Gbps (32)
\t\tport:\t2
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tlink_layer:\t\tEthernet

hca_id:\tcxgb4_0
\ttransport:\t\t\tiWARP (1)
"""
GIDS = """DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_3\t1\t1\tfe80:0000:0000:0000:0000:00ff:fe00:0001\t\t\tv2\tnet1
mlx5_3\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0002\t10.0.0.2  \tv2\tnet1
n_gids_found=2
"""


def test_ibstat_tells_state_rate_and_layer():
    (port,) = read_ports(IBSTAT.format(state="Active", physical="LinkUp", rate=200))
    assert (port.device, port.port, port.state, port.physical) == ("mlx5_0", 1, "active", "linkup")
    assert (port.speed, port.layer, port.adapter) == (25e9, "infiniband", "MT4129")


def test_ibv_devinfo_tells_every_port_and_multiplies_lanes():
    first, second, other = read_ports(DEVINFO)
    assert (first.state, first.speed, first.mtu, first.layer) == ("active", 12.5e9, 4096, "ethernet")
    assert (second.port, second.state, second.adapter, second.speed) == (2, "down", "MT_0000000011", None)
    assert (other.device, other.port, other.transport) == ("cxgb4_0", None, "iwarp")


def test_fields_without_a_value_and_rates_of_software_are_read():
    text = IBSTAT.format(state="Active", physical="LinkUp", rate="2.5").replace("MT4129", "").replace("mlx5_0", "rxe0")
    (port,) = read_ports("node1: " + text.replace("\n", "\nnode1: "))
    assert (port.device, port.adapter, port.speed) == ("rxe0", "", 312.5e6)


def test_gids_have_an_index_and_the_routable_ones_an_address():
    link_local, routable = read_gids(GIDS)
    assert (link_local.ipv4, link_local.version) == ("", "v2")
    assert (routable.index, routable.ipv4, routable.interface) == (3, "10.0.0.2", "net1")


def test_what_lists_nothing_is_refused():
    with pytest.raises(FileFormatError, match="no adapter"):
        read_ports("State: Active\n")
    with pytest.raises(FileFormatError, match="show_gids: no rows"):
        read_gids(GIDS.partition("mlx5")[0])
