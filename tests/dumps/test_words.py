"""A dump in words."""

from planner.dumps.reading import dump_of
from planner.dumps.words import lines_of, size_words
from tests.dumps.samples import all_linked, cube_mesh, matrix, real


def words(name):
    return lines_of(dump_of(real(name), path=name))


def test_sockets_switches_and_nearest_adapters_are_said():
    lines = words("smi_topo_8xb200_8nic.txt")
    assert lines[0] == "nvidia-smi topo -m: 8 GPUs, 8 NICs"
    assert "18 direct links (NV18): every pair of the 8 GPUs" in lines
    assert "NUMA node 1: GPUs 4-7 (CPUs 56-111,168-223)" in lines
    assert "one PCIe switch: GPUs 0, 1 with mlx5_0, mlx5_1" in lines
    assert "GPUs 6, 7: nearest NICs mlx5_6, mlx5_7 (PIX)" in lines


def test_rails_are_said_where_every_gpu_has_its_own_adapter():
    rails = "rails: every GPU has a NIC of its own behind its PCIe switch"
    assert rails in words("xml_azure_ndv5.xml")
    assert rails not in words("smi_topo_8xb200_8nic.txt")


def test_pairs_of_a_mesh_are_listed_or_grouped():
    lines = lines_of(dump_of(matrix(cube_mesh()), path="x"))
    assert "2 direct links (NV2): 0-3, 0-4, 1-2, 1-5, 2-3, 4-7, 5-6, 6-7" in lines
    grouped = words("mxsmi_topo_8x_metax_other_vendor.txt")
    assert "direct links (MX), how many is not told: GPUs 0-3; GPUs 4-7" in grouped
    assert "further from every GPU, or down: mlx5_4, mlx5_5" in grouped


def test_links_that_a_file_leaves_out_are_not_said_to_be_missing():
    assert "own links of the GPUs: not in the file" in words("xml_aws_p4de-24xl.xml")


def test_logs_links_and_tables_have_a_line_each():
    log = words("ncclinfo_graph.txt")
    assert "NCCL 2.27.7+cuda13.0: 1 host" in log
    assert "ring found: 12 channels of 20.0 GB/s (NVL/PIX)" in log
    assert "all_reduce of 8 MiB to 16 MiB: Ring, Simple" in log
    assert words("smi_nvlink_status_a100.txt") == ["GPUs 0, 1 (NVIDIA A100-SXM4-80GB): 12 links of 25.0 GB/s"]
    assert words("h100_scaling_concat_sections.txt")[1].startswith("all_reduce, 4 ranks: 6 sizes of 256 MiB to 8 GiB")


def test_long_lists_end_with_their_number():
    text = "".join(f"CA 'mlx5_{i}'\nPort 1:\nState: Active\n" for i in range(20))
    lines = lines_of(dump_of(text, path="x"))
    assert len(lines) == 13
    assert lines[-1] == "8 ports more"


def test_two_gpus_are_called_so():
    assert "12 direct links (NV12): the two GPUs" in lines_of(dump_of(matrix(all_linked(2, "NV12")), path="x"))


def test_sizes_of_messages_have_the_unit_that_people_use():
    assert [size_words(size) for size in (8, 1024, 2**28, 33553920)] == ["8 B", "1 KiB", "256 MiB", "32 MiB"]
