"""The drawing of a step: read off by its characters, as a person would."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.explain.gantt import gantt
from planner.simulate.schedules import known_order
from planner.simulate.simulation import simulate
from planner.spec.durations import Block, Durations, Segment

BLOCK = Block("layer", (Segment("matmul", 1.0),), (Segment("matmul", 1.0),), (Segment("weights", 1.0),))


def played(name="1f1b", ranks=4, microbatches=4, *, block=BLOCK, **changes):
    order = known_order(name, ranks, microbatches)
    stages = ((block,),) * order.num_stages
    return simulate(Durations(stages, order.rank_of, order.num_microbatches, name, **changes), order)


def rows(simulation, width, **options):
    """Characters of each rank that is drawn, by its number."""
    lines = gantt(simulation, width, **options).plain.splitlines()
    return {int(found[1]): found[2] for line in lines if (found := re.fullmatch(r"rank (\d+) +(\S+)", line))}


def styles(simulation, width):
    """Which styles each character of the rows is drawn in."""
    drawing = gantt(simulation, width)
    found = {}
    for start, end, style in drawing.spans[1:-1]:
        for glyph in drawing.plain[start:end]:
            found.setdefault(glyph, set()).add(style)
    return found


def test_1f1b_is_drawn_as_in_its_picture():
    assert list(rows(played(), 7 + 42).values()) == [
        "00112233............aaaa..bbbb..cccc..dddd",
        "..001122........aaaa33bbbb..cccc..dddd....",
        "....0011....aaaa22bbbb33cccc..dddd........",
        "......00aaaa11bbbb22cccc33dddd............",
    ]


def test_gradients_of_weights_have_characters_of_their_own():
    assert rows(played("zb-h1"), 7 + 45)[3] == "." * 9 + "000aaa111bbb222ccc333dddAAABBBCCCDDD"


def test_waiting_for_a_transfer_is_not_idling():
    block = Block("", (Segment("a", 1.0), Segment("b", transfer=1.0, axis="tp"), Segment("c", 1.0, 3.0, "cp")), ())
    lines = rows(played(ranks=2, microbatches=1, block=block, optimizer=(5.0, 2.0)), 7 + 60)
    assert lines == {
        0: "0000~~~~0000~~~~~~~~" + "." * 20 + "#" * 20,
        1: "." * 20 + "0000~~~~0000~~~~~~~~########" + "." * 12,
    }


def test_a_send_alone_leaves_a_rank_idle():
    assert rows(played(ranks=2, microbatches=1, send=2.0), 7 + 60)[0] == "0" * 6 + "." * 42 + "a" * 12


def test_where_passes_are_shorter_than_a_character_they_are_drawn_by_kind():
    first, *_, last = rows(played(ranks=4, microbatches=300), 60).values()
    assert re.fullmatch(r"=+B?", first)
    assert re.fullmatch(r"=+", last)
    many = rows(played("gpipe", ranks=4, microbatches=300), 60)
    assert re.fullmatch(r"F+=?B+", many[3])


def test_the_legend_names_what_is_drawn_and_nothing_else():
    short = gantt(played(), 100).plain
    assert "0-9 forward (last digit of micro-batch); a-j backward (a for 0); . idle" in short
    assert "weights" not in short
    assert "transfer" not in short
    assert "a character is 226 ms" in short
    long = gantt(played("zb-h1", microbatches=300, optimizer=(100.0,) * 4), 100).plain
    assert "W gradients of weights; # optimizer and the rest; = forward and backward in turn" in long


def test_the_scale_has_start_middle_and_end():
    scale = gantt(played(), 67).plain.splitlines()[0]
    assert scale == " " * 7 + "|0".ljust(30) + "|10.5 s".ljust(22) + " 21.0 s|"


@pytest.mark.parametrize("width", [0, 40, 41, 80, 200])
@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_no_line_is_wider_than_asked_for(width, ranks):
    lines = gantt(played(ranks=ranks, microbatches=9), width).plain.splitlines()
    assert max(map(len, lines)) == max(width, 40)
    assert all(line == line.rstrip() for line in lines)


def test_of_many_ranks_some_are_drawn_with_the_first_and_the_last():
    simulation = played(ranks=64, microbatches=512)
    assert list(rows(simulation, 80, most_rows=4)) == [0, 21, 42, 63]
    assert "4 of 64 ranks, evenly spaced" in gantt(simulation, 80, most_rows=4).plain
    assert len(rows(simulation, 80)) == 32
    assert list(rows(simulation, 80, most_rows=64)) == list(range(64))


def test_each_pass_has_a_colour_of_its_own():
    numbered = styles(played("zb-h1"), 100)
    assert (numbered["0"], numbered["b"], numbered["B"], numbered["."]) == (
        {"green"},
        {"bold blue"},
        {"yellow"},
        {"dim"},
    )
    plain = styles(played("gpipe", microbatches=300), 100)
    assert (plain["F"], plain["B"]) == ({"green"}, {"bold blue"})


def test_a_step_that_takes_no_time_is_drawn_as_idle():
    assert rows(played(block=Block("", (), ())), 47) == dict.fromkeys(range(4), "." * 40)


@given(
    st.sampled_from(["gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"]),
    st.integers(1, 6),
    st.integers(1, 40),
    st.floats(0.0, 2.0),
)
def test_characters_have_the_shares_that_the_summary_has(name, ranks, microbatches, transfer):
    """A wide drawing rounds each change to half a character."""
    forward = (Segment("matmul", 1.0), Segment("matmul", transfer=transfer, axis="tp"))
    simulation = played(name, ranks, microbatches, block=replace(BLOCK, forward=forward), send=0.25)
    cells = 3000
    drawn = rows(simulation, cells + len("rank 0 "))
    changes = 4 * len(simulation.order.actions[0]) + 2
    for rank, use in enumerate(simulation.ranks):
        shares = np.array([use.busy, use.exposed, use.idle]) / simulation.makespan
        counted = [sum(glyph not in "~." for glyph in drawn[rank]), drawn[rank].count("~"), drawn[rank].count(".")]
        assert np.array(counted) / cells == pytest.approx(shares, abs=changes / cells)
