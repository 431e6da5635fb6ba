"""What looks wrong, with the reason and the next command; and what does not."""

import pytest

from planner.catalogue.hardware import node
from planner.dumps.findings import checked, findings
from planner.dumps.reading import dump_of
from tests.dumps.samples import EXCERPTS, all_linked, cube_mesh, matrix, real
from tests.dumps.test_nccl_xml import SWITCHED

FINE = matrix([[*row, *["PIX" if i == j else "NODE" for j in range(4)]] for i, row in enumerate(all_linked(4))], nics=4)


def found(text, usual=None):
    return findings(dump_of(text, path="x"), usual)


def whats(text, usual=None):
    return [finding.what for finding in found(text, usual)]


@pytest.mark.parametrize("rows", [all_linked(8), cube_mesh(), all_linked(4, "NV6"), all_linked(2, "PHB"), [["X"]]])
def test_regular_wirings_have_nothing_wrong(rows):
    assert whats(matrix(rows)) == []


def test_bridged_pairs_are_no_broken_mesh():
    rows = [row.split() for row in ("X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X")]
    assert whats(matrix(rows)) == []


def test_a_nic_behind_every_gpus_switch_is_fine():
    assert whats(FINE) == []


def test_a_pair_without_links_where_the_others_have_them_is_found():
    (finding,) = found(matrix(all_linked(8, broken=[(2, 5)])))
    assert finding.what == "GPUs 2 and 5 are joined by SYS only"
    assert finding.command == "nvidia-smi nvlink -s -i 2,5"


def test_a_pair_with_fewer_links_is_found():
    rows = all_linked(8)
    rows[1][6] = rows[6][1] = "NV17"
    assert whats(matrix(rows)) == ["GPUs 1 and 6 are joined by NV17 only"]


def test_a_gpu_without_any_link_is_found_once():
    broken = [(3, other) for other in range(8) if other != 3]
    assert whats(matrix(all_linked(8, broken=broken))) == ["GPU 3 has no direct link to any other"]


def test_every_host_of_a_file_is_checked():
    text = matrix(all_linked(8)) + matrix(all_linked(8)) + matrix(all_linked(8, broken=[(2, 5)]))
    assert whats(text) == ["host 3 of the file: GPUs 2 and 5 are joined by SYS only"]


def xgmi(ends):
    """A dump in which each accelerator has a link to those that `ends` names."""
    link = '<xgmi target="{}" count="1" tclass="0x120000"/>'
    gpu = '<pci busid="{}" class="0x120000"><gpu dev="{}">{}</gpu></pci>'
    gpus = [gpu.format(name, i, "".join(map(link.format, others))) for i, (name, others) in enumerate(ends.items())]
    return f"<system><cpu numaid='0'>{''.join(gpus)}</cpu></system>"


def test_xgmi_that_joins_some_pairs_need_not_be_even():
    assert whats(xgmi({"a": "bc", "b": "ad", "c": "a", "d": "b"})) == []
    assert whats(xgmi({"a": "bc", "b": "acd", "c": "abd", "d": "bc"})) == ["GPUs 0 and 3 are joined by PHB only"]


def test_an_adapter_of_another_product_may_have_a_narrower_slot():
    nic = '<pci busid="{0}" class="0x020000" link_speed="{1} GT/s" link_width="16"/>'
    text = f"""<system><cpu numaid="0"><pci busid="1" class="0x030200"><gpu dev="0"/></pci>
    {nic.format("2", "32.0")}{nic.format("3", "8.0")}</cpu></system>"""
    assert [what for what in whats(text) if "PCIe" in what] == []
    one = text.replace('class="0x020000"', 'class="0x020000" vendor="0x15b3" device="0x1021"')
    assert [what[:9] for what in whats(one) if "PCIe" in what] == ["NIC 3: PC"]


def test_links_that_the_usual_node_has_are_missed():
    (finding,) = found(matrix(all_linked(2, "PHB")), node("hgx-h100"))
    assert finding.what == "no direct link between any two GPUs"
    assert whats(matrix(all_linked(2, "PHB")), node("pcie-8x-l40s")) == []
    assert whats(real("xml_azure_ndv5.xml"), node("hgx-h100")) == []


def status(*active, rate="25 GB/s"):
    lines = []
    for gpu, count in enumerate(active):
        lines.append(f"GPU {gpu}: Tesla V100-SXM2-32GB (UUID: x)")
        lines += [f"\t Link {i}: {rate if i < count else '<inactive>'}" for i in range(6)]
    return "\n".join(lines)


def test_inactive_links_are_found_where_others_have_them():
    (finding,) = found(status(6, 4, 6))
    assert finding.what == "GPU 1: links 4, 5 inactive, 4 work where others have 6"
    assert "-i 1" in finding.command


def test_links_that_no_gpu_uses_are_not_at_fault():
    assert whats(status(4, 4, 4, 4)) == []


def test_a_link_at_a_lower_rate_is_found():
    (what,) = whats(status(6, 6).replace("Link 2: 25 GB/s", "Link 2: 20 GB/s", 1))
    assert what == "GPU 0: link 2 below the 25.0 GB/s of the others"


