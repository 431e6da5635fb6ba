"""Schedules as text: what is written is read again, by us and by torch; what is wrong is named by line and cell."""

import re
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import FileFormatError
from planner.simulate.order_text import order_text, parse_order, read_order
from planner.simulate.schedules import FIXED_CHUNKS, SCHEDULES, known_order

TWO_STAGES = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
NAMES = sorted(SCHEDULES)


def torch_runtime(ranks, chunks, microbatches):
    """torch's runtime for schedules from a file, on stages that do nothing."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    stage = MagicMock(num_stages=ranks * chunks, group_size=ranks, group_rank=0)
    return schedules._PipelineScheduleRuntime([stage] * chunks, microbatches)


@given(st.sampled_from(NAMES), st.integers(1, 6), st.integers(0, 10), st.integers(1, 3))
def test_what_is_written_is_read_again(name, ranks, more, chunks):
    order = known_order(name, ranks, 2 * ranks + more, FIXED_CHUNKS.get(name, chunks))
    assert parse_order(order_text(order)) == order


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_torch_reads_what_is_written_and_writes_what_is_read(name, ranks, tmp_path):
    """Its reader checks every schedule, and finds the rank of each stage by itself."""
    order = known_order(name, ranks, 2 * ranks + 2)
    runtime = torch_runtime(ranks, order.num_stages // ranks, order.num_microbatches)
    (tmp_path / "ours.csv").write_text(order_text(order))
    runtime._load_csv(tmp_path / "ours.csv")
    spelled = [",".join(map(str, actions)) for _, actions in sorted(runtime.pipeline_order.items())]
    assert spelled == order_text(order).splitlines()
    assert runtime.stage_index_to_group_rank == dict(enumerate(order.rank_of))
    for form in ("compute_only", "compute_comms"):
        runtime._dump_csv(tmp_path / f"{form}.csv", form)
        assert read_order(tmp_path / f"{form}.csv") == order
    assert "SEND_F" in (tmp_path / "compute_comms.csv").read_text() or ranks == 1


def test_comments_spaces_idle_cells_and_blank_lines_change_nothing():
    text = "\ufeff# mine\n\n 0F0 ,0F1, ,0B0,,0B1 # first\r\n\n,1F0,1B0 , 1F1,1B1,\r\n# end"
    assert parse_order(text.removeprefix("\ufeff")) == parse_order(TWO_STAGES)


def test_a_file_of_a_spreadsheet_is_read(tmp_path):
    path = tmp_path / "order.csv"
    path.write_bytes(b"\xef\xbb\xbf" + TWO_STAGES.replace("\n", "\r\n").encode())
    assert read_order(path) == parse_order(TWO_STAGES)


def test_two_passes_that_start_together_are_one_cell():
    text = "0F0, 1F0, 0F1, (0F2 ; 1B0) OVERLAP_F_B, 1F1, 0B0, 1B1, 1F2, 1B2, 0B1, 0B2"
    order = parse_order(text)
    assert [str(action) for action in order.actions[0] if action.paired] == ["1B0"]
    assert "0F1,(0F2;1B0)OVERLAP_F_B,1F1" in order_text(order)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0F0,0X0\n", "mine, line 1, cell 2: '0X0' is no action; right is stage, F, B, I or W, micro-batch, as 3F0"),
        ("0F0,0B0\n\n1F0 1B0\n", "mine, line 3, cell 1: '1F0 1B0' is no action"),
        ("0F0,0B\n", "mine, line 1, cell 2: '0B' is no action"),
        ("0F٣,0B٣\n", "mine, line 1, cell 1: '0F٣' is no action"),
        ("0F0,-1F0\n", "mine, line 1, cell 2: '-1F0' is no action"),
        ("0F0,(0F1;0B0;0B1)OVERLAP_F_B\n", "mine, line 1, cell 2: '(0F1;0B0;0B1)OVERLAP_F_B' is no action"),
        ("0F0,(0F1;)OVERLAP_F_B\n", "mine, line 1, cell 2: '(0F1;)OVERLAP_F_B' is no action"),
        ("0F0,(0F1;0F2)OVERLAP_F_B,0B0,0B1,0F2,0B2\n", "mine: stage 0 does F, F, B with micro-batch 2"),
        ("0F0,(0F1;0F2)OVERLAP_F_B,0B0,0B1,0B2\n", "mine: rank 0 starts 0F2 together with 0F1"),
        ("0F0,0B0\n0F1,0B1\n", "mine, line 2, cell 1: 0F1 on rank 1, but stage 0 is on rank 0"),
        ("0F0,0B0\n2F0,2B0\n", "mine: stage 1 is missing; stages count from 0 to 2"),
        ("0F0,0B0\n9999999F0,9999999B0\n", "mine: stage 1 is missing"),
        ("0F0,0B9999999\n", "mine: stage 0 does F with micro-batch 0"),
        ("0F0,0B0\n,,\n", "mine: stages on ranks [0] of 2; every rank needs a stage"),
        ("# nothing\n", "mine: a schedule without actions"),
    ],
)
def test_what_is_wrong_is_named_where_it_is(text, said):
    with pytest.raises(FileFormatError, match=re.escape(said)):
        parse_order(text, where="mine")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"none\.csv: cannot be read"):
        read_order(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"0F0,\xff")
    with pytest.raises(FileFormatError, match=r"bytes\.csv: is not UTF-8"):
        read_order(tmp_path / "bytes.csv")


CELLS = st.from_regex(r"[ ]?[0-2][FBIW][0-2][ ]?|\([01]F[01];[01]B[01]\)OVERLAP_F_B|0SEND_F1|", fullmatch=True)


@given(st.text() | st.lists(st.lists(CELLS).map(",".join)).map("\n".join))
def test_any_text_is_an_order_or_is_refused_in_one_line(text):
    refused, order = "", None
    try:
        order = parse_order(text)
    except FileFormatError as error:
        refused = str(error)
    assert len(refused.splitlines()) == (order is None)
