"""Closed forms of pipeline schedules against an event simulation that shares no code with the planner."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost import pipeline

STAGES = range(1, 9)
MICROBATCHES = range(1, 33)
FORWARD_AND_BACKWARD = {"F": 12, "B": 24}


def run(orders, duration, *, chunks=1, send=0):
    """Makespan and peak of micro-batch chunks in flight by rank, each rank doing its actions in the given order.

    An action is (kind, chunk, micro-batch): F forward, B backward (or its input part), W the weight part.
    """
    ranks = len(orders)
    last_stage = ranks * chunks - 1
    release = "W" if ("W", 0, 0) in orders[0] else "B"
    finished, clock, held, peak = {}, [0] * ranks, [0] * ranks, [0] * ranks
    waiting = [list(reversed(order)) for order in orders]
    while any(waiting):
        before = len(finished)
        for rank, todo in enumerate(waiting):
            while todo:
                kind, chunk, batch = todo[-1]
                stage = chunk * ranks + rank
                needed = input_of(kind, stage, batch, last_stage)
                if needed is not None and needed not in finished:
                    break
                ready = 0 if needed is None else finished[needed] + send * (needed[1] != stage)
                clock[rank] = max(clock[rank], ready) + duration(kind, rank, chunk)
                finished[kind, stage, batch] = clock[rank]
                held[rank] += (kind == "F") - (kind == release)
                peak[rank] = max(peak[rank], held[rank])
                todo.pop()
        assert len(finished) > before, "the orders wait for each other"
    return max(clock), peak


def input_of(kind, stage, batch, last_stage):
    if kind == "F":
        return ("F", stage - 1, batch) if stage else None
    if kind == "B":
        return ("B", stage + 1, batch) if stage < last_stage else ("F", stage, batch)
    return ("B", stage, batch)


def alternate(forwards, backwards, warm_up):
    """`warm_up` forwards, then a forward and a backward by turns, then the rest of the backwards."""
    steady = [action for pair in zip(forwards[warm_up:], backwards, strict=False) for action in pair]
    return forwards[:warm_up] + steady + backwards[len(forwards) - warm_up :]


def gpipe(stages, batches, rank):
    return [("F", 0, i) for i in range(batches)] + [("B", 0, i) for i in range(batches)]


def one_f_one_b(stages, batches, rank):
    forwards, backwards = ([(kind, 0, i) for i in range(batches)] for kind in "FB")
    return alternate(forwards, backwards, min(stages - 1 - rank, batches))


def interleaved(stages, batches, rank, chunks):
    """Groups of p micro-batches go through a rank's first chunk, then its second, and back in reverse."""
    forwards = [("F", c, g + i) for g in range(0, batches, stages) for c in range(chunks) for i in range(stages)]
    backwards = [("B", chunks - 1 - c, i) for _, c, i in forwards]
    return alternate(forwards, backwards, min(2 * (stages - 1 - rank) + (chunks - 1) * stages, batches * chunks))


def zb_h1(stages, batches, rank):
    """As 1F1B, with rank r keeping r weight gradients for the end."""
    order = []
    for action in one_f_one_b(stages, batches, rank):
        order.append(action)
        if action[0] == "B" and action[2] >= rank:
            order.append(("W", 0, action[2] - rank))
    return order + [("W", 0, i) for i in range(max(batches - rank, 0), batches)]


def play(schedule, stages, batches, duration, *, chunks=1, send=0):
    extra = (chunks,) if schedule is interleaved else ()
    return run([schedule(stages, batches, r, *extra) for r in range(stages)], duration, chunks=chunks, send=send)


def equal_stages(kind, rank, chunk):
    return FORWARD_AND_BACKWARD[kind]


def stage_times(times):
    """Durations where rank r takes times[r] forward and twice that backward."""
    return lambda kind, rank, chunk: times[rank] * (1 if kind == "F" else 2)


