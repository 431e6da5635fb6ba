"""Tables of measured collectives: read, predicted from what they state, calibrated, scored."""

import csv
import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from planner.catalogue.collective_errors import CALIBRATED, DATASHEET, DEFAULT
from planner.cli.main import main
from planner.errors import FileFormatError
from planner.validate.collectives import Calls, class_times, site_of
from planner.validate.collectives_columns import collective_name, read_collectives
from planner.validate.collectives_machines import machine
from planner.validate.collectives_report import collectives_report, overall

TABLES = Path(__file__).parents[1] / "data" / "collectives.csv.gz"
ROW = {
    "source_id": "one",
    "source": "github.com/someone/tests : a.log",
    "collective": "all_reduce",
    "n_ranks": "16",
    "n_nodes": "2",
    "gpus_per_node": "8",
    "gpu": "H100-SXM5-80GB",
    "intra": "NVSwitch (NVLink4)",
    "inter": "IB NDR 8x400",
    "nic_gbps_per_node": "3200",
    "nccl_version": "2.26",
    "size_bytes": "1073741824",
    "time_us": "4500",
    "algbw_gbs": "238",
    "busbw_gbs": "447",
    "notes": "",
}


@pytest.fixture
def written(tmp_path):
    def write(*rows):
        path = tmp_path / "collectives.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(ROW))
            writer.writeheader()
            writer.writerows(ROW | row for row in rows)
        return path

    return write


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "collectives.csv"
    path.write_bytes(gzip.decompress(TABLES.read_bytes()))
    return path


@pytest.fixture(scope="module")
def calibrated(published):
    return collectives_report(published, calibrate=True)


def run(*arguments):
    return CliRunner().invoke(main, ["validate", *map(str, arguments)], prog_name="planner")


def predicted(path, **asked):
    return [row.time for row in collectives_report(path, **asked).rows]


def bus_bandwidth(nodes, *, gpu, nics, collective="all_reduce", size=2**30):
    """GB/s that is predicted of nodes of four on Slingshot."""
    stated = ROW | {"gpu": gpu, "intra": "NVLink mesh", "inter": f"Slingshot11 {nics}x200", "collective": collective}
    ranks = 4 * nodes
    calls = Calls.of([call(stated | {"n_ranks": ranks, "n_nodes": nodes, "size_bytes": size, "nic": 200.0 * nics})])
    factor = (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks
    return float(factor * size / class_times(calls)[0] / 1e9)


def call(stated):
    from planner.validate.collectives_columns import StatedCall

    return StatedCall(
        source_id="", source="", collective=stated["collective"], name=collective_name(stated["collective"]),
        n_ranks=stated["n_ranks"], n_nodes=stated["n_nodes"], gpu=stated["gpu"], intra=stated["intra"],
        inter=stated["inter"], nic_gbps_per_node=stated["nic"], size=float(stated["size_bytes"]),
    )  # fmt: skip


def test_one_row_comes_out_for_every_row_in_order_with_the_fields_of_the_interface(written):
    path = written({"source_id": "b"}, {"source_id": "a", "collective": "hypercube"}, {"source_id": "c", "time_us": ""})
    answer = json.loads(run("--collectives", path, "--json").stdout)
    assert answer["schema_version"] == 1
    assert [row["source_id"] for row in answer["rows"]] == ["b", "a", "c"]
    first, unknown, blank = answer["rows"]
    assert first["interval_s"][0] < first["predicted_time_s"] < first["interval_s"][1]
    assert (first["n_ranks"], first["n_nodes"], first["size_bytes"]) == (16, 2, 2**30)
    assert first["measured_time_s"] == pytest.approx(4.5e-3)
    assert unknown["predicted_time_s"] is None
    assert unknown["interval_s"] is None
    assert "hypercube" in unknown["reason"]
    assert blank["predicted_time_s"] == first["predicted_time_s"]


def test_a_prediction_depends_on_the_configuration_alone(written):
    path = written({}, {"time_us": "1"}, {"time_us": "", "algbw_gbs": "", "busbw_gbs": ""}, {"notes": "slow"})
    assert len(set(predicted(path))) == 1


def test_a_table_without_any_measurement_is_predicted_and_scores_nothing(written):
    path = written({"time_us": "", "algbw_gbs": ""}, {"time_us": "nan", "algbw_gbs": "", "size_bytes": "1024"})
    for options in ([], ["--calibrate", "half"]):
        result = run("--collectives", path, *options, "--json")
        assert result.exit_code == 0
        assert all(row["predicted_time_s"] > 0 for row in json.loads(result.stdout)["rows"])
        assert run("--collectives", path, *options).stdout.startswith("2 of 2 rows predicted, 0 of them measured")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"size_bytes": "0"}, "no bytes"),
        ({"n_ranks": "2", "n_nodes": "4"}, "cannot fill"),
        ({"n_ranks": "99999999999"}, "n_ranks"),
        ({"size_bytes": "1e30"}, "larger than any memory"),
    ],
)
def test_a_row_that_cannot_be_is_null_with_a_reason(written, cells, reason):
    (row,) = collectives_report(written(cells)).rows
    assert row.time is None
    assert reason in row.stated.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "lacks the columns collective, n_ranks, size_bytes"),
        (b"collective,n_ranks,size_bytes\nall_reduce,8\n", "line 2: has 2 cells"),
        (b"collective,n_ranks,size_bytes\nall_reduce,eight,8\n", "line 2: n_ranks should be a number"),
        (b"collective,n_ranks,size_bytes\nall_reduce,2.5,8\n", "n_ranks should be a whole number"),
        (b"collective,n_ranks,size_bytes\nall_reduce,8,-1\n", "size_bytes should be a number, zero or more"),
        (b"collective,collective,n_ranks,size_bytes\n", "has the column collective twice"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'collective,n_ranks,size_bytes\n"all_reduce,8,8\n', "is not CSV"),
        (b"collective,n_ranks,size_bytes\nall_reduce,inf,8\n", "n_ranks should be a number"),
    ],
)
def test_a_malformed_table_is_one_line_and_exit_code_4(tmp_path, text, words):
    path = tmp_path / "bad.csv"
    path.write_bytes(text)
    result = run("--collectives", path)
    assert result.exit_code == 4
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_file_is_exit_code_4(tmp_path):
    assert run("--collectives", tmp_path / "none.csv").exit_code == 4
    with pytest.raises(FileFormatError):
        read_collectives(tmp_path)


