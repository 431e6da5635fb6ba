"""nccl-tests and rccl-tests logs in all their forms."""

import pytest

from planner.dumps.nccl_tests import read_nccl_tests
from planner.errors import FileFormatError
from tests.dumps.samples import real

HEADER = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)
HEAD = "  268435456      67108864     float     sum      -1"
OUT, IN = "   1112.5  241.29  422.25      0", "   1113.4  241.09  421.91      0"
ROW = f"{HEAD}{OUT}{IN}\n"
DEVICE = "#  Rank {0:2d} Group  0 Pid 1{0:03d} on {1:>10} device {2:2d} [0000:19:00] NVIDIA H100 80GB HBM3\n"


def devices(ranks, *, per_node=8):
    return "".join(DEVICE.format(rank, f"node{rank // per_node}", rank % per_node) for rank in range(ranks))


def rows(factor, *, op="sum", root=-1, scale=1, wrong=("0", "0")):
    """Rows of 64 MiB to 1 GiB at 100 GB/s of algorithm bandwidth."""
    text = ""
    for size in (2**power for power in range(26, 31)):
        time, figures = size / 100e3, f"  100.00  {100 * factor:6.2f}"
        halves = "".join(f"  {time:9.1f}{figures}  {each}" for each in wrong)
        text += f"{size:12d}  {size // 4 // scale:12d}     float    {op}    {root}{halves}\n"
    return text


def only(text, **hints):
    (table,) = read_nccl_tests(text, **hints)
    return table


def test_a_table_with_its_devices_is_read_whole():
    table = only("# Collective test starting: all_reduce_perf\n" + devices(16) + HEADER + rows(1.875))
    assert (table.collective, table.ranks, table.nodes, table.gpu) == ("all_reduce", 16, 2, "NVIDIA H100 80GB HBM3")
    assert [sample.size for sample in table.samples] == [2**power for power in range(26, 31)]
    assert table.samples[0].time == pytest.approx(671.1e-6)
    assert (table.samples[0].algbw, table.samples[0].busbw) == (100e9, 187.5e9)
    assert table.samples[0].in_place_busbw == 187.5e9
    assert table.notes == ()


def test_version_of_the_library_is_read_from_old_and_new_lines():
    new = "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902\n"
    assert only(new + devices(8) + HEADER + ROW).version == "2.29.2"
    assert only("NCCL version 2.26.6+cuda12.8\n" + devices(8) + HEADER + ROW).version == "2.26.6"
    assert only("RCCL version : 2.26.6-HEAD:6ade506\n" + devices(8) + HEADER + ROW).version == "2.26.6"


@pytest.mark.parametrize(
    ("factor", "op", "root", "scale", "collective"),
    [
        (1.75, "sum", -1, 1, "all_reduce"),
        (0.875, "none", -1, 8, "all_gather"),
        (0.875, "sum", -1, 8, "reduce_scatter"),
        (1.0, "none", 0, 1, "broadcast"),
        (1.0, "sum", 0, 1, "reduce"),
    ],
)
def test_collective_and_ranks_follow_from_the_figures(factor, op, root, scale, collective):
    table = only(HEADER + rows(factor, op=op, root=root, scale=scale))
    assert table.collective == collective
    assert table.ranks == (8 if factor != 1.0 else None)


def test_tables_without_an_in_place_form_are_exchanges():
    unchecked = {"wrong": ("0", "N/A")}
    assert only(HEADER + rows(0.875, op="none", scale=8, **unchecked)).collective == "alltoall"
    assert only(devices(2) + HEADER + rows(1.0, **unchecked)).collective == "sendrecv"


def test_a_files_name_or_a_command_breaks_a_tie():
    text = HEADER + rows(0.875, op="none", scale=8)
    assert only(text, name="alltoall_8gpu").collective == "alltoall"
    assert only("$ ./build/alltoall_perf -b 8 -e 1G\n" + text).collective == "alltoall"
    assert only(text, name="all_reduce").collective == "all_gather"


def test_what_the_tool_says_of_itself_is_certain():
    text = "# Collective test starting: alltoall_perf\n" + HEADER + rows(0.875, op="none", scale=8)
    assert only(text, name="all_gather").collective == "alltoall"


