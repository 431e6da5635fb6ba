import sys

import click
import pytest

from planner.cli.gantt import WIDEST, print_gantt
from planner.simulate.schedules import known_order
from planner.simulate.simulation import simulate
from planner.spec.durations import Block, Durations, Segment

ESCAPE = "\x1b["


@pytest.fixture
def simulation():
    block = Block("layer", (Segment("matmul", 1.0),), (Segment("matmul", 2.0),))
    return simulate(Durations(((block,),) * 2, (0, 1), 2, "1f1b"), known_order("1f1b", 2, 2))


@pytest.fixture
def printed(simulation, capsys, monkeypatch):
    """What is printed where the environment is this."""

    def run(**environment):
        for name in ("NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        print_gantt(simulation)
        return capsys.readouterr().out

    return run


def test_it_is_as_wide_as_the_window(printed):
    assert max(map(len, printed(COLUMNS="72").splitlines())) == 72
    assert max(map(len, printed(COLUMNS="9").splitlines())) == 40


def test_into_a_pipe_it_has_a_width_that_can_be_read_and_no_colours(printed):
    text = printed()
    assert max(map(len, text.splitlines())) == WIDEST
    assert ESCAPE not in text
    assert text.endswith("ms\n")


def test_no_color_leaves_nothing_but_characters(printed, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    in_a_terminal = {"COLUMNS": "72", "TERM": "xterm-256color"}
    coloured, plain = printed(**in_a_terminal), printed(**in_a_terminal, NO_COLOR="1")
    assert ESCAPE not in plain
    assert click.unstyle(coloured) == plain != coloured