@pytest.mark.parametrize("stages", STAGES)
def test_gpipe_and_one_f_one_b_take_as_long_as_simulated_with_equal_stages(stages):
    for batches in MICROBATCHES:
        form = pipeline.one_f_one_b_time(batches, slowest=36, others=36 * (stages - 1))
        assert play(one_f_one_b, stages, batches, equal_stages)[0] == form == 36 * (batches + stages - 1)
        assert play(gpipe, stages, batches, equal_stages)[0] == pipeline.gpipe_time(
            batches, slowest=36, others=36 * (stages - 1)
        )


@pytest.mark.parametrize("stages", STAGES)
def test_micro_batches_in_flight_are_those_of_the_simulation(stages):
    ranks = np.arange(stages)
    for batches in MICROBATCHES:
        assert play(gpipe, stages, batches, equal_stages)[1] == [pipeline.gpipe_in_flight(batches)] * stages
        expected = pipeline.one_f_one_b_in_flight(batches, stages, ranks)
        assert play(one_f_one_b, stages, batches, equal_stages)[1] == expected.tolist()


@pytest.mark.parametrize(("stages", "chunks"), [*product(range(2, 9), range(1, 5))])
def test_interleaved_time_and_in_flight_are_those_of_the_simulation(stages, chunks):
    for batches in range(stages, 33, stages):
        time, peak = play(interleaved, stages, batches, equal_stages, chunks=chunks)
        stage = 36 * chunks
        assert time == pipeline.interleaved_time(
            batches, slowest=stage, others=(stages - 1) * stage, virtual_stages=chunks
        )
        in_flight = pipeline.interleaved_in_flight(batches, stages, np.arange(stages), chunks)
        assert [n / chunks for n in peak] == in_flight.tolist()


@pytest.mark.parametrize(
    "split", [(1, 1, 1), (2, 2, 1), (2, 3, 1), (1, 2, 1), (2, 2, 3), (3, 4, 4), (1, 3, 2), (4, 1, 2)]
)
def test_zb_h1_time_and_in_flight_are_those_of_the_simulation(split):
    durations = dict(zip("FBW", split, strict=True))
    for stages, batches in product(STAGES, MICROBATCHES):
        time, peak = play(zb_h1, stages, batches, lambda kind, rank, chunk: durations[kind])
        assert time == pipeline.zb_h1_time(
            batches, stages, forward=split[0], backward_input=split[1], backward_weight=split[2]
        )
        assert peak == [pipeline.zb_h1_in_flight(batches, stages)] * stages


def test_zb_h1_bubble_is_the_published_one_where_weight_gradients_are_the_shortest_part():
    time = pipeline.zb_h1_time(32, 8, forward=5.0, backward_input=6.0, backward_weight=4.0)
    assert time - 32 * 15.0 == 7 * (5.0 + 6.0 - 4.0)


@pytest.mark.parametrize(("stages", "head"), [*product(range(2, 9), [3, 12, 30])])
def test_a_slow_last_stage_sets_the_pace_exactly(stages, head):
    times = [12] * (stages - 1) + [12 + head]
    for batches in MICROBATCHES:
        form = {"slowest": 3 * (12 + head), "others": 36 * (stages - 1)}
        assert play(one_f_one_b, stages, batches, stage_times(times))[0] == pipeline.one_f_one_b_time(batches, **form)
        assert play(gpipe, stages, batches, stage_times(times[::-1]))[0] == pipeline.gpipe_time(batches, **form)


@pytest.mark.parametrize(("stages", "chunks"), [*product(range(2, 9), [2, 4])])
def test_interleaved_is_exact_with_the_head_in_the_last_chunk(stages, chunks):
    def duration(kind, rank, chunk):
        layers_and_head = 12 + 20 * (rank == stages - 1 and chunk == chunks - 1)
        return layers_and_head * (1 if kind == "F" else 2)

    for batches in range(stages, 33, stages):
        slowest, others = 36 * chunks + 60, 36 * chunks * (stages - 1)
        form = pipeline.interleaved_time(batches, slowest=slowest, others=others, virtual_stages=chunks)
        assert play(interleaved, stages, batches, duration, chunks=chunks)[0] == form


