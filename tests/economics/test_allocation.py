"""Accelerators divided among jobs: against every division, and over time by hand."""

from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.economics.allocation import most_valuable, soonest_done
from planner.economics.packing import Nodes, packed
from planner.economics.pool_records import PoolJob
from planner.economics.pool_timeline import Rule, played, reserved, reserved_counts
from planner.economics.resharding import remote_bandwidth, resharding_time

OPTIONS = st.dictionaries(st.integers(1, 6), st.floats(0.1, 10), min_size=1, max_size=4)


def every(options, units, *, none):
    """Every division of the units, with none for some jobs or without."""
    for counts in product(*([*([0] if none else []), *each] for each in options)):
        if sum(counts) <= units:
            yield counts


@settings(max_examples=150, deadline=None)
@given(options=st.lists(OPTIONS, min_size=1, max_size=4), units=st.integers(0, 10))
def test_no_division_is_worth_more(options, units):
    found = most_valuable(options, units)
    assert sum(found) <= units

    def worth(counts):
        return sum(each[n] for each, n in zip(options, counts, strict=True) if n)

    assert worth(found) == pytest.approx(max(worth(counts) for counts in every(options, units, none=True)))


@settings(max_examples=150, deadline=None)
@given(options=st.lists(OPTIONS, min_size=1, max_size=4), units=st.integers(1, 12))
def test_no_division_is_done_sooner_nor_in_less_time_together(options, units):
    found = soonest_done(options, units)

    def times(counts):
        each = [times[n] for times, n in zip(options, counts, strict=True)]
        return max(each), sum(each)

    possible = [times(counts) for counts in every(options, units, none=False)]
    assert (found is None) == (not possible)
    if found is not None:
        assert sum(found) <= units
        assert times(found) == pytest.approx(min(possible))


def job(name, work, speeds, **more):
    return PoolJob(name, work, speeds, **more)


LINEAR = {n: float(n) for n in range(1, 9)}


@settings(max_examples=60, deadline=None)
@given(
    works=st.lists(st.floats(1, 50), min_size=1, max_size=4),
    arrivals=st.lists(st.floats(0, 20), min_size=4, max_size=4),
)
def test_reserved_counts_are_the_best_of_all_divisions(works, arrivals):
    jobs = [job(str(i), work, {n: n**0.8 for n in (1, 2, 4)}, arrival=arrivals[i]) for i, work in enumerate(works)]
    counts = reserved_counts(jobs, 8)
    best = min(reserved(jobs, 8, each).makespan for each in every([j.speeds for j in jobs], 8, none=False))
    assert reserved(jobs, 8, counts).makespan == pytest.approx(best)


def test_jobs_grow_when_another_ends():
    """16 and 48 units of work on 8: from the start 2 and 6, or 4 and 4 and then all 8; both end after 8."""
    jobs = [job("a", 16, LINEAR), job("b", 48, LINEAR)]
    assert played(jobs, 8, Rule.TOGETHER, resize=False).ends == pytest.approx((8.0, 8.0))
    first = played(jobs, 8, Rule.SHORTEST_FIRST, resize=True)
    assert first.ends == pytest.approx((2.0, 8.0))  # the short one alone, then the long one
    assert first.mean_turnaround == pytest.approx(5.0)


def test_a_pause_is_paid_for_every_change():
    """b has 4 until a is done at 4, with 24 of 40 left; on 8 it takes 3 after a pause of 1: done at 8, not 10."""
    jobs = [job("a", 16, {4: 4.0}), job("b", 40, {4: 4.0, 8: 8.0}, pause=lambda before, after: 1.0)]
    timeline = played(jobs, 8, Rule.TOGETHER, resize=True)
    assert timeline.ends == pytest.approx((4.0, 8.0))
    assert timeline.resizes == 1
    assert timeline.paused == pytest.approx(8.0)
    assert timeline.held == pytest.approx(8 * 8.0)
    assert timeline.idle_share == pytest.approx(0.0)


def test_no_job_changes_where_the_pause_costs_more_than_it_gains():
    jobs = [job("a", 16, {4: 4.0}), job("b", 40, {4: 4.0, 8: 8.0}, pause=lambda before, after: 100.0)]
    timeline = played(jobs, 8, Rule.TOGETHER, resize=True)
    assert timeline.ends == pytest.approx((4.0, 10.0))
    assert timeline.resizes == 0
    assert timeline.idle_share == pytest.approx(1 - (8 * 4 + 4 * 6) / 80)


def test_a_job_shrinks_for_one_that_comes_later():
    jobs = [job("a", 64, LINEAR), job("b", 4, LINEAR, arrival=2.0)]
    rigid = played(jobs, 8, Rule.SHORTEST_FIRST, resize=False)
    assert rigid.ends == pytest.approx((8.0, 8.5))  # b waits until a is done
    elastic = played(jobs, 8, Rule.SHORTEST_FIRST, resize=True)
    assert elastic.mean_turnaround < rigid.mean_turnaround
    assert elastic.ends[1] < 4.0


