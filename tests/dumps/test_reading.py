"""A file of any format, or of several."""

import pytest

from planner.dumps import recognise as formats
from planner.dumps.reading import dump_of, merged, read_dump
from planner.dumps.recognise import recognise
from planner.dumps.text import MOST_BYTES, read_text
from planner.errors import FileFormatError
from tests.dumps.samples import EXCERPTS, all_linked, matrix, real

IBSTAT = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n"
NVLINK = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("smi_topo", (formats.SMI_TOPO,)),
        ("mxsmi", (formats.SMI_TOPO,)),
        ("smi_nvlink", (formats.NVLINK_STATUS,)),
        ("xml_", (formats.NCCL_XML,)),
        ("ncclinfo", (formats.NCCL_INFO,)),
        ("h100_scaling", (formats.NCCL_TESTS,)),
        ("p4de", (formats.NCCL_TESTS,)),
    ],
)
def test_formats_are_told_from_the_text_alone(start, expected):
    names = [path.name for path in EXCERPTS if path.name.startswith(start)]
    assert names
    for name in names:
        assert recognise(real(name)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '{"nodes": 4}',
        "nodes = 4\nnode = 'dgx-h100'\n",
        "GPU utilisation 90 %",
        "<p align=center>Benchmarks</p>",
    ],
)
def test_other_texts_are_of_no_format(text):
    assert recognise(text) == ()


def test_an_unknown_file_names_the_formats_that_are_read(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("our cluster is slow")
    with pytest.raises(FileFormatError, match=r"notes.txt: is of no known format; known: nvidia-smi topo -m"):
        read_dump(path)


def test_an_empty_and_a_missing_file_say_so(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    with pytest.raises(FileFormatError, match="is empty"):
        read_dump(empty)
    with pytest.raises(FileFormatError, match="cannot be read: No such file"):
        read_dump(tmp_path / "none.txt")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_dump(tmp_path)


def test_an_error_names_the_file_and_the_line():
    with pytest.raises(FileFormatError, match=r"g5\.xml: line 14: "):
        dump_of(real("xml_aws_g5.48xl.xml"), path="g5.xml")


def test_the_outputs_of_several_commands_in_one_file_complete_each_other():
    text = (
        matrix([["X", "NV2", "PIX"], ["NV2", "X", "SYS"]], nics=1) + "NIC Legend:\n\n  NIC0: mlx5_0\n" + NVLINK + IBSTAT
    )
    dump = dump_of(text, path="host.txt")
    assert dump.formats == (formats.SMI_TOPO, formats.NVLINK_STATUS, formats.PORTS)
    assert (dump.topology.gpus[0].name, dump.topology.gpus[0].links) == ("NVIDIA A100-SXM4-80GB", 1)
    (nic,) = dump.topology.nics
    assert (nic.name, nic.speed, nic.state, nic.layer) == ("mlx5_0", 25e9, "active", "infiniband")


def test_files_of_different_kinds_are_one_host_and_of_the_same_kind_two():
    topology = dump_of(matrix([["X", "NV2", "PIX"], ["NV2", "X", "SYS"]], nics=1) + "  NIC0: mlx5_0\n", path="a")
    ports = dump_of(IBSTAT, path="b")
    (host,) = merged([topology, ports])
    assert host.path == "a, b"
    assert host.topology.nics[0].speed == 25e9
    assert merged([topology, topology]) == [topology, topology]


def test_a_format_that_only_seems_to_be_there_does_not_spoil_another():
    text = matrix(all_linked(2)) + "#  size count type redop root time   algbw   busbw\n"
    dump = dump_of(text, path="x")
    assert dump.topology
    assert dump.tables == ()
    assert "table without rows" in dump.notes[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-16-be"])
def test_files_that_windows_wrote_are_read(tmp_path, encoding):
    path = tmp_path / "topo.txt"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + matrix(all_linked(2)).replace("\n", "\r\n").encode(encoding))
    assert len(read_dump(path).topology.gpus) == 2


def test_files_beyond_the_limits_are_refused_before_they_are_parsed(tmp_path):
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(FileFormatError, match="more than 64 MiB"):
        read_text(path)
    path.write_bytes(b"\n" * 3_000_002)
    with pytest.raises(FileFormatError, match="more than 3,000,000 lines"):
        read_text(path)
