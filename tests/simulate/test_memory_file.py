"""Memory over time as JSON: the same heights as the timeline, fewer moments."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.simulate.memory import Timeline
from planner.simulate.memory_file import memory_over_time, moments, outline, write_memory
from planner.simulate.schedules import known_order
from planner.simulate.simulation import simulate
from planner.spec.durations import Block, Durations, Segment

LAYER = Block(
    "layer",
    (Segment("attention", 1.0),),
    (Segment("attention", 2.0),),
    kept=4e9,
    working=3e9,
    gradients=1e9,
)


def played(microbatches=4, *, layers=1, **changes):
    order = known_order("1f1b", 2, microbatches)
    table = Durations(((LAYER,) * layers,) * 2, (0, 1), microbatches, "1f1b", state={"parameters": (5e9, 6e9)})
    return simulate(replace(table, **changes), order)


def timeline(steps):
    """A rank on which one item changes: pairs of seconds since the change before, and bytes then."""
    waits, held = (np.array(column, dtype=float) for column in zip(*steps, strict=True))
    return Timeline(np.cumsum(waits), {"activations": held}, np.zeros(len(held)), [None] * len(held))


def at(rank, time):
    """Bytes by item that the file says of a moment."""
    place = np.searchsorted(rank["time_s"], time, side="right") - 1
    return {name: held[place] for name, held in rank["items_bytes"].items()}


def test_a_small_step_by_hand():
    first, last = memory_over_time(played(microbatches=1))["ranks"]
    assert first["time_s"] == [0.0, 4.0 - 1.0 + 1.0, 6.0]
    assert first["in_flight"] == [1.0, 1.0, 0.0]
    assert first["items_bytes"] == {
        "activations": [4_000_000_000, 7_000_000_000, 0],
        "gradients": [0, 0, 1_000_000_000],
        "parameters": [5_000_000_000] * 3,
    }
    assert last["peak"] == {
        "time_s": 2.0,
        "bytes": 13_000_000_000,
        "cause": "backward of micro-batch 0 on stage 1: layer attention",
        "in_flight": 1.0,
        "items_bytes": {"activations": 7_000_000_000, "parameters": 6_000_000_000},
    }


def test_the_file_says_at_every_moment_what_the_rank_holds():
    simulation = played(layers=3)
    said = memory_over_time(simulation)
    assert said["makespan_s"] == simulation.makespan
    for rank, found in zip(said["ranks"], simulation.memory, strict=True):
        assert rank["moments_left_out"] == 0
        for place in moments(found):
            held = {name: round(item[place]) for name, item in found.items.items() if item.any()}
            assert at(rank, found.seconds[place]) == held
        assert len(rank["time_s"]) == len(set(rank["time_s"]))


def test_what_a_rank_starts_with_can_be_the_peak():
    rank = memory_over_time(played(stages=((replace(LAYER, kept=0.0, working=0.0, gradients=0.0),),) * 2))["ranks"][0]
    assert rank["peak"]["cause"] == "what the step starts with"
    assert rank["peak"]["bytes"] == 5_000_000_000
    assert rank["items_bytes"] == {"parameters": [5_000_000_000] * len(rank["time_s"])}


def test_the_optimizer_can_be_the_peak():
    rank = memory_over_time(played(optimizer=(1.0, 1.0), optimizer_bytes=(9e10, 9e10)))["ranks"][1]
    assert rank["peak"]["cause"] == "optimizer"
    assert rank["peak"]["items_bytes"]["optimizer"] == 90_000_000_000


steps = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 9)), min_size=1, max_size=200)


@given(steps, st.integers(1, 20))
def test_an_outline_keeps_first_last_lowest_and_highest_of_every_interval(drawn, columns):
    found = timeline(drawn)
    every = np.arange(len(found.seconds))
    kept = outline(found, every, columns)
    assert set(kept) <= set(every)
    assert len(kept) <= max(4 * columns, 1)
    assert found.total[kept].max() == found.peak
    assert found.total[kept].min() == found.total.min()
    assert {0, len(every) - 1} <= set(kept)
    if len(every) <= 4 * columns:
        assert kept.tolist() == every.tolist()
        return
    interval = np.searchsorted(np.linspace(0.0, found.seconds[-1], columns + 1)[1:-1], found.seconds, side="right")
    for number in set(interval):
        inside, chosen = every[interval == number], kept[interval[kept] == number]
        assert (chosen[0], chosen[-1]) == (inside[0], inside[-1])
        assert found.total[chosen].max() == found.total[inside].max()
        assert found.total[chosen].min() == found.total[inside].min()


@given(steps)
def test_moments_are_those_at_which_something_changes(drawn):
    found = timeline(drawn)
    kept = moments(found)
    heights = [found.total[found.seconds <= time][-1] for time in sorted(set(found.seconds))]
    differs = [height for place, height in enumerate(heights) if not place or height != heights[place - 1]]
    assert found.total[kept].tolist() == differs


def test_a_long_step_is_thinned_and_keeps_its_peak():
    simulation = played(microbatches=3000, layers=2)
    for rank, found in zip(memory_over_time(simulation)["ranks"], simulation.memory, strict=True):
        assert len(rank["time_s"]) <= 4000
        assert rank["moments_left_out"] == len(moments(found)) - len(rank["time_s"]) > 0
        assert max(map(sum, zip(*rank["items_bytes"].values(), strict=True))) == rank["peak"]["bytes"]
        assert sum(at(rank, rank["peak"]["time_s"]).values()) == rank["peak"]["bytes"]


@pytest.mark.parametrize("name", ["memory.json", "memory.json.gz"])
def test_the_file_is_json_with_a_rank_on_a_line(tmp_path, name):
    simulation = played()
    write_memory(tmp_path / name, simulation)
    data = (tmp_path / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith("gz") else data).decode()
    assert json.loads(text) == memory_over_time(simulation)
    assert [line[:9] for line in text.splitlines()] == ['{"schema_', '{"rank": ', '{"rank": ', "]}"]
