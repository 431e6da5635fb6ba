"""The best sequence of divisions of a pool: against every sequence, in code of its own."""

from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.economics.packing import Nodes
from planner.economics.pool_records import PoolJob
from planner.economics.pool_search import key_of, searched
from planner.economics.pool_timeline import Rule, played, reserved, reserved_counts

PAUSE = 0.25


def exhaustive(jobs, accelerators, objective):
    """The least of the objective over all divisions at every arrival and end, every change paid for with a pause."""
    best = inf

    def go(now, left, had, resumes, ends):
        nonlocal best
        if all(end is not None for end in ends):
            turnaround = sum(j.priority * (e - j.arrival) for j, e in zip(jobs, ends, strict=True))
            value = max(ends) if objective == "makespan" else turnaround / sum(j.priority for j in jobs)
            best = min(best, value)
            return
        here = [i for i, j in enumerate(jobs) if ends[i] is None and j.arrival <= now]
        coming = [j.arrival for j in jobs if j.arrival > now]
        for counts in product(*([0, *jobs[i].speeds] for i in here)):
            if sum(counts) > accelerators or not (sum(counts) or coming):
                continue
            begin = {}
            for i, n in zip(here, counts, strict=True):
                changed = n and had[i] is not None and n != had[i]
                begin[i] = now + PAUSE if changed else max(now, resumes[i]) if n == had[i] else now
            finish = {i: begin[i] + left[i] / jobs[i].speeds[n] for i, n in zip(here, counts, strict=True) if n}
            after = min([*finish.values(), *coming])
            now_left, now_had, now_resumes, now_ends = list(left), list(had), list(resumes), list(ends)
            for i, n in zip(here, counts, strict=True):
                if n:
                    now_left[i] -= max(0.0, after - begin[i]) * jobs[i].speeds[n]
                    now_resumes[i] = begin[i]
                now_had[i] = n if had[i] is not None or n else None
                if n and finish[i] <= after + 1e-12:
                    now_ends[i] = after
            go(after, now_left, now_had, now_resumes, now_ends)

    start = min(job.arrival for job in jobs)
    go(start, [j.work for j in jobs], [None] * len(jobs), [0.0] * len(jobs), [None] * len(jobs))
    return best


def best_policy(jobs, accelerators, objective, nodes=None):
    lines = [played(jobs, accelerators, rule, resize=r, nodes=nodes) for rule in Rule for r in (False, True)]
    counts = reserved_counts(jobs, accelerators, nodes)
    lines += [reserved(jobs, accelerators, counts)] if counts else []
    return min(lines, key=lambda line: key_of(line, objective))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), objective=st.sampled_from(["makespan", "turnaround"]))
def test_no_sequence_of_divisions_is_better(data, objective):
    jobs = [
        PoolJob(
            str(i),
            data.draw(st.floats(1, 20)),
            {n: n ** data.draw(st.floats(0.6, 1.0)) for n in data.draw(st.sampled_from([(1, 2, 4), (2, 4), (1, 3)]))},
            priority=data.draw(st.sampled_from([1.0, 2.0])),
            arrival=data.draw(st.sampled_from([0.0, 0.0, 1.5])),
            pause=lambda before, after: PAUSE,
        )
        for i in range(data.draw(st.integers(1, 3)))
    ]
    line, proven = searched(best_policy(jobs, 4, objective), objective, states=200_000)
    assert proven
    value = line.makespan if objective == "makespan" else line.mean_turnaround
    assert value == pytest.approx(exhaustive(jobs, 4, objective), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    works=st.lists(st.floats(1, 20), min_size=2, max_size=4),
    states=st.integers(0, 400),
    objective=st.sampled_from(["makespan", "turnaround"]),
)
def test_a_search_never_makes_it_worse_and_keeps_to_what_nodes_hold(works, states, objective):
    jobs = [PoolJob(str(i), work, {1: 1.0, 2: 1.9, 3: 2.7, 4: 3.4, 8: 6.0}) for i, work in enumerate(works)]
    nodes = Nodes(size=4, number=2)
    known = best_policy(jobs, 8, objective, nodes)
    line, _ = searched(known, objective, nodes, states=states)
    assert key_of(line, objective) <= key_of(known, objective)
    for moment in {span.start for span in line.spans}:
        assert nodes.hold([s.accelerators for s in line.spans if s.start <= moment < s.end])


def test_deadlines_come_first_in_the_search_as_well():
    jobs = [
        PoolJob("a", 8.0, {4: 4.0}),
        PoolJob("b", 2.0, {4: 4.0}, deadline=1.0),
        PoolJob("c", 4.0, {2: 2.0, 4: 3.0}, deadline=3.0),
    ]
    line, proven = searched(best_policy(jobs, 4, "makespan"), "makespan")
    assert proven
    assert line.late == 0
    assert line.ends[1] <= 1.0


def test_a_job_that_was_stopped_pays_for_coming_back():
    jobs = [
        PoolJob("a", 16.0, {4: 4.0}, pause=lambda before, after: 1.0),
        PoolJob("b", 4.0, {4: 4.0}, arrival=1.0, deadline=2.5),
    ]
    line, _ = searched(best_policy(jobs, 4, "makespan"), "makespan")
    assert line.ends[1] == pytest.approx(2.0)
    assert line.ends[0] == pytest.approx(1 + 1 + 1 + 3)  # a second done, one away, one coming back, three left
