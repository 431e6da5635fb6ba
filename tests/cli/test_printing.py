import json

import numpy as np
import pytest

from planner.cli.printing import Heading, plain, print_json, say, table

HEADINGS = [
    Heading("#"),
    Heading("plan", left=True),
    Heading("time\n(s)"),
    Heading("tokens/s\ntotal", 2),
    Heading("m", 3),
]
ROWS = [["1", "HSDP 2x8", "3.21", "163,000", "4"], ["2", "TP 8 + DDP 2", "3.90", "134,000", "8"]]


@pytest.fixture(autouse=True)
def plain_window(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


def printed(capsys, monkeypatch, columns=None):
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    table(HEADINGS, ROWS, best=True)
    return capsys.readouterr().out


def test_a_pipe_gets_every_column_and_no_colour(capsys, monkeypatch):
    out = printed(capsys, monkeypatch)
    assert "\x1b" not in out
    lines = out.splitlines()
    assert len(lines) == 4
    assert lines[1].split() == ["#", "plan", "(s)", "total", "m"]
    assert lines[3].split() == ["2", "TP", "8", "+", "DDP", "2", "3.90", "134,000", "8"]


@pytest.mark.parametrize("columns", [22, 28, 30, 33, 34, 40, 60, 200])
def test_no_line_is_wider_than_the_window(capsys, monkeypatch, columns):
    assert max(len(line) for line in printed(capsys, monkeypatch, columns).splitlines()) <= columns


def test_a_narrow_window_loses_the_least_important_columns_and_says_which(capsys, monkeypatch):
    out = printed(capsys, monkeypatch, 33)
    assert "(left out for want of width: m)" in out
    assert "HSDP 2x8" in out


def test_a_very_narrow_window_gets_a_list(capsys, monkeypatch):
    out = printed(capsys, monkeypatch, 20)
    assert "  plan: HSDP 2x8\n" in out
    assert "  time (s): 3.21\n" in out


def test_a_sentence_is_whole_in_a_pipe_and_wrapped_in_a_window(capsys, monkeypatch):
    say("word " * 60)
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setenv("COLUMNS", "50")
    say("word " * 60, indent="  ")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 50
    assert all(line.startswith("  ") for line in lines[1:])


@pytest.mark.parametrize("columns", ["0", "-5", "wide", ""])
def test_a_width_that_is_none_counts_as_not_set(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    say("word " * 60)
    assert capsys.readouterr().out.count("\n") == 1


def test_json_knows_numpy_and_has_no_infinity(capsys):
    print_json({"a": np.float64(1.5), "b": np.arange(2), "c": float("inf"), "d": (np.int8(3), None), 4: True})
    assert json.loads(capsys.readouterr().out) == {"a": 1.5, "b": [0, 1], "c": None, "d": [3, None], "4": True}
    assert plain(np.nan) is None