def test_declared_ranks_that_the_figures_contradict_are_corrected():
    table = only(
        "# Collective test starting: all_reduce_perf\n" + devices(144, per_node=4) + HEADER + rows(2 * 127 / 128)
    )
    assert table.ranks == 128
    assert table.nodes is None
    assert "144 ranks were declared, busbw / algbw says 128" in table.notes[0]


def test_ranks_of_a_part_are_exact_by_size_over_count():
    table = only(
        "# Collective test starting: all_gather_perf\n" + devices(16) + HEADER + rows(31 / 32, op="none", scale=32)
    )
    assert table.ranks == 32
    assert table.notes == ("16 ranks were declared, size over count says 32",)


def test_old_tables_that_print_busbw_as_algbw_are_flagged():
    table = only("# Collective test starting: all_gather_perf\n" + devices(12) + HEADER + rows(1.0, op="none"))
    assert table.ranks == 12
    assert "old versions" in table.notes[0]


def test_old_tables_that_print_busbw_twice_get_their_algbw_back():
    time = 2**30 / 100e3
    half = f"  {time:9.1f}   75.00   75.00  0e+00"
    text = HEADER + f"  1073741824      67108864   float{half}{half}\n"
    table = only(text, name="all_gather")
    assert (table.collective, table.ranks) == ("all_gather", 4)
    assert (table.samples[0].algbw, table.samples[0].busbw) == (pytest.approx(100e9, rel=1e-5), 75e9)
    assert table.samples[0].in_place_algbw == pytest.approx(100e9, rel=1e-5)
    assert "algbw is size over time here" in table.notes[-1]


def test_headings_of_people_are_kept_as_notes():
    one = rows(1.5)
    first, second = read_nccl_tests(f"### ALGO=Ring size=1G\n{one}### ALGO=Tree\n{one}")
    assert first.notes[0] == "section 'ALGO=Ring size=1G'"
    assert second.notes[0] == "section 'ALGO=Tree'"


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}node1:13:15 [0] NCCL INFO Channel 00/0\nnode1:13:15 [1] NCCL INFO ring\n{OUT}{IN}\n",
        f"{HEAD}{OUT}node1:13:15 [0] NCCL INFO AllReduce: opCount 0\n{IN}\n",
        f"{HEAD}node1:13:15 [0] NCCL INFO a\n{OUT}node1:13:15 [0] NCCL INFO b\n{IN}\n",
        f"{HEAD}292KF14:13:15 [0] NCCL INFO Channel 00/0\n{OUT}{IN}\n",
        f"node1:13:15 [0] NCCL INFO before\n{ROW}node1:13:15 [0] NCCL INFO after\n",
    ],
)
def test_rows_that_log_lines_cut_are_joined_again(text):
    (sample,) = only(devices(8) + HEADER + text + "# Avg bus bandwidth    : 422.25\n").samples
    assert (sample.size, sample.algbw, sample.in_place_busbw) == (268435456, 241.29e9, 421.91e9)


def test_a_row_whose_times_are_lost_is_left_out_and_said():
    lost = "  134217728      33554432     float     sum      -1node1:13:15 [0] NCCL INFO x\n"
    table = only(devices(8) + HEADER + lost + ROW)
    assert [sample.size for sample in table.samples] == [268435456]
    assert "1 row was cut" in table.notes[0]


def test_a_table_of_cut_rows_alone_is_refused_in_plain_words():
    with pytest.raises(FileFormatError, match="line 3: nccl-tests rows that log lines cut before their times"):
        read_nccl_tests(HEADER + f"{HEAD}node1:13:15 [0] NCCL INFO x\n")


def test_figures_that_do_not_add_up_are_refused():
    with pytest.raises(FileFormatError, match="do not add up"):
        read_nccl_tests(HEADER + ROW.replace("241.29", "999.99").replace("241.09", "999.99"))


def test_a_header_without_rows_and_a_text_without_tables_say_so():
    with pytest.raises(FileFormatError, match="line 1: nccl-tests table without rows"):
        read_nccl_tests(HEADER)
    with pytest.raises(FileFormatError, match="no row was found"):
        read_nccl_tests("nothing here\n")


def test_point_to_point_between_many_ranks_is_told_from_an_all_reduce_of_two():
    assert only(devices(8) + HEADER + rows(1.0)).collective == "sendrecv"
    assert only("### GPUS=2\n" + HEADER + rows(1.0)).collective == "all_reduce"


