"""Tables of nccl-tests as CSV."""

import csv
import io

from planner.dumps.collectives_csv import COLUMNS, csv_text
from planner.dumps.nccl_tests import read_nccl_tests
from tests.dumps.samples import real


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_every_row_of_every_table_is_written_with_its_figures():
    tables = read_nccl_tests(real("h100_2nodes_1gpu_alltoall_sendrecv.txt"))
    rows = read(csv_text(("logs/pair.log", table) for table in tables))
    assert tuple(rows[0]) == COLUMNS
    assert [row["source_id"] for row in rows] == ["pair_alltoall_2"] * 3 + ["pair_sendrecv_2"] * 3
    first = rows[0]
    assert (first["n_ranks"], first["n_nodes"], first["gpus_per_node"]) == ("2", "2", "1")
    assert (first["size_bytes"], first["time_us"], first["algbw_gbs"], first["busbw_gbs"]) == (
        *("4294967296", "55165.9", "77.86", "38.93"),
    )
    assert (first["gpu"], first["nccl_version"], first["intra"]) == ("NVIDIA H100 80GB HBM3", "2.29.2", "")


def test_what_is_not_known_is_empty_and_what_was_inferred_is_noted():
    (table,) = read_nccl_tests(real("gh200_alps_64n_table_only.txt"))
    row = read(csv_text([("alps.txt", table)]))[0]
    assert (row["n_ranks"], row["n_nodes"], row["gpus_per_node"], row["gpu"]) == ("256", "", "", "")
    assert "256 ranks by busbw / algbw" in row["notes"]


def test_tables_of_the_same_name_are_told_apart():
    (table,) = read_nccl_tests(real("gh200_alps_64n_table_only.txt"))
    rows = read(csv_text([("a/x.txt", table), ("b/x.txt", table)]))
    assert {row["source_id"] for row in rows} == {"x_all_reduce_256", "x_all_reduce_256_2"}