def port(device="mlx5_0", state="Active", physical="LinkUp", rate="400", layer="InfiniBand"):
    return (
        f"CA '{device}'\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n"
        f"\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
    )


@pytest.mark.parametrize(
    ("text", "what", "why", "command"),
    [
        (port(state="Initializing"), "is initializing", "no subnet manager", "opensm"),
        (port(state="Down", physical="Disabled"), "is down", "the link itself is disabled", "ibstat mlx5_0"),
        (port(state="Down", physical="Polling"), "is down", "cable, transceiver or switch port", "iblinkinfo"),
        (port(state="Down", layer="Ethernet"), "is down", "NCCL leaves the port out", "ethtool"),
        (port("rxe0", rate="2.5", layer="Ethernet"), "is RDMA in software", "CPU", "ibdev2netdev"),
    ],
)
def test_ports_that_do_not_work_are_found(text, what, why, command):
    (finding,) = found(text)
    assert what in finding.what
    assert why in finding.why
    assert command in finding.command


def test_a_port_that_trained_low_is_found_but_other_adapters_are_not():
    ports = [port(f"mlx5_{i}") for i in range(7)]
    assert whats("".join([*ports, port("mlx5_7", rate="200")])) == ["mlx5_7 runs at 200 Gb/s, others at 400 Gb/s"]
    assert whats("".join([*ports, port("mlx5_bond_0", rate="100", layer="Ethernet")])) == []


def test_iwarp_neighbours_without_ports_are_no_fault():
    assert whats("hca_id:\tcxgb4_0\n\ttransport:\t\t\tiWARP (1)\n") == []


def test_an_interface_without_an_address_is_found():
    head = "DEV\tPORT\tINDEX\tGID\t\t\tIPv4\t\tVER\tDEV\n"
    local = "mlx5_3\t1\t0\tfe80:0000:0000:0000:0000:00ff:fe00:0001\t\t\tv2\tnet1\n"
    routable = "mlx5_3\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0002\t10.0.0.2\tv2\tnet1\n"
    assert whats(head + local) == ["mlx5_3 port 1 has no RoCE v2 address over IPv4"]
    assert whats(head + local + routable) == []


@pytest.mark.parametrize("kind", ["SYS", "NODE", "PHB"])
def test_gpus_too_far_from_every_nic_for_gpudirect_are_found(kind):
    rows = [[*row, "PIX" if i < 2 else kind] for i, row in enumerate(all_linked(4))]
    (finding,) = found(matrix(rows, nics=1))
    assert finding.what == f"GPUs 2, 3: no NIC nearer than {kind}"
    assert "GPUDirect RDMA" in finding.why
    assert "NCCL_NET_GDR_LEVEL" in finding.why


def test_adapters_that_cannot_reach_gpu_memory_are_found_once():
    (finding,) = found(real("xml_azure_nc48v4.xml"))
    assert finding.what == "no GPUDirect RDMA with eth0"


def test_a_narrow_slot_is_found_in_a_machines_dump():
    text = SWITCHED.format(switch="fffffff:ffff:ff", more="")
    whats_found = whats(text)
    assert "GPU 0000:9a:00.0: PCIe at 16 GT/s x8 (15.8 GB/s), its like have 63.0 GB/s" in whats_found
    assert "GPU 0: no NIC nearer than SYS" in whats_found


def test_slots_that_are_all_slow_are_found_by_the_catalogue():
    text = SWITCHED.format(switch="fffffff:ffff:ff", more="").replace("32.0 GT/s", "16.0 GT/s").replace('"8"', '"16"')
    assert "every GPU's PCIe link is 31.5 GB/s" in whats(text, node("hgx-h100"))


def test_a_providers_file_is_no_evidence_of_slow_slots():
    assert whats(real("xml_aws_p4de-24xl.xml"), node("dgx-a100")) == []


def test_refused_peer_access_is_found():
    assert whats(real("smi_topo_2x2080ti_pix.txt")) == ["no peer access between 1 pair of GPUs (NS)"]


def test_what_nccl_does_without_is_found():
    log = "n:1:2 [0] NCCL INFO {}\n"
    assert whats(log.format("Using network Socket")) == ["NCCL sends over TCP sockets"]
    assert whats(log.format("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0")) == ["NCCL sends over TCP sockets"]
    assert whats(log.format("NCCL_IB_DISABLE set by environment to 1.")) == ["NCCL_IB_DISABLE is 1"]
    assert "GPUDirect RDMA is off for mlx5_0, mlx5_1" in whats(real("ncclinfo_graph.txt"))
    assert whats(log.format("Using network IB")) == []


@pytest.mark.parametrize("path", [path for path in EXCERPTS if "g5" not in path.name], ids=lambda path: path.name)
def test_every_finding_of_a_real_file_has_a_reason_and_a_command(path):
    dump = dump_of(real(path.name), path=path.name)
    assert all(finding.what and finding.why and finding.command for finding in findings(dump))
    assert checked(dump)