def test_deadlines_come_before_everything_else():
    jobs = [job("a", 40, LINEAR), job("b", 40, LINEAR, deadline=6.0)]
    for rule in Rule:
        timeline = played(jobs, 8, rule, resize=False)
        assert timeline.late == 0
        assert timeline.ends[1] <= 6.0
    assert played([job("a", 100, LINEAR, deadline=1.0)], 8, Rule.TOGETHER, resize=True).late == 1


def test_jobs_that_do_not_fit_together_wait_for_each_other():
    jobs = [job("a", 6, {6: 6.0}), job("b", 6, {6: 6.0}, priority=2.0)]
    for rule in Rule:
        timeline = played(jobs, 8, rule, resize=True)
        assert timeline.ends == pytest.approx((2.0, 1.0))  # the weightier first
    assert reserved_counts(jobs, 8) is None


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_all_work_is_done_once_and_nobody_has_more_than_there_is(data):
    count = data.draw(st.integers(1, 4))
    jobs = [
        job(
            str(i),
            data.draw(st.floats(1, 100)),
            {n: data.draw(st.floats(0.5, 2)) * n for n in data.draw(st.sets(st.integers(1, 8), min_size=1))},
            priority=data.draw(st.floats(0.5, 2)),
            arrival=data.draw(st.floats(0, 10)),
            deadline=data.draw(st.sampled_from([inf, 5.0, 50.0])),
            pause=lambda before, after: 0.5,
        )
        for i in range(count)
    ]
    timeline = played(jobs, 8, data.draw(st.sampled_from(Rule)), resize=data.draw(st.booleans()))
    done = [0.0] * count
    for span in timeline.spans:
        done[span.job] += jobs[span.job].speeds[span.accelerators] * (span.end - span.start - span.paused)
    assert done == pytest.approx([each.work for each in jobs], rel=1e-6)
    for moment in {span.start for span in timeline.spans}:
        assert sum(s.accelerators for s in timeline.spans if s.start <= moment < s.end) <= 8
    assert all(end >= each.arrival for end, each in zip(timeline.ends, jobs, strict=True))


def test_resharding_by_hand():
    """96 GB between 8 and 16 accelerators of 12 GB/s, and a minute to begin again: 61 s."""
    assert resharding_time(96e9, 12e9, min(8, 16), 60.0) == pytest.approx(61.0)


def test_latency_halves_the_bandwidth_of_blocks_that_take_as_long():
    assert remote_bandwidth(25e9, 4e-5, 1e6) == pytest.approx(12.5e9)
    assert remote_bandwidth(25e9, 0.0, 1e6) == pytest.approx(25e9)


def holds(counts, size, number):
    """Whether every part finds room in some node, by trying all."""
    whole = sum(count // size for count in counts)
    parts = [count for count in counts if count < size]

    def place(parts, left):
        if not parts:
            return True
        return any(
            place(parts[1:], [free - parts[0] * (i == j) for j, free in enumerate(left)])
            for i, free in enumerate(left)
            if free >= parts[0]
        )

    return whole <= number and place(parts, [size] * (number - whole))


@settings(max_examples=100, deadline=None)
@given(counts=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16]), max_size=5))
def test_parts_of_nodes_that_are_packed_have_room(counts):
    nodes = Nodes(size=8, number=3)
    if nodes.hold(counts):
        assert holds(counts, 8, 3)
    if all(nodes.always(count) for count in counts) and sum(counts) <= 24:
        assert nodes.hold(counts)


@settings(max_examples=60, deadline=None)
@given(options=st.lists(OPTIONS, min_size=1, max_size=4))
def test_divisions_of_nodes_have_room_and_are_near_the_best(options):
    """Against every division that two nodes of four hold; the bound is that of numbers that always pack."""
    nodes = Nodes(size=4, number=2)
    options = [{n: value for n, value in each.items() if n <= 4} for each in options]

    def worth(counts):
        return sum(each[n] for each, n in zip(options, counts, strict=True) if n)

    found = packed(most_valuable, options, 8, nodes=nodes, kept=(), cost=lambda counts: -worth(counts))
    assert holds([n for n in found if n], 4, 2)
    possible = [counts for counts in every(options, 8, none=True) if holds([n for n in counts if n], 4, 2)]
    safe = [counts for counts in possible if all(nodes.always(n) for n in counts if n)]
    assert max(map(worth, safe)) - 1e-9 <= worth(found) <= max(map(worth, possible)) + 1e-9


def test_threes_leave_gaps_in_nodes_but_none_in_a_pool():
    """Five jobs that want three of sixteen: two nodes of eight hold four of them at once, a pool all five."""
    jobs = [job(str(i), 30, {3: 3.0}) for i in range(5)]
    on_nodes = played(jobs, 16, Rule.TOGETHER, resize=False, nodes=Nodes(8, 2))
    in_pool = played(jobs, 16, Rule.TOGETHER, resize=False)
    assert on_nodes.makespan == pytest.approx(20.0)
    assert in_pool.makespan == pytest.approx(10.0)