def test_columns_that_a_table_lacks_are_those_of_the_nearest_class(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("collective,n_ranks,size_bytes\nAllReduce,8,1048576\n\nall_gather,8,1e6\n", encoding="utf-8")
    report = collectives_report(path)
    assert all(row.time > 0 and row.level == DATASHEET for row in report.rows)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("all_reduce", "all_reduce"), ("AllReduce", "all_reduce"), ("all-gather", "all_gather"),
        ("reduce_scatter_perf", "reduce_scatter"), ("alltoall", "all_to_all"), ("SendRecv", "send_recv"),
        ("ncclBroadcast", "broadcast"), ("gather", ""), ("", ""),
    ],
)  # fmt: skip
def test_collectives_are_known_in_any_spelling(text, name):
    assert collective_name(text) == name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({"gpu": "H100", "inter": "NDR InfiniBand 400G"}, "infiniband between nvlink4"),
        ({"gpu": "H100", "inter": "IB/RoCE 8x400"}, "infiniband between nvlink4"),
        ({"gpu": "A100-SXM4-48GB (custom)", "inter": "RoCEv2 8x200"}, "roce between nvlink3"),
        ({"gpu": "NVIDIA H200", "inter": "AWS EFAv3 16x200"}, "efa between nvlink4"),
        ({"gpu": "GH200 120GB", "inter": "HPE Slingshot-11 4x200"}, "slingshot between nvlink4"),
        ({"gpu": "MI300X", "intra": "xGMI", "inter": "8x400 RoCE (Thor2)"}, "roce between xgmi"),
        ({"gpu": "H100", "inter": "GPUDirect-TCPXO 8x200"}, "tcpxo between nvlink4"),
        ({"gpu": "H100", "inter": "GPUDirect-TCPX"}, "tcpx between nvlink4"),
        ({"gpu": "T4", "intra": "PCIe3", "inter": "TCP 10GbE"}, "ethernet between pcie3"),
        ({"gpu": "V100", "inter": "TCP over IPoIB EDR"}, "ethernet between nvlink2"),
        ({"gpu": "RTX 5090", "intra": "PCIe5 no P2P", "n_nodes": 1}, "one domain of pcie5-host"),
        ({"gpu": "RTX 2080 Ti", "intra": "PCIe3, P2P blocked", "n_nodes": 1}, "one domain of pcie3-host"),
        ({"gpu": "H100 PCIe", "intra": "NVLink bridge", "n_nodes": 1}, "one domain of nvlink4-bridge"),
        ({"gpu": "GB200", "intra": "NVL72", "n_ranks": 72, "n_nodes": 18}, "one domain of nvlink5"),
        ({"gpu": "R300X", "intra": "NVLink 5", "n_nodes": 1}, "one domain of nvlink5"),
        ({"gpu": "quantum leap", "inter": "warp drive"}, "roce between pcie4"),
    ],
)
def test_classes_follow_from_words_that_nobody_has_seen(words, name):
    stated = {"gpu": "", "intra": "", "inter": "none", "nic_gbps_per_node": 0.0, "n_ranks": 16, "n_nodes": 2}
    assert machine(**(stated | words)).name == name


def test_what_had_to_be_guessed_widens_the_interval(written):
    sure, guessed = collectives_report(
        written({"inter": "RoCE 8x400"}, {"inter": "a network", "nic_gbps_per_node": ""})
    ).rows
    assert (sure.level, guessed.level) == (DEFAULT, DATASHEET)
    assert guessed.interval.high / guessed.interval.low > sure.interval.high / sure.interval.low


