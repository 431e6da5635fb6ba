"""`planner import nccl-tests`."""

import csv
import json

import pytest

from tests.dumps.samples import DATA

PAIR, SCALING = DATA / "h100_2nodes_1gpu_alltoall_sendrecv.txt", DATA / "h100_scaling_concat_sections.txt"


@pytest.fixture
def run(planner):
    """Runs the command in a wide window."""
    return lambda *arguments: planner("import", "nccl-tests", *arguments, COLUMNS="200")


def test_every_table_of_every_log_is_listed(run):
    result = run(PAIR, SCALING)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith(("h100_2nodes", "h100_scaling"))]
    assert [(line[2], line[3]) for line in lines] == [
        ("alltoall", "2"),
        ("sendrecv", "2"),
        ("all_reduce", "2"),
        ("all_reduce", "4"),
        ("all_reduce", "6"),
    ]
    assert "366.2" not in result.stdout
    assert "346.9" in result.stdout


def test_what_was_inferred_is_said_on_stderr(run):
    result = run(DATA / "gh200_alps_64n_table_only.txt")
    assert "line 3: 256 ranks by busbw / algbw" in result.stderr


def test_rows_are_written_as_csv_and_other_rows_do_not_replace_them(run, tmp_path):
    path = tmp_path / "points.csv"
    result = run(PAIR, "--csv", path)
    assert f"Wrote 6 rows to {path}." in result.stdout
    assert len(list(csv.DictReader(path.open()))) == 6
    other = run(SCALING, "--csv", path)
    assert other.exit_code == 2
    assert "is there already" in other.stderr
    assert run(SCALING, "--csv", path, "--force").exit_code == 0


def test_json_has_every_row_in_base_units(run):
    data = json.loads(run(PAIR, "--json").stdout)
    table = data["tables"][0]
    assert (table["collective"], table["ranks"], table["version"]) == ("alltoall", 2, "2.29.2")
    assert table["samples"][0]["size"] == 4294967296
    assert table["samples"][0]["time"] == pytest.approx(0.0551659)
    assert table["samples"][0]["in_place_busbw"] == 43.7e9


def test_logs_without_tables_are_named_and_do_not_hide_the_others(run, tmp_path):
    empty = tmp_path / "empty.log"
    empty.write_text("job started\n")
    result = run(PAIR, empty)
    assert result.exit_code == 0
    assert "empty.log: is of no known format" in result.stderr


def test_logs_that_all_lack_tables_are_an_error_of_their_files(run):
    result = run(DATA / "smi_topo_8xb200_8nic.txt")
    assert result.exit_code == 4
    assert "no table of nccl-tests in it" in result.stderr
