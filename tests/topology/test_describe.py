import pytest

from planner.errors import SpecError
from planner.spec.plan import Plan
from planner.topology.describe import bottleneck, describe


def test_a_cluster_is_drawn_level_by_level(dgx):
    assert describe(dgx(4)) == [
        "4xdgx: 32 GPUs in 4 nodes",
        "└─ 4 x dgx: 8 x h100 each",
        "   ├─ one switch for 8 GPUs (nvlink4): 450.0 GB/s per GPU",
        "   ├─ 8 NICs per node (infiniband) of 50.0 GB/s: 50.0 GB/s per GPU",
        "   └─ a leaf per rail, non-blocking above",
    ]


def test_a_single_box_shows_no_network(machines):
    assert describe(machines.cluster(machines.pcie(peers=False, gpus_per_pcie_switch=4)))[1:] == [
        "└─ 1 x box: 8 x rtx-4090 each",
        "   ├─ pcie4 (no peer access: through host memory): 31.5 GB/s per GPU",
        "   ├─ 4 GPUs share each PCIe switch and its uplink",
        "   └─ 2 sockets joined by 20.0 GB/s",
    ]


def test_racks_meshes_thin_leaves_and_sites_are_named(machines):
    text = "\n".join(describe(machines.cluster(machines.nvl72(), 36)))
    assert "one switch for 72 GPUs across 18 nodes" in text
    mesh = "\n".join(describe(machines.cluster(machines.dgx1())))
    assert "16 linked pairs (nvlink2) of 25.0 GB/s to 50.0 GB/s; best rings over all 8 GPUs: 150.0 GB/s" in mesh
    leaves = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=2, per_leaf=16)), 64)
    assert "16 nodes per leaf switch, oversubscribed 2:1 above: 3,200.0 GB/s from each leaf" in describe(leaves)[-1]
    sites = describe(machines.sites(machines.switched(), (2, 2), wan=1.2))
    assert "4 GPUs" not in sites[0]
    assert sites[-1] == "└─ WAN between sites a, b: 1.2 GB/s and 30 ms to each site"


@pytest.mark.parametrize(
    ("degrees", "axis", "words"),
    [
        ({"tp": 8, "dp_shard": 4}, "dp_shard", "8 groups share the node's 8 NICs: 50.0 GB/s each"),
        ({"tp": 8, "dp_shard": 4}, "tp", "nvlink4 to the switch: 450.0 GB/s per rank"),
        ({"dp_shard": 32}, "dp_shard", "one group has the node's 8 NICs: 400.0 GB/s"),
        ({"tp": 8, "pp": 4}, "pp", "a NIC: 50.0 GB/s per rank"),
        ({"tp": 8, "dp_shard": 4}, "ep", "a group of one: nothing to send"),
        ({"dp_shard": 32, "ep": 32}, "ep", "one group has the node's 8 NICs: 400.0 GB/s"),
    ],
)
def test_bottlenecks_of_a_dgx_cluster_in_words(dgx, degrees, axis, words):
    assert bottleneck(Plan(**degrees), dgx(4), axis) == words


def test_bottlenecks_name_the_link_that_is_shared(machines):
    def words(cluster, axis, **degrees):
        return bottleneck(Plan(**degrees), cluster, axis)

    p4d = machines.cluster(machines.switched(fabric=machines.fabric(4, 12.5)), 4)
    assert words(p4d, "pp", tp=8, pp=4) == "2 ranks' traffic shares a NIC (12.5 GB/s): 6.2 GB/s each"
    leaf = machines.cluster(machines.switched(fabric=machines.fabric(8, 50.0, over=4, per_leaf=2)), 4)
    shared = "16 ranks' traffic shares a leaf's uplinks (200.0 GB/s): 12.5 GB/s each, oversubscribed 4:1"
    assert words(leaf, "dp_replicate", tp=8, dp_shard=2, dp_replicate=2) == shared
    sites = machines.sites(machines.switched(), (2, 2), wan=8.0)
    crossing = "8 ranks' traffic shares the WAN (8.0 GB/s): 1.0 GB/s each"
    assert words(sites, "dp_shard", tp=8, dp_shard=4) == crossing
    box = machines.cluster(machines.pcie())
    sockets = "4 ranks' traffic shares the link between CPU sockets (20.0 GB/s): 5.0 GB/s each"
    assert words(box, "dp_shard", tp=4, dp_shard=2) == sockets
    one_nic = machines.cluster(machines.switched(fabric=machines.fabric(1, 12.5)), 2)
    assert words(one_nic, "dp_shard", tp=8, dp_shard=2) == "8 groups share the node's NIC: 1.6 GB/s each"
    mesh = machines.cluster(machines.dgx1())
    assert words(mesh, "tp", tp=8) == "direct nvlink2 links between the group's GPUs: 150.0 GB/s per rank"
    staged = machines.cluster(machines.pcie(peers=False, sockets=1, host_memory_bandwidth=160e9))
    memory = "8 ranks' traffic shares host memory (80.0 GB/s): 10.0 GB/s each, without peer access between GPUs"
    assert words(staged, "tp", tp=8) == memory


def test_an_unknown_axis_is_refused_with_the_known_ones(dgx):
    with pytest.raises(SpecError, match="unknown axis 'dp'; did you mean"):
        bottleneck(Plan(), dgx(1), "dp")
