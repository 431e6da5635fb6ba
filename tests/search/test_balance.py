"""Splits of layers over stages: against all splits, against the schedule played, and how fast they are found."""

from itertools import combinations
from time import perf_counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.errors import NoFeasiblePlan
from planner.search.balance import Work, best_split, least_time, paths_of
from planner.simulate.actions import Kind
from planner.simulate.makespan import Program, makespan
from planner.simulate.schedules import NAME_OF, known_order
from planner.spec.plan import Schedule

SCHEDULES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.ZB_H1, Schedule.INTERLEAVED)


def splits(layers, ranks):
    """All splits with a layer on each rank."""
    for cuts in combinations(range(1, layers), ranks - 1):
        yield tuple(np.diff([0, *cuts, layers]).tolist())


def work_of(layers, ranks, microbatches, *, head=0.0, reach=None, schedule=Schedule.ONE_F_ONE_B):
    """Layers and a head whose backward takes twice as long as their forward."""
    extra, parts = np.zeros(ranks), np.array([[1 / 3], [2 / 3]])
    extra[-1] = head
    reach = np.full((ranks, len(layers)), len(layers)) if reach is None else reach
    return Work(parts * layers, parts * extra, reach, paths_of(schedule, ranks, microbatches))


def played(times, microbatches, schedule=Schedule.ONE_F_ONE_B):
    forward, backward = times.tolist()
    program = Program.of(known_order(NAME_OF[schedule], len(forward), microbatches))
    return makespan(program, dict.fromkeys(Kind, backward) | {Kind.FORWARD: forward})


def within_reach(work, sizes):
    ends = np.cumsum(sizes)
    return all(end <= work.reach[rank, end - size] for rank, (end, size) in enumerate(zip(ends, sizes, strict=True)))


@st.composite
def works(draw):
    """Few layers on few ranks, with any times and any room."""
    layers, ranks, seconds = draw(st.integers(1, 9)), draw(st.integers(1, 4)), st.floats(0, 10)
    assume(ranks <= layers)
    room = st.integers(0, layers) if draw(st.booleans()) else st.just(layers)
    return Work(
        np.array([[draw(seconds) for _ in range(layers)] for _ in range(2)]),
        np.array([[draw(seconds) for _ in range(ranks)] for _ in range(2)]),
        np.array([[min(first + draw(room), layers) for first in range(layers)] for _ in range(ranks)]),
        paths_of(draw(st.sampled_from(SCHEDULES)), ranks, draw(st.integers(1, 9))),
    )


@given(works())
def test_no_split_of_all_has_a_shorter_longest_path_nor_one_as_short_and_more_even(work):
    ranks, layers = work.reach.shape
    fitting = [sizes for sizes in splits(layers, ranks) if within_reach(work, sizes)]
    if not fitting:
        with pytest.raises(NoFeasiblePlan, match=f"no split of {layers} layers fits on {ranks} ranks"):
            best_split(work)
        return
    found = best_split(work)
    assert found in fitting
    shortest = min(float(least_time(work.paths, work.times(sizes))) for sizes in fitting)
    assert least_time(work.paths, work.times(found)) == pytest.approx(shortest, rel=1e-9)
    as_short = [s for s in fitting if least_time(work.paths, work.times(s)) <= shortest * (1 + 1e-13)]
    squares = [(work.times(sizes).sum(axis=0) ** 2).sum() for sizes in [*as_short, found]]
    assert squares[-1] <= min(squares) * (1 + 1e-9)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=8), st.integers(1, 24))
def test_1f1b_is_never_faster_than_its_longest_path(stages, microbatches):
    times = np.array(stages).T
    paths = paths_of(Schedule.ONE_F_ONE_B, len(stages), microbatches)
    assert played(times, microbatches) >= least_time(paths, times) * (1 - 1e-9)


@given(st.lists(st.tuples(st.floats(0.9, 1), st.floats(2, 3)), min_size=1, max_size=8), st.integers(1, 24))
def test_1f1b_takes_as_long_as_its_longest_path_where_stages_are_nearly_equal(stages, microbatches):
    """Within 10 % of each other, whatever part of them is the backward."""
    seconds, ratio = np.array(stages).T
    times = np.array([seconds / (1 + ratio), seconds * ratio / (1 + ratio)])
    paths = paths_of(Schedule.ONE_F_ONE_B, len(stages), microbatches)
    assert played(times, microbatches) == pytest.approx(float(least_time(paths, times)), rel=1e-9)


@pytest.mark.parametrize(("layers", "ranks", "head"), [(16, 4, 1.3), (12, 3, 2.6), (15, 5, 0.5)])
@pytest.mark.parametrize("microbatches", [3, 6, 12, 24])
def test_no_split_of_all_is_played_faster_under_1f1b(layers, ranks, head, microbatches):
    """By more than a hundredth, where there are hardly as many micro-batches as ranks."""
    work = work_of(np.ones(layers), ranks, microbatches, head=head)
    best = min(played(work.times(sizes), microbatches) for sizes in splits(layers, ranks))
    assert played(work.times(best_split(work)), microbatches) <= best * (1.01 if microbatches <= ranks else 1 + 1e-9)


def test_the_head_is_counted_as_the_layers_it_takes_as_long_as():
    assert best_split(work_of(np.ones(32), 4, 64, head=4.0)) == (9, 9, 9, 5)
    assert best_split(work_of(np.ones(32), 4, 64)) == (8, 8, 8, 8)


def test_dense_layers_before_layers_with_experts_share_a_rank_with_more_of_them():
    layers = np.array([0.5] * 4 + [1.0] * 28)
    assert best_split(work_of(layers, 5, 40)) == (8, 6, 6, 6, 6)


def test_what_the_first_rank_cannot_hold_goes_to_those_behind_it():
    """Under 1F1B the first rank keeps the most micro-batches, each with the activations of its layers."""
    most = np.array([6, 7, 9, 12])[:, None]
    reach = np.minimum(np.arange(32) + most, 32)
    assert best_split(work_of(np.ones(32), 4, 64, head=1.0, reach=reach)) == (6, 7, 9, 10)


@pytest.mark.parametrize(
    ("most", "words"),
    [((2, 2, 2, 2), "they hold 8 at most"), ((4, 0, 4, 4), "none is left that rank 1 holds")],
)
def test_where_no_split_fits_the_reason_says_what_the_ranks_hold(most, words):
    reach = np.minimum(np.arange(12) + np.array(most)[:, None], 12)
    with pytest.raises(NoFeasiblePlan, match=words):
        best_split(work_of(np.ones(12), 4, 8, reach=reach))


def test_fewer_layers_than_ranks_cannot_be_split():
    with pytest.raises(NoFeasiblePlan):
        best_split(work_of(np.ones(3), 4, 8))


@pytest.mark.parametrize(("layers", "ranks"), [(126, 64), (512, 128)])
def test_large_models_are_split_in_well_under_a_second(layers, ranks):
    def seconds():
        work = work_of(np.linspace(1, 2, layers), ranks, ranks, head=1.3)
        start = perf_counter()
        assert sum(best_split(work)) == layers
        return perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.5