@pytest.mark.parametrize(("stages", "chunks"), [*product([2, 4, 7], [1, 2, 4])])
def test_interleaved_is_too_long_by_at_most_a_chunk_of_each_rank_behind_a_slow_one(stages, chunks):
    for batches, slow in product(range(stages, 33, stages), range(stages)):
        times = [12 + 6 * (rank == slow) for rank in range(stages)]
        time, _ = play(interleaved, stages, batches, stage_times(times), chunks=chunks)
        others = 36 * chunks * (stages - 1)
        form = pipeline.interleaved_time(batches, slowest=54 * chunks, others=others, virtual_stages=chunks)
        assert form - 36 * (stages - 1 - slow) <= time <= form


@pytest.mark.parametrize(("stages", "excess"), [*product(range(2, 7), [2, 6, 24])])
def test_time_saved_behind_slow_stages_is_exact_for_any_pattern_of_two_stage_times(stages, excess):
    slow_time = 12 + excess
    for batches, pattern in product(range(stages, 33, 5), range(1, 2**stages)):
        times = [slow_time if pattern >> rank & 1 else 12 for rank in range(stages)]
        behind = stages - pattern.bit_length()
        full = pipeline.one_f_one_b_time(batches, slowest=3 * slow_time, others=3 * (sum(times) - slow_time))
        saved = pipeline.one_f_one_b_time_saved(
            batches, stages_behind=behind, slowest_forward=slow_time, slowest_backward=2 * slow_time, other=36
        )
        assert play(one_f_one_b, stages, batches, stage_times(times))[0] == full - saved


@pytest.mark.parametrize("stages", range(2, 9))
def test_time_saved_behind_one_slow_stage_is_exact_with_fewer_micro_batches_than_stages(stages):
    for batches, slow in product(range(1, stages), range(stages)):
        times = [17 if rank == slow else 12 for rank in range(stages)]
        saved = pipeline.one_f_one_b_time_saved(
            batches, stages_behind=stages - 1 - slow, slowest_forward=17, slowest_backward=34, other=36
        )
        full = pipeline.one_f_one_b_time(batches, slowest=51, others=36 * (stages - 1))
        assert play(one_f_one_b, stages, batches, stage_times(times))[0] == full - saved


@given(st.lists(st.integers(5, 20), min_size=2, max_size=8), st.integers(1, 32))
def test_one_f_one_b_time_is_an_upper_bound_for_any_stages(times, batches):
    form = pipeline.one_f_one_b_time(batches, slowest=3 * max(times), others=3 * (sum(times) - max(times)))
    assert play(one_f_one_b, len(times), batches, stage_times(times))[0] <= form


@pytest.mark.parametrize(("stages", "send"), [*product(STAGES, [1, 6, 12])])
def test_sends_of_one_f_one_b_cost_what_the_simulation_says(stages, send):
    for batches in MICROBATCHES:
        added = (
            play(one_f_one_b, stages, batches, equal_stages, send=send)[0]
            - play(one_f_one_b, stages, batches, equal_stages)[0]
        )
        form = pipeline.one_f_one_b_send_exposed(batches, stages, send=send)
        if batches % stages == 0:
            assert form == pytest.approx(added, rel=1e-14)
        assert abs(form - added) <= 2 * send


@pytest.mark.parametrize(("stages", "chunks", "send"), [*product(range(2, 9), [1, 2, 4], [1, 6, 12])])
def test_sends_of_interleaved_cost_only_fill_and_drain(stages, chunks, send):
    for batches in range(stages, 33, stages):
        with_sends = play(interleaved, stages, batches, equal_stages, chunks=chunks, send=send)[0]
        without = play(interleaved, stages, batches, equal_stages, chunks=chunks)[0]
        assert with_sends - without == pipeline.interleaved_send_exposed(stages, chunks, send=send)