def test_one_gpu_cannot_drive_more_nics_than_its_slot_carries():
    wires = machine(gpu="H100", intra="", inter="RoCE 4x400", nic_gbps_per_node=1600.0, n_ranks=2, n_nodes=2)
    assert wires.remote_bandwidth < 65e9


def test_the_site_of_a_row_is_its_repository_whatever_the_file(published):
    sites = {site_of(row) for row in read_collectives(published).stated}
    assert "github.com/NVIDIA/nccl" in sites
    assert not any("/issues/" in site or " : " in site for site in sites)


def test_calibrated_errors_stay_within_their_bounds(calibrated):
    below, middle, above = (one.median for one in overall(calibrated, CALIBRATED))
    assert below < 0.05
    assert middle < 0.08
    assert above < 0.03


def test_every_level_is_better_than_the_one_before(calibrated):
    for index in range(3):
        errors = [overall(calibrated, level)[index].median for level in (DATASHEET, DEFAULT, CALIBRATED)]
        assert errors == sorted(errors, reverse=True)


def test_four_of_five_measured_times_lie_within_their_interval(published, calibrated):
    assert 0.72 < calibrated.coverage < 0.9
    assert 0.72 < collectives_report(published).coverage < 0.92


def test_a_calibrated_prediction_never_sees_its_own_time(published, tmp_path):
    with published.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source_id"] == "sophia_2n_all_reduce_s2"]
    chosen = rows[len(rows) // 2]
    before, after = (tmp_path / name for name in ("before.csv", "after.csv"))
    for path, time_us in ((before, chosen["time_us"]), (after, "123456")):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(chosen))
            writer.writeheader()
            writer.writerows(row | ({"time_us": time_us} if row is chosen else {}) for row in rows)
    index = rows.index(chosen)
    assert predicted(before, calibrate=True)[index] == predicted(after, calibrate=True)[index]


def test_sizes_without_a_measurement_are_interpolated_between_those_with_one(written):
    slow = [
        {"size_bytes": str(2**power), "time_us": str(2 * 2**power / 2**20 * 4.4), "algbw_gbs": ""}
        for power in range(26, 33, 2)
    ]
    asked = {"size_bytes": str(2**29), "time_us": "", "algbw_gbs": ""}
    path = written(*slow, asked)
    plain, own = predicted(path)[-1], predicted(path, calibrate=True)[-1]
    assert own == pytest.approx(2 * 2**9 * 4.4e-6, rel=0.05)
    assert own > 1.5 * plain


def test_a_group_size_without_measurements_takes_the_correction_of_the_nearest(written):
    ratio = 3.0
    plain = predicted(written(*({"size_bytes": str(2**p)} for p in (26, 28, 30))))
    known = [
        {"size_bytes": str(2**p), "time_us": str(ratio * one * 1e6)} for p, one in zip((26, 28, 30), plain, strict=True)
    ]
    other = {"n_ranks": "64", "n_nodes": "8", "time_us": "", "algbw_gbs": ""}
    path = written(*known, other)
    assert predicted(path, calibrate=True)[-1] == pytest.approx(ratio * predicted(path)[-1], rel=1e-6)


@pytest.mark.parametrize(("nodes", "measured"), [(8, 92), (32, 90), (64, 88), (128, 65), (256, 36), (512, 48)])
def test_all_reduce_of_a_gigabyte_falls_on_gh200_as_measured(nodes, measured):
    assert bus_bandwidth(nodes, gpu="GH200", nics=4) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("nodes", "measured"), [(2, 36), (8, 36), (128, 32.5), (256, 24), (540, 11.4)])
def test_all_gather_of_a_gigabyte_falls_on_a100_as_measured(nodes, measured):
    found = bus_bandwidth(nodes, gpu="A100-SXM4-40GB", nics=2, collective="all_gather")
    assert found == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("nodes", "measured"), [(2, 36), (8, 36), (256, 30), (540, 24)])
def test_all_reduce_of_a_gigabyte_falls_on_a100_as_measured(nodes, measured):
    assert bus_bandwidth(nodes, gpu="A100-SXM4-40GB", nics=2) == pytest.approx(measured, rel=0.25)


def test_several_thousand_rows_take_seconds(published):
    started = time.process_time()
    report = collectives_report(published, calibrate=True)
    assert len(report.rows) > 3000
    assert time.process_time() - started < 10


def test_times_grow_with_size_in_every_class(published):
    stated = read_collectives(published).stated
    wires = {(row.gpu, row.intra, row.inter, row.n_ranks, row.n_nodes, row.name): row for row in stated}
    for row in wires.values():
        ladder = [type(row)(**(vars(row) | {"size": 4.0**power})) for power in range(2, 18)]
        times = class_times(Calls.of(ladder))
        assert (np.diff(times) >= 0).all(), row
