"""Layers over unequal pipeline ranks: against every split."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import NoFeasiblePlan
from planner.search.balance import Work, least_time, paths_of
from planner.search.unequal_ranks import UnequalWork, best_unequal_split, unequal_splits
from planner.spec.plan import Schedule


def everything(ranks, layers):
    return np.full((ranks, layers), layers)


def every_split(ranks, layers):
    for ends in combinations(range(1, layers), ranks - 1):
        yield tuple(np.diff([0, *ends, layers]).tolist())


def within(sizes, reach):
    begins = np.cumsum([0, *sizes[:-1]])
    return all(begin + size <= reach[r, begin] for r, (begin, size) in enumerate(zip(begins, sizes, strict=True)))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_split_is_shorter_than_the_one_that_is_found(data):
    ranks = data.draw(st.integers(1, 4))
    layers = data.draw(st.integers(ranks, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    most = rng.integers(1, layers + 1, ranks) if data.draw(st.booleans()) else np.full(ranks, layers)
    reach = np.minimum(np.arange(layers)[None, :] + most[:, None], layers)
    speed, microbatches = rng.uniform(0.5, 4, ranks), data.draw(st.integers(1, 12))
    work = UnequalWork(speed[:, None] * rng.uniform(0.5, 2, layers), rng.uniform(0, 2, ranks), reach)
    splits = [sizes for sizes in every_split(ranks, layers) if within(sizes, reach)]
    if not splits:
        with pytest.raises(NoFeasiblePlan, match="no split"):
            best_unequal_split(work, microbatches)
        return
    best = best_unequal_split(work, microbatches)
    assert best in splits
    assert work.cost(best, microbatches) == pytest.approx(min(work.cost(each, microbatches) for each in splits))
    assert all(each in splits for each in unequal_splits(work, microbatches))


def test_a_rank_of_twice_the_speed_holds_twice_the_layers():
    work = UnequalWork(np.array([[1.0] * 12, [2.0] * 12]), np.zeros(2), everything(2, 12))
    assert best_unequal_split(work, 16) == (8, 4)
    assert best_unequal_split(work, 1) == (11, 1)  # a single micro-batch waits for all ranks in turn


def test_on_equal_ranks_the_cost_is_the_longest_path_of_gpipe():
    rng = np.random.default_rng(5)
    layers, extra = rng.uniform(1, 2, (2, 9)), rng.uniform(0, 1, (2, 3))
    even = Work(layers, extra, everything(3, 9), paths_of(Schedule.GPIPE, 3, 7))
    work = UnequalWork(np.tile(layers.sum(axis=0), (3, 1)), extra.sum(axis=0), everything(3, 9))
    for sizes in every_split(3, 9):
        assert work.cost(sizes, 7) == pytest.approx(float(least_time(even.paths, even.times(np.array(sizes)))))