@pytest.mark.parametrize("stages", STAGES)
def test_sends_of_gpipe_cost_one_pass_forward_and_one_back(stages):
    for batches in MICROBATCHES:
        added = play(gpipe, stages, batches, equal_stages, send=5)[0] - play(gpipe, stages, batches, equal_stages)[0]
        assert added == pipeline.gpipe_send_exposed(stages, send=5)


@pytest.mark.parametrize(
    ("split", "send"), [((10, 10, 10), 1), ((10, 15, 8), 4), ((10, 10, 4), 2), ((6, 10, 8), 4), ((10, 6, 8), 1)]
)
def test_sends_of_zb_h1_hide_behind_weight_gradients_but_for_fill_and_drain(split, send):
    durations = dict(zip("FBW", split, strict=True))
    for stages, batches in product(STAGES, MICROBATCHES):
        with_sends, without = (
            play(zb_h1, stages, batches, lambda kind, rank, chunk: durations[kind], send=delay)[0]
            for delay in (send, 0)
        )
        form = pipeline.zb_h1_send_exposed(batches, stages, send=send)
        assert with_sends - without <= form
        if split[2] <= min(split):
            assert with_sends - without == form


def test_bubble_vanishes_with_one_stage():
    for time in (
        pipeline.gpipe_time(8, slowest=3.0, others=0.0),
        pipeline.one_f_one_b_time(8, slowest=3.0, others=0.0),
        pipeline.interleaved_time(8, slowest=3.0, others=0.0, virtual_stages=2),
        pipeline.zb_h1_time(8, 1, forward=1.0, backward_input=1.0, backward_weight=1.0),
    ):
        assert pipeline.bubble_fraction(time, busy=8 * 3.0) == 0


def test_sends_vanish_with_one_stage():
    assert pipeline.gpipe_send_exposed(1, send=1e-3) == 0
    assert pipeline.one_f_one_b_send_exposed(8, 1, send=1e-3) == 0
    assert pipeline.zb_h1_send_exposed(8, 1, send=1e-3) == 0
    assert pipeline.interleaved_send_exposed(1, 4, send=1e-3) == 0


def test_bubble_of_one_f_one_b_is_the_textbook_share():
    time = pipeline.one_f_one_b_time(8, slowest=1.0, others=7.0)
    assert pipeline.bubble_fraction(time, busy=8.0) == pytest.approx(7 / 15)


def test_interleaving_twice_explains_the_published_speed_up_of_llama_405b():
    """torchtitan (December 2024): 128 against 100 tokens/s per GPU with 8 stages; its default is m = p."""
    plain = pipeline.one_f_one_b_time(8, slowest=1.0, others=7.0)
    twice = pipeline.interleaved_time(8, slowest=1.0, others=7.0, virtual_stages=2)
    assert plain / twice == pytest.approx(1.28, rel=0.03)


@given(st.integers(1, 64), st.integers(1, 16))
def test_schedules_rank_as_published_when_the_parts_are_equal(batches, stages):
    one = pipeline.one_f_one_b_time(batches, slowest=3.0, others=3.0 * (stages - 1))
    two = pipeline.interleaved_time(batches, slowest=3.0, others=3.0 * (stages - 1), virtual_stages=2)
    zero = pipeline.zb_h1_time(batches, stages, forward=1.0, backward_input=1.0, backward_weight=1.0)
    assert zero <= one
    assert two <= one
    assert pipeline.zb_h1_time(batches + 1, stages, forward=1.0, backward_input=1.0, backward_weight=1.0) > zero


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 6))
def test_later_ranks_hold_no_more_than_earlier_ones(batches, stages, chunks):
    ranks = np.arange(stages)
    assert (np.diff(pipeline.one_f_one_b_in_flight(batches, stages, ranks)) <= 0).all()
    assert (np.diff(pipeline.interleaved_in_flight(batches, stages, ranks, chunks)) <= 0).all()
    assert (pipeline.one_f_one_b_in_flight(batches, stages, ranks) >= 1).all()
