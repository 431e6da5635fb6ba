"""What a rank holds over time, by hand, and what holds for every table."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.simulate.schedules import FIXED_CHUNKS, SCHEDULES
from planner.simulate.step import RESERVE
from planner.spec.durations import Block, Segment
from tests.simulate.samples import layer, played


def alone(*blocks, microbatches=1, **table):
    """The only rank's timeline."""
    return played("1f1b", 1, microbatches, blocks, **table).memory[0]


def heights(timeline, item=None):
    """Pairs of moment and bytes, of an item or of all, wherever they change."""
    held = timeline.total if item is None else timeline.items[item]
    last_of_moment = [*(one < other for one, other in pairwise(timeline.seconds)), True]
    found = [(float(moment), float(bytes_held)) for moment, bytes_held in zip(timeline.seconds, held, strict=True)]
    found = [each for each, last in zip(found, last_of_moment, strict=True) if last]
    return [found[0], *(other for one, other in pairwise(found) if one[1] != other[1])]


# By hand


def test_activations_stay_from_forward_to_backward_and_what_works_beside_them_during_backward():
    """Forward from 0 to 1 s, backward to 3 s, weights to 3.5 s."""
    timeline = alone(layer(1, 2, 0.5, kept=8, working=4, logits=2), state={"weights": (100,)})
    assert heights(timeline, "activations") == [(0, 8), (1, 12), (3.5, 0)]
    assert heights(timeline, "logits") == [(0, 2), (3.5, 0)]
    assert heights(timeline) == [(0, 110), (1, 114), (3.5, 100)]


def test_gradients_of_weights_put_off_keep_the_activations_and_not_the_logits():
    """Rank 1 of ZB-H1 computes 0I0 from 3 to 4 s; with one micro-batch the weights follow at once."""
    step = played("zb-h1", 2, 1, layer(1, 1, 1, kept=8, working=4, logits=2))
    assert heights(step.memory[1], "activations") == [(0, 0), (1, 8), (2, 12), (3, 8), (4, 0)]
    assert heights(step.memory[1], "logits") == [(0, 0), (1, 2), (3, 0)]


def test_the_peak_is_named_with_its_moment_its_cause_and_its_items():
    """The second of two layers is fullest when its backward begins: both layers' activations, and what works beside."""
    light, heavy = layer(1, 2, kept=5), layer(1, 2, kept=8, working=4)
    timeline = alone(light, heavy, state={"weights": (100,)})
    assert timeline.peak == 100 + 5 + 8 + 4
    assert timeline.seconds[timeline.fullest] == 2
    assert str(timeline.causes[timeline.fullest]) == "0B0 layer backward"
    assert timeline.at_peak() == {"weights": 100, "activations": 17, "optimizer": 0, RESERVE: 0}


def test_weights_are_held_from_the_start_of_their_gather_to_the_end_of_the_pass():
    """Two layers of 2 s each way, gathers of 1 s one pass ahead: the last two at 3 s and 5 s."""
    timeline = alone(*[layer(2, 2, gather=1, gather_again=1, gathered=5)] * 2)
    assert heights(timeline, "gather_buffers") == [(0, 5), (1, 10), (7, 5), (9, 0)]


def test_weights_that_are_not_gathered_again_are_held_until_backward():
    timeline = alone(layer(2, 2, gather=1, gathered=5), layer(2, 2))
    assert heights(timeline, "gather_buffers") == [(0, 5), (9, 0)]


def test_weights_take_no_room_before_a_transfer_gathers_them():
    timeline = alone(layer(1, 1, gathered=5, gather_again=1))
    assert heights(timeline, "gather_buffers") == [(0, 5), (2, 0)]
    assert "gather_buffers" not in alone(layer(1, 1, gathered=5)).items


@pytest.mark.parametrize(("compute", "transfer"), [(3, 1), (1, 3)])
def test_a_pass_ends_when_both_compute_and_the_transfer_beside_it_have_ended(compute, transfer):
    """Forward from 1 to 2 s, backward of 3 s; gathers of 1 s without prefetch."""
    both = Block("layer", (Segment("", 1),), (Segment("", compute, transfer, "cp"),), kept=8, working=2, reducing=7)
    assert heights(alone(both)) == [(0, 8), (1, 17), (4, 0)]
    gathered = replace(both, gather=1, gather_again=1, gathered=5)
    assert heights(alone(gathered, gathered, prefetch=0), "gather_buffers")[-4:] == [(5, 12), (8, 5), (9, 12), (12, 0)]


def test_gradients_are_held_until_they_are_reduced():
    """Backward from 1 to 3 s, reduction to 6 s."""
    timeline = alone(layer(1, 2, reduce=3, reducing=7))
    assert heights(timeline, "gather_buffers") == [(0, 0), (1, 7), (6, 0)]
    assert heights(alone(layer(1, 2, reducing=7)), "gather_buffers") == [(0, 0), (1, 7), (3, 0)]


