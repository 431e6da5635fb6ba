"""NCCL's XML: dumps of machines, files of providers, AMD's variant."""

import pytest

from planner.dumps import nccl_xml
from planner.errors import FileFormatError
from tests.dumps.samples import real

SWITCHED = """<system version="1">
 <cpu host_hash="0x1" numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
  <pci busid="0000:18:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
   <pci busid="0000:19:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s" link_width="16">
    <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="{switch}" count="18" tclass="0x068000"/></gpu>
   </pci>
   <pci busid="0000:1a:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s" link_width="16">
    <nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/><net name="mlx5_0+mlx5_1" speed="800000"/></nic>
   </pci>
  </pci>
 </cpu>
 <cpu host_hash="0x1" numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
  <pci busid="0000:9a:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="16.0 GT/s" link_width="8">
   <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="{switch}" count="18" tclass="0x068000"/></gpu>
  </pci>
 </cpu>
{more}</system>"""


def read_nccl_xml(text):
    """The first host of a file."""
    return nccl_xml.read_nccl_xml(text)[0]


def switched(switch="fffffff:ffff:ff", more=""):
    return read_nccl_xml(SWITCHED.format(switch=switch, more=more))


def test_links_to_a_switch_join_every_pair():
    topology = switched()
    assert topology.switched is True
    assert topology.links_told
    assert topology.pairs[0, 1].kind == "NV18"
    assert topology.pairs[0, 1].path == "SYS"
    assert [gpu.links for gpu in topology.gpus] == [18, 18]


def test_device_numbers_order_the_gpus_and_adapters_keep_their_rate():
    topology = switched("0000:05:00.0")
    assert [gpu.bus_id for gpu in topology.gpus] == ["0000:9a:00.0", "0000:19:00.0"]
    assert [(nic.name, nic.speed, nic.layer, nic.gpu_direct) for nic in topology.nics] == [
        ("mlx5_0", 50e9, "infiniband", True)
    ]
    assert topology.nic_pairs == {(0, 0): "SYS", (1, 0): "PIX"}


def test_pcie_links_have_rate_width_and_bandwidth():
    devices = {device.bus_id: device for device in switched().pcie}
    assert devices["0000:19:00.0"].parent == "0000:18:00.0"
    assert devices["0000:19:00.0"].bandwidth == pytest.approx(63e9, rel=0.001)
    assert devices["0000:9a:00.0"].bandwidth == pytest.approx(15.75e9, rel=0.001)
    assert (devices["0000:9a:00.0"].rate, devices["0000:9a:00.0"].width) == (16e9, 8)


def test_every_host_of_a_fused_dump_is_read():
    other = '<cpu host_hash="0x2" numaid="0"><pci busid="0000:19:00.0" class="0x030200"><gpu dev="0"/></pci></cpu>'
    first, second = nccl_xml.read_nccl_xml(SWITCHED.format(switch="fffffff:ff:ff.0", more=other))
    assert (len(first.gpus), len(second.gpus)) == (2, 1)
    assert first.notes == ("2 hosts in the file, of which the first is taken",)


def test_a_gpu_that_several_ranks_share_has_its_links_once():
    gpu = '<gpu dev="0" rank="{}"><nvlink target="fffffff:ff:ff.0" count="36" tclass="0x068000"/></gpu>'
    pci = f'<pci busid="0002:81:00.0" class="0x030200">{gpu.format(0)}{gpu.format(1)}</pci>'
    assert read_nccl_xml(f"<system><cpu numaid='0'>{pci}</cpu></system>").gpus[0].links == 36


def test_a_socket_interface_below_every_cpu_is_one_interface_near_both():
    nic = '<nic><net name="eth0" dev="0" speed="10000" gdr="0"/></nic>'
    gpu = '<pci busid="{}" class="0x030200"><gpu dev="{}"/></pci>'
    cpus = "".join(f'<cpu numaid="{i}">{gpu.format(i, i)}{nic}</cpu>' for i in range(2))
    topology = read_nccl_xml(f"<system>{cpus}</system>")
    assert [each.name for each in topology.nics] == ["eth0"]
    assert topology.nic_pairs == {(0, 0): "PHB", (1, 0): "PHB"}