def test_a_missing_last_column_and_checks_that_are_off_are_read():
    missing = only(devices(8) + HEADER + ROW.rstrip().removesuffix("0").rstrip() + "\n").samples[0]
    assert (missing.wrong, missing.in_place_busbw, missing.in_place_wrong) == (0, 421.91e9, None)
    off = only(devices(8) + HEADER + rows(1.75, wrong=("N/A", "N/A"))).samples[0]
    assert (off.wrong, off.in_place_wrong) == (None, None)


def test_a_table_of_out_of_place_times_alone_is_read():
    (sample,) = only(devices(8) + HEADER + f"{HEAD}{OUT}\n# Avg bus bandwidth    : 422.25\n").samples
    assert (sample.busbw, sample.in_place_time) == (422.25e9, None)


def test_columns_of_single_iterations_and_timestamps_are_passed_over():
    more = "   1100.0   1130.0   1129.0      0.5"
    (sample,) = only(devices(8) + HEADER + f"{HEAD}{OUT}{more}{IN}{more}   2026-01-02 03:04:05\n").samples
    assert (sample.time, sample.in_place_time) == (pytest.approx(1112.5e-6), pytest.approx(1113.4e-6))


def test_rows_of_no_bytes_are_left_out():
    half = "     0.06    0.00    0.00      0"
    empty = f"           0             0     float    none      -1{half}{half}\n"
    assert len(only(HEADER + empty * 3 + rows(0.875, op="none", scale=8)).samples) == 5


def test_wrong_results_are_flagged():
    table = only(devices(8) + HEADER + rows(1.75, wrong=("12", "0")))
    assert "5 rows have wrong results" in table.notes[0]


def test_a_restart_of_the_sizes_begins_a_table_without_a_header():
    first, second = read_nccl_tests(devices(8) + HEADER + rows(1.75) + rows(1.75))
    assert len(first.samples) == len(second.samples) == 5
    assert (first.ranks, second.ranks) == (8, 8)


def test_devices_of_the_run_before_are_not_those_of_the_next():
    run = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor)\n"
    first, second = read_nccl_tests(run + devices(16) + HEADER + rows(1.875) + run + devices(8) + HEADER + rows(1.75))
    assert (first.ranks, first.nodes, second.ranks, second.nodes) == (16, 2, 8, 1)


def test_sections_of_a_file_have_their_own_number_of_ranks():
    tables = read_nccl_tests(real("h100_scaling_concat_sections.txt"))
    assert [(table.collective, table.ranks) for table in tables] == [("all_reduce", n) for n in (2, 4, 6)]
    assert [max(sample.busbw for sample in table.samples) for table in tables] == [346.86e9, 364.63e9, 442.96e9]


def test_an_old_header_without_root_and_with_a_blank_column_is_read():
    table = only(real("a100_8gpu_alltoall_oldhdr.txt"), name="a100_8gpu_alltoall_oldhdr")
    assert (table.collective, table.ranks, table.nodes, len(table.samples)) == ("alltoall", 8, 1, 29)
    assert table.samples[-1].busbw == 224.31e9


def test_prefixed_and_indented_tables_without_devices_tell_their_ranks():
    prefixed = only(real("p4de_a100_2n_efa_rankprefix.txt"))
    indented = only(real("gcp_a3high_allgather_indented.txt"))
    assert (prefixed.collective, prefixed.ranks, len(prefixed.samples)) == ("all_reduce", 16, 29)
    assert (indented.collective, indented.ranks, len(indented.samples)) == ("all_gather", 16, 10)


def test_256_ranks_are_found_from_two_decimals():
    table = only(real("gh200_alps_64n_table_only.txt"))
    assert table.ranks == 256
    assert "256 ranks by busbw / algbw (between" in table.notes[0]


def test_several_collectives_of_one_log_are_kept_apart():
    tables = read_nccl_tests(real("h100_2nodes_1gpu_alltoall_sendrecv.txt"))
    assert [(table.collective, table.ranks, table.nodes, table.dtype) for table in tables] == [
        ("alltoall", 2, 2, "double"),
        ("sendrecv", 2, 2, "double"),
    ]
