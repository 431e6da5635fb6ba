"""Units dealt to unequal replicas: against every way of dealing them."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import NoFeasiblePlan
from planner.search.uneven import Share, deal, longest


def ways(replicas, units):
    """Every number of units, one at least, of each replica; those of a kind in no order."""
    for parts in product(*(combinations_with_replacement(range(1, units + 1), n) for n in replicas)):
        if sum(map(sum, parts)) == units:
            yield parts


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_other_way_of_dealing_is_shorter(data):
    replicas = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    units = data.draw(st.integers(sum(replicas), sum(replicas) + 5))
    steps = st.lists(st.floats(0, 5), min_size=units, max_size=units)
    seconds = [np.cumsum(data.draw(steps)) for _ in replicas]
    shares = deal(replicas, seconds, units)
    assert [share.replicas for share in shares] == replicas
    assert sum(share.units for share in shares) == units
    assert all(units >= 1 for share in shares for _, units in share.runs)
    by_hand = min(
        max(seconds[kind][each - 1] for kind, part in enumerate(parts) for each in part)
        for parts in ways(replicas, units)
    )
    assert longest(shares, seconds) == pytest.approx(by_hand)


@settings(max_examples=60, deadline=None)
@given(
    replicas=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    each=st.integers(1, 20),
    speeds=st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
)
def test_an_equal_share_is_never_better(replicas, each, speeds):
    units = each * sum(replicas)
    seconds = [1.0 + speed * np.arange(1, units + 1) for speed, _ in zip(speeds, replicas, strict=False)]
    shares = deal(replicas, seconds, units)
    assert longest(shares, seconds) <= max(float(times[each - 1]) for times in seconds) * (1 + 1e-12)


def test_replicas_three_times_as_fast_do_three_times_as_much():
    steps = np.arange(1, 17)
    assert deal([4, 4], [1.0 * steps, 3.0 * steps], 32) == (Share(4, 6), Share(4, 2))


def test_what_does_not_divide_is_taken_off_the_slowest():
    shares = deal([4], [1.0 * np.arange(1, 17)], 10)
    assert shares == (Share(4, 3, 2),)
    assert shares[0].runs == ((2, 3), (2, 2))


def test_a_replica_does_no_more_than_fits():
    small = np.array([1.0, 2.0, np.inf, np.inf, np.inf, np.inf])
    large = 4.0 * np.arange(1, 7)
    assert deal([1, 1], [small, large], 6) == (Share(1, 2), Share(1, 4))
    with pytest.raises(NoFeasiblePlan, match="9 units of work are more than 2 replicas hold"):
        deal([1, 1], [small, large], 9)


def test_every_replica_needs_a_unit():
    with pytest.raises(NoFeasiblePlan, match="3 units of work for 4 replicas: each needs 1"):
        deal([4], [np.arange(1.0, 5.0)], 3)


def test_a_pipeline_needs_as_many_micro_batches_as_stages():
    steps = np.arange(1.0, 30.0)
    assert deal([1, 1], [steps, 9 * steps], 20) == (Share(1, 18), Share(1, 2))
    assert deal([1, 1], [steps, 9 * steps], 20, least=4) == (Share(1, 16), Share(1, 4))
