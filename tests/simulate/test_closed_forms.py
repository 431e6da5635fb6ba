"""The simulation against the closed forms, which share no code with it: equal wherever these say that they are exact.

Durations are whole numbers, so that equal means equal.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.cost import pipeline
from planner.simulate.actions import Kind, Order
from planner.simulate.makespan import Program, makespan
from planner.simulate.schedules import FIXED_CHUNKS, SCHEDULES
from planner.simulate.simulation import Disturbance
from tests.simulate.samples import layer, played, played_order

whole = st.integers(1, 24)
ranks_of_a_pipeline = st.integers(1, 6)
many = settings(max_examples=120)
NAMES = tuple(sorted(SCHEDULES))
UNPAIRED = tuple(name for name in NAMES if name != "dualpipe-v")


def peaks(simulation):
    return [timeline.peak_in_flight for timeline in simulation.memory]


@st.composite
def stages_and_slowest(draw, *, last=False):
    """Seconds (forward, backward) of each stage, and of the one that is slowest both ways: where, or the last."""
    stages = draw(st.lists(st.tuples(whole, whole), max_size=6))
    slowest = tuple(max([draw(whole), *column]) for column in zip((0, 0), *stages, strict=True))
    where = len(stages) if last else draw(st.integers(0, len(stages)))
    return [*stages[:where], slowest, *stages[where:]], where


@st.composite
def pipelines(draw, names=NAMES):
    """A schedule's name, ranks, micro-batches, stages a rank, and each stage's seconds of F, I and W."""
    name = draw(st.sampled_from(names))
    ranks = draw(st.integers(1, 5))
    least = 2 * ranks if name == "dualpipe-v" else 1
    microbatches = draw(st.integers(least, least + 9))
    chunks = FIXED_CHUNKS.get(name) or draw(st.integers(1, 3))
    stages = draw(st.lists(st.tuples(whole, whole, whole), min_size=ranks * chunks, max_size=ranks * chunks))
    return name, ranks, microbatches, chunks, stages


def step_of(case, **rest):
    name, ranks, microbatches, chunks, stages = case
    return played(name, ranks, microbatches, *(layer(*each) for each in stages), chunks=chunks, **rest)


# Makespan and micro-batches in flight


@many
@given(ranks_of_a_pipeline, st.integers(1, 20), st.tuples(whole, whole, whole))
def test_gpipe_and_1f1b_take_what_the_closed_form_says_with_equal_stages(ranks, microbatches, parts):
    form = {"slowest": sum(parts), "others": sum(parts) * (ranks - 1)}
    gpipe, one = (played(name, ranks, microbatches, layer(*parts)) for name in ("gpipe", "1f1b"))
    assert gpipe.makespan == pipeline.gpipe_time(microbatches, **form)
    assert one.makespan == pipeline.one_f_one_b_time(microbatches, **form)
    assert peaks(gpipe) == [pipeline.gpipe_in_flight(microbatches)] * ranks
    assert peaks(one) == pipeline.one_f_one_b_in_flight(microbatches, ranks, np.arange(ranks)).tolist()
    busy = microbatches * sum(parts)
    assert one.bubble_fraction == pytest.approx(pipeline.bubble_fraction(one.makespan, busy=busy), abs=1e-12)


@many
@given(stages_and_slowest(), st.integers(1, 16))
def test_gpipe_takes_what_the_closed_form_says_with_one_stage_slowest_both_ways(stages, microbatches):
    times, where = stages
    slowest, everything = sum(times[where]), sum(map(sum, times))
    simulation = played("gpipe", len(times), microbatches, *(layer(*each) for each in times))
    form = pipeline.gpipe_time(microbatches, slowest=slowest, others=everything - slowest)
    assert simulation.makespan == form


@many
@given(stages_and_slowest(last=True), st.integers(1, 16))
def test_1f1b_takes_what_the_closed_form_says_with_the_last_stage_slowest(stages, microbatches):
    times, where = stages
    slowest, everything = sum(times[where]), sum(map(sum, times))
    simulation = played("1f1b", len(times), microbatches, *(layer(*each) for each in times))
    form = pipeline.one_f_one_b_time(microbatches, slowest=slowest, others=everything - slowest)
    assert simulation.makespan == form


@many
@given(st.lists(st.booleans(), min_size=1, max_size=7), whole, whole, st.integers(1, 4), st.integers(1, 20))
def test_1f1b_saves_what_the_closed_form_says_behind_slow_stages(pattern, time, excess, split, microbatches):
    assume(any(pattern) and (microbatches >= len(pattern) or sum(pattern) == 1))
    slow = time + excess
    times = [slow if each else time for each in pattern]
    stages = [layer(each, split * each) for each in times]
    simulation = played("1f1b", len(times), microbatches, *stages)
    every = [(1 + split) * each for each in times]
    full = pipeline.one_f_one_b_time(microbatches, slowest=max(every), others=sum(every) - max(every))
    saved = pipeline.one_f_one_b_time_saved(
        microbatches,
        stages_behind=pattern[::-1].index(True),
        slowest_forward=slow,
        slowest_backward=split * slow,
        other=(1 + split) * time,
    )
    assert simulation.makespan == full - saved


@many
@given(st.lists(whole, min_size=1, max_size=7), st.integers(1, 3), st.integers(1, 20))
def test_1f1b_takes_no_longer_than_the_closed_form_with_any_stages_split_alike(times, split, microbatches):
    every = [(1 + split) * each for each in times]
    simulation = played("1f1b", len(times), microbatches, *(layer(each, split * each) for each in times))
    form = pipeline.one_f_one_b_time(microbatches, slowest=max(every), others=sum(every) - max(every))
    assert microbatches * max(every) <= simulation.makespan <= form


@many
@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4), st.tuples(whole, whole))
def test_interleaved_takes_what_the_closed_form_says_with_equal_stages(ranks, groups, chunks, parts):
    microbatches, stage = groups * ranks, chunks * sum(parts)
    simulation = played("interleaved", ranks, microbatches, layer(*parts), chunks=chunks)
    form = {"slowest": stage, "others": stage * (ranks - 1), "virtual_stages": chunks}
    assert simulation.makespan == pipeline.interleaved_time(microbatches, **form)
    in_flight = pipeline.interleaved_in_flight(microbatches, ranks, np.arange(ranks), chunks)
    assert peaks(simulation) == in_flight.tolist()


@many
@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4), whole, whole, st.booleans())
def test_interleaved_takes_what_the_closed_form_says_with_the_last_rank_slowest(
    ranks, groups, chunks, time, more, alone
):
    """All of its chunks, or the last one `alone`, as with the output head."""
    times = [time] * (ranks * chunks)
    for chunk in [chunks - 1] if alone else range(chunks):
        times[chunk * ranks + ranks - 1] += more
    simulation = played("interleaved", ranks, groups * ranks, *(layer(each, 2 * each) for each in times), chunks=chunks)
    slowest = 3 * sum(times[ranks - 1 :: ranks])
    form = {"slowest": slowest, "others": 3 * time * chunks * (ranks - 1), "virtual_stages": chunks}
    assert simulation.makespan == pipeline.interleaved_time(groups * ranks, **form)


@many
@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), whole, whole, st.data())
def test_interleaved_is_shorter_by_a_chunk_a_rank_at_most_behind_a_slow_one(ranks, groups, chunks, time, more, data):
    slow = data.draw(st.integers(0, ranks - 1))
    times = [time + more * (stage % ranks == slow) for stage in range(ranks * chunks)]
    simulation = played("interleaved", ranks, groups * ranks, *(layer(each, 2 * each) for each in times), chunks=chunks)
    others = 3 * time * chunks * (ranks - 1)
    form = pipeline.interleaved_time(
        groups * ranks, slowest=3 * (time + more) * chunks, others=others, virtual_stages=chunks
    )
    assert form - 3 * time * (ranks - 1 - slow) <= simulation.makespan <= form


@many
@given(ranks_of_a_pipeline, st.integers(1, 20), whole, whole, whole)
def test_zb_h1_takes_what_the_closed_form_says_whatever_the_parts_take(ranks, microbatches, forward, inputs, weights):
    simulation = played("zb-h1", ranks, microbatches, layer(forward, inputs, weights))
    parts = {"forward": forward, "backward_input": inputs, "backward_weight": weights}
    assert simulation.makespan == pipeline.zb_h1_time(microbatches, ranks, **parts)
    assert peaks(simulation) == [pipeline.zb_h1_in_flight(microbatches, ranks)] * ranks


# Sends


def added_by(send, name, ranks, microbatches, block, **rest):
    """What sends of so many seconds add to the step."""
    with_sends, without = (played(name, ranks, microbatches, block, send=each, **rest).makespan for each in (send, 0.0))
    return with_sends - without


@many
@given(ranks_of_a_pipeline, st.integers(1, 16), whole, whole, st.data())
def test_sends_of_gpipe_cost_one_pass_forward_and_one_back(ranks, microbatches, forward, backward, data):
    send = data.draw(st.integers(1, min(forward, backward)))
    added = added_by(send, "gpipe", ranks, microbatches, layer(forward, backward))
    assert added == pipeline.gpipe_send_exposed(ranks, send=send)


@many
@given(ranks_of_a_pipeline, st.integers(1, 20), whole, whole, st.data())
def test_sends_of_1f1b_cost_what_the_closed_form_says(ranks, microbatches, forward, backward, data):
    send = data.draw(st.integers(1, min(forward, backward)))
    added = added_by(send, "1f1b", ranks, microbatches, layer(forward, backward))
    form = float(pipeline.one_f_one_b_send_exposed(microbatches, ranks, send=send))
    if microbatches % ranks == 0:
        assert added == pytest.approx(form, rel=1e-14)
    assert abs(added - form) <= 2 * send


@many
@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), whole, whole, st.data())
def test_sends_of_interleaved_cost_those_of_fill_and_drain(ranks, groups, chunks, forward, backward, data):
    send = data.draw(st.integers(1, min(forward, backward)))
    added = added_by(send, "interleaved", ranks, groups * ranks, layer(forward, backward), chunks=chunks)
    assert added == pipeline.interleaved_send_exposed(ranks, chunks, send=send)


@many
@given(ranks_of_a_pipeline, st.integers(1, 20), whole, whole, st.integers(2, 24), st.data())
def test_sends_of_zb_h1_hide_behind_weight_gradients_but_for_fill_and_drain(
    ranks, microbatches, forward, inputs, weights, data
):
    send = data.draw(st.integers(1, weights // 2))
    added = added_by(send, "zb-h1", ranks, microbatches, layer(forward, inputs, weights))
    form = pipeline.zb_h1_send_exposed(microbatches, ranks, send=send)
    assert added <= form
    if weights <= min(forward, inputs):
        assert added == form


@given(st.sampled_from(["gpipe", "1f1b", "zb-h1"]), st.integers(2, 5), st.integers(1, 16), whole, st.integers(1, 200))
def test_a_step_is_never_shorter_than_what_a_link_sends_in_a_row(name, ranks, microbatches, time, send):
    simulation = played(name, ranks, microbatches, layer(time, time, time), send=send)
    without = played(name, ranks, microbatches, layer(time, time, time)).makespan
    slower = pipeline.send_bound_exposed(microbatches, send=send, makespan=without)
    assert simulation.makespan >= without + slower


# What holds for every schedule and any stages


@many
@given(pipelines(), st.integers(0, 12))
def test_a_step_takes_from_the_work_of_its_busiest_rank_to_all_of_it_in_a_row(case, send):
    _, ranks, microbatches, _, stages = case
    simulation = step_of(case, send=send)
    work = np.bincount(simulation.order.rank_of, [microbatches * sum(each) for each in stages])
    one_alone = sum(forward + inputs for forward, inputs, _ in stages)
    sends = 2 * microbatches * (len(stages) - 1) * send
    assert max(*work, one_alone) <= simulation.makespan <= work.sum() + sends
    assert [use.busy for use in simulation.ranks] == work.tolist()
    assert [use.exposed for use in simulation.ranks] == [0] * ranks
    assert [use.busy + use.idle for use in simulation.ranks] == [simulation.makespan] * ranks


@many
@given(pipelines(), st.integers(0, 12), st.integers(0, 5), st.data())
def test_a_slower_stage_or_a_slower_link_never_shortens_a_step(case, send, more, data):
    *numbers, stages = case
    place = data.draw(st.integers(0, len(stages) - 1))
    slower = tuple(part + data.draw(st.integers(0, 9)) for part in stages[place])
    changed = (*numbers, [*stages[:place], slower, *stages[place + 1 :]])
    assert step_of(changed, send=send + more).makespan >= step_of(case, send=send).makespan


@many
@given(pipelines(UNPAIRED), st.integers(0, 12), st.data())
def test_a_micro_batch_less_in_the_same_order_never_lengthens_a_step(case, send, data):
    simulation = step_of(case, send=send)
    order, stages = simulation.order, simulation.durations.stages
    assume(order.num_microbatches > 1)
    left_out = data.draw(st.integers(0, order.num_microbatches - 1))
    kept = [[each for each in actions if each.microbatch != left_out] for actions in order.actions]
    renumbered = (
        tuple(each._replace(microbatch=each.microbatch - (each.microbatch > left_out)) for each in actions)
        for actions in kept
    )
    fewer = Order(tuple(renumbered), order.rank_of)
    assert played_order(fewer, *stages, send=send).makespan <= simulation.makespan


@many
@given(pipelines(UNPAIRED), st.integers(0, 12), st.integers(1, 4))
def test_a_stage_of_many_blocks_takes_as_long_as_one_block_with_all_their_work(case, send, blocks):
    """Not so where two actions take turns block by block."""
    name, ranks, microbatches, chunks, stages = case
    large = (name, ranks, microbatches, chunks, [tuple(blocks * part for part in each) for each in stages])
    small = ((layer(*each),) * blocks for each in stages)
    one, parts = step_of(large, send=send), played(name, ranks, microbatches, *small, chunks=chunks, send=send)
    assert parts.makespan == one.makespan
    assert peaks(parts) == peaks(one)


@many
@given(pipelines(), st.integers(0, 12))
def test_the_short_way_to_the_makespan_says_the_same(case, send):
    simulation = step_of(case, send=send)
    forward, inputs, weights = (list(column) for column in zip(*case[-1], strict=True))
    whole_backward = [sum(parts) for parts in zip(inputs, weights, strict=True)]
    columns = {Kind.FORWARD: forward, Kind.INPUT: inputs, Kind.WEIGHT: weights, Kind.BACKWARD: whole_backward}
    assert makespan(Program.of(simulation.order), columns, send=send) == simulation.makespan


@given(pipelines(), st.integers(0, 12), st.integers(0, 20), st.integers(0, 20))
def test_optimizer_and_fixed_time_come_after_everything(case, send, optimizer, fixed):
    once = {"optimizer": (optimizer,) * case[1], "fixed": fixed}
    assert step_of(case, send=send, **once).makespan == step_of(case, send=send).makespan + optimizer + fixed


@given(pipelines(), st.integers(2, 9), st.integers(0, 12))
def test_a_step_all_of_whose_ranks_are_slower_takes_longer_by_as_much(case, factor, send):
    slow = Disturbance(dict.fromkeys(range(case[1]), float(factor)))
    slower = step_of(case, send=send * factor, disturbance=slow)
    assert slower.makespan == factor * step_of(case, send=send).makespan