def test_accelerators_of_their_own_class_are_known():
    topology = read_nccl_xml('<system><cpu numaid="0"><pci busid="1" class="0x120000"/></cpu></system>')
    assert len(topology.gpus) == 1


def test_a_machine_without_links_says_so_and_a_providers_file_does_not():
    bare = '<system><cpu numaid="0"><pci busid="0:1" class="0x030000"><gpu dev="0"/></pci></cpu></system>'
    assert read_nccl_xml(bare).links_told
    provided = read_nccl_xml(real("xml_aws_p4de-24xl.xml"))
    assert not provided.links_told
    assert not provided.from_machine
    assert "made-up PCIe switches" in provided.notes[0]


def test_a_providers_file_groups_gpus_and_adapters_by_switch():
    topology = read_nccl_xml(real("xml_aws_p4de-24xl.xml"))
    assert (len(topology.gpus), len(topology.nics)) == (8, 4)
    assert topology.pairs[0, 1].kind == "PIX"
    assert topology.pairs[0, 2].kind == "PHB"
    assert topology.pairs[0, 4].kind == "SYS"
    assert topology.gpus[0].device_id == "10de:20b2"
    assert {nic.layer for nic in topology.nics} == {"efa"}


def test_every_gpu_of_a_rail_optimised_file_has_its_own_adapter():
    topology = read_nccl_xml(real("xml_azure_ndv5.xml"))
    assert all(topology.nic_pairs[i, i] == "PIX" for i in range(8))
    assert topology.nic_pairs[0, 1] == "PHB"


def test_a_bridge_between_two_cards_is_a_direct_link():
    topology = read_nccl_xml(real("xml_azure_nc48v4.xml"))
    assert topology.pairs[0, 1].links == 12
    assert topology.switched is False
    assert topology.nics[0].speed == 12.5e9


def test_amds_links_are_read_pair_by_pair():
    topology = read_nccl_xml(real("xml_rocm_topo_4p1h.xml"))
    linked = {pair: link.links for pair, link in topology.pairs.items() if link.direct}
    assert linked == {(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 1}
    assert {link.kind for link in topology.pairs.values() if link.direct} == {"XGMI"}
    assert topology.pairs[0, 3].kind == "PXB"


def test_gpus_that_name_themselves_as_the_other_end_leave_the_links_untold():
    link = '<nvlink target="{0}" count="12" tclass="0x030200"/>'
    gpu = f'<pci busid="{{0}}" class="0x030200"><gpu dev="{{1}}">{link}</gpu></pci>'
    text = f"<system><cpu numaid='0'>{gpu.format('1:00', 0)}{gpu.format('2:00', 1)}</cpu></system>"
    topology = read_nccl_xml(text)
    assert not topology.links_told
    assert not topology.pairs[0, 1].direct
    assert "accelerator 0 names itself as the other end of its 12 links (2 such links)" in topology.notes[0]


def test_files_without_classes_are_refused_with_the_line():
    with pytest.raises(FileFormatError, match=r"line 14: .* 9 devices have no class"):
        read_nccl_xml(real("xml_aws_g5.48xl.xml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<graphs version='1'><graph id='0'/></graphs>", "XML of <graphs>, not a topology of NCCL"),
        ("<system version='1'></system>", "<system> with <cpu> in it"),
        ("<system><cpu numaid='0'><pci busid='0:1' class='0x020000'/></cpu></system>", "without an accelerator"),
    ],
)
def test_other_xml_is_refused_with_what_would_be_right(text, said):
    with pytest.raises(FileFormatError, match=said):
        read_nccl_xml(text)


def test_text_around_the_xml_is_passed_over_and_lines_still_count():
    text = "$ cat topo.xml\n" + real("xml_azure_nc48v4.xml") + "$ exit\n"
    assert len(read_nccl_xml(text).gpus) == 2
    with pytest.raises(FileFormatError, match="line 3"):
        read_nccl_xml("$ cat topo.xml\n<system>\n<cpu></system>")