def test_gradients_of_the_first_backward_take_their_place_from_the_reserve_until_the_end():
    """Two layers of 1 s forward and 2 s backward, two micro-batches: the second layer's gradients come at 4 s."""
    state = {"gradients": (3,), RESERVE: (10,)}
    timeline = alone(*[layer(1, 2, gradients=4)] * 2, microbatches=2, state=state)
    assert heights(timeline, "gradients") == [(0, 3), (4, 7), (6, 11)]
    assert heights(timeline, RESERVE) == [(0, 10), (4, 6), (6, 2)]
    assert heights(timeline) == [(0, 13)]


def test_the_optimizer_takes_its_room_while_it_runs():
    timeline = alone(layer(1, 2, kept=8), optimizer=(2.0,), optimizer_bytes=(20,), fixed=1.0)
    assert heights(timeline) == [(0, 8), (3, 20), (5, 0)]
    assert str(timeline.causes[timeline.fullest]) == "optimizer"


def test_the_allocator_reserves_a_share_of_what_it_hands_out_and_nothing_of_the_rest():
    state = {"weights": (100,), "context": (50,), "communication_buffers": (30,)}
    timeline = alone(layer(1, 2, kept=20), state=state, allocator_slack=1.25)
    assert heights(timeline, RESERVE) == [(0, 30), (3, 25)]
    assert timeline.peak == 100 + 50 + 30 + 20 + 30


def test_each_rank_starts_from_its_own_state():
    step = played("1f1b", 3, 4, layer(kept=1), state={"weights": (10, 20, 30)})
    assert [timeline.total[-1] for timeline in step.memory] == [10, 20, 30]
    assert [timeline.peak for timeline in step.memory] == [13, 22, 31]


# For every table

amounts = st.integers(0, 9)
parts = st.integers(0, 5)
blocks = st.builds(
    lambda forward, backward, weight, **rest: Block(
        "layer", (Segment("", forward),), (Segment("", backward),), (Segment("", weight, 1.0, "tp"),), **rest
    ),
    parts,
    parts,
    parts,
    gather=parts,
    gather_again=parts,
    ahead=st.booleans(),
    reduce=parts,
    reduce_once=parts,
    gather_once=parts,
    kept=amounts,
    working=amounts,
    logits=amounts,
    gathered=amounts,
    reducing=amounts,
    gradients=amounts,
)


@st.composite
def steps(draw):
    name, ranks = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.integers(1, 3))
    microbatches = draw(st.integers(2 * ranks, 2 * ranks + 3))
    stages = draw(st.lists(blocks, min_size=1, max_size=2).map(tuple))
    state = {"weights": (100,) * ranks, "gradients": (50,) * ranks, RESERVE: (1000,) * ranks}
    rest = {"prefetch": draw(st.integers(0, 2)), "penalty": draw(st.sampled_from([0.0, 0.5, 1.0]))}
    return played(name, ranks, microbatches, stages, state=state, optimizer_bytes=(7,) * ranks, **rest)


@settings(max_examples=100)
@given(steps())
def test_a_timeline_starts_and_ends_at_the_state_and_what_the_first_backward_left(step):
    for rank, timeline in enumerate(step.memory):
        first, last = ({name: item[place] for name, item in timeline.items.items()} for place in (0, -1))
        stages = [stage for stage, owner in enumerate(step.order.rank_of) if owner == rank]
        left = sum(block.gradients for stage in stages for block in step.durations.stages[stage])
        nothing = dict.fromkeys(timeline.items, 0)
        assert first == nothing | {"weights": 100, "gradients": 50, RESERVE: 1000}
        assert last == nothing | {"weights": 100, "gradients": 50 + left, RESERVE: 1000 - left}
        assert timeline.in_flight[0] == timeline.in_flight[-1] == 0
        assert (np.diff(timeline.seconds) >= 0).all()
        assert timeline.seconds[-1] <= step.makespan


@settings(max_examples=100)
@given(steps())
def test_nothing_is_given_back_that_was_not_taken(step):
    """Counted from the single changes, since a timeline cuts off what is below 0."""
    taken = {}
    for task, at_end, item, amount in step.step.holdings:
        moment = step.played.end[task] if at_end else step.played.start[task]
        # What is taken and given back at one moment, by a task of no length, is taken first.
        taken.setdefault((step.step.tasks.rank[task], item), []).append((moment, -amount))
    for (_, item), changes in taken.items():
        held = -np.cumsum([change for _, change in sorted(changes)])
        assert held.min() >= 0 or item == RESERVE
        assert held[-1] == 0 or item in ("gradients", RESERVE)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 4), st.integers(0, 6))
def test_with_one_block_a_stage_activations_are_the_peak_in_flight(name, ranks, more):
    step = played(name, ranks, 2 * ranks + more, layer(kept=6))
    chunks = FIXED_CHUNKS.get(name, 2)
    for timeline in step.memory:
        assert timeline.peak == 6 * chunks * timeline.peak_in_flight
