"""What runs at once on a rank: compute beside transfers, transfers that share a link, and data-parallel traffic."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.overlap import overlapped_time
from planner.simulate.play import play
from planner.simulate.schedules import SCHEDULES
from planner.simulate.tasks import COMPUTE, Tasks
from planner.spec.durations import Block, Segment
from tests.simulate.samples import layer, played, tasks_of

whole = st.integers(1, 32)
exact_penalties = st.sampled_from([0.0, 1.0, 3.0])
"""Speeds 1, 1/2 and 1/4, with which whole seconds make no rounding error."""


def one_rank(*blocks, microbatches=1, **table):
    """A step of a single stage."""
    return played("1f1b", 1, microbatches, tuple(blocks), **table)


def together(*transfers, compute=0.0, penalty=0.0):
    """Ends of compute and of transfers (seconds, link) that all start at once, each on its own stream."""
    tasks = Tasks()
    for number, (seconds, link) in enumerate(transfers):
        tasks.add(0, f"stream {number}", seconds, "transfer", link=link, hinders=True)
    if compute:
        tasks.add(0, COMPUTE, compute, "compute")
    return play(tasks, penalty=penalty).end.tolist()


# Compute beside a transfer


@settings(max_examples=200)
@given(whole, whole, exact_penalties)
def test_compute_and_a_transfer_beside_it_take_what_the_closed_form_says(compute, transfer, penalty):
    form = overlapped_time(compute, transfer, penalty=penalty)
    block = Block("layer", (Segment("both", compute, transfer, "cp"),), ())
    step = one_rank(block, penalty=penalty)
    assert step.makespan == form
    assert step.ranks[0].busy + step.ranks[0].exposed == form
    assert max(together((transfer, ""), compute=compute, penalty=penalty)) == form


@given(st.floats(1e-6, 10), st.floats(1e-6, 10), st.floats(0, 1))
def test_compute_and_a_transfer_take_the_same_to_rounding_in_any_seconds(compute, transfer, penalty):
    form = overlapped_time(compute, transfer, penalty=penalty)
    assert max(together((transfer, ""), compute=compute, penalty=penalty)) == pytest.approx(form, rel=1e-12)


@given(st.lists(st.tuples(whole, whole), min_size=1, max_size=6), exact_penalties)
def test_what_follows_waits_for_both_and_for_a_transfer_alone(segments, penalty):
    row = [part for compute, transfer in segments for part in (Segment("", compute, transfer, "tp"), Segment("", 1.0))]
    alone = [Segment("", transfer=transfer, axis="tp") for _, transfer in segments]
    both = sum(overlapped_time(*segment, penalty=penalty) + 1 for segment in segments)
    assert one_rank(Block("", tuple(row), tuple(alone)), penalty=penalty).makespan == both + sum(
        transfer for _, transfer in segments
    )


@given(whole, whole, exact_penalties)
def test_a_send_hinders_no_compute(compute, send, penalty):
    usual = played("gpipe", 2, 6, layer(compute, compute), send=send)
    assert played("gpipe", 2, 6, layer(compute, compute), send=send, penalty=penalty).makespan == usual.makespan


# Links


@given(whole, whole)
def test_two_transfers_over_one_link_take_as_long_as_one_after_the_other(one, other):
    short, long = sorted((one, other))
    assert sorted(together((one, "network"), (other, "network"))) == [2 * short, short + long]
    assert together((one, "network"), (other, "node")) == [one, other]
    assert together((one, ""), (other, "")) == [one, other]


@given(st.lists(whole, min_size=1, max_size=6))
def test_transfers_over_one_link_share_it_evenly(transfers):
    ends = together(*((seconds, "network") for seconds in transfers))
    assert ends == pytest.approx([sum(np.minimum(transfers, each)) for each in transfers], rel=1e-12)


def test_ranks_share_no_link_with_each_other():
    tasks = Tasks()
    for rank in range(3):
        tasks.add(rank, "tp", 2.0, "transfer", link="network")
    assert play(tasks).end.tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("links", "together_take"),
    [({}, 4), ({"tp": "node"}, 4), ({"tp": "node", "dp": "network"}, 4), ({"tp": "node", "dp": "node"}, 8)],
)
def test_a_gather_and_a_tensor_parallel_collective_share_a_link_where_both_name_it(links, together_take):
    collective = (Segment("", transfer=4.0, axis="tp"),)
    step = one_rank(*[Block("", collective, (), gather=4.0)] * 2, links=links)
    gather_alone, collective_alone = 4, 4
    assert step.makespan == gather_alone + together_take + collective_alone


@pytest.mark.parametrize(("link", "gathered_at"), [("", 4.0), ("network", 7.0)])
def test_a_gather_and_a_reduction_share_the_data_parallel_link(link, gathered_at):
    """While the second block's gradients are reduced (4 s from 1 s on), the first block is gathered (3 s)."""
    second = Block("second", (), (Segment("backward", 1.0),), reduce=4.0)
    first = Block("first", (), (Segment("backward", 1.0),), gather_again=3.0)
    step = one_rank(first, second, links={"dp": link}, prefetch=0)
    assert tasks_of(step, "gather") == [(1.0, gathered_at)]
    assert step.makespan == gathered_at + 1


# Weights gathered in every pass (ZeRO-3, FSDP)


def gathered_layers(count, forward, backward, gather, **rest):
    return (layer(forward, backward, gather=gather, gather_again=gather, **rest),) * count


@given(st.integers(1, 4), st.integers(1, 4), whole, whole, whole)
def test_without_prefetch_compute_waits_for_every_gather(layers, microbatches, forward, backward, gather):
    blocks = gathered_layers(layers, forward, backward, gather)
    step = one_rank(*blocks, microbatches=microbatches, prefetch=0)
    assert step.makespan == microbatches * layers * (forward + backward + 2 * gather)
    assert step.ranks[0].exposed == microbatches * layers * 2 * gather
    not_ahead = gathered_layers(layers, forward, backward, gather, ahead=False)
    assert one_rank(*not_ahead, microbatches=microbatches).makespan == step.makespan


@settings(max_examples=200)
@given(st.integers(1, 4), st.integers(1, 4), whole, whole, exact_penalties)
def test_gathers_one_pass_ahead_run_beside_the_pass_before_in_every_micro_batch(
    layers, microbatches, compute, gather, penalty
):
    """All but the first gather beside all but the last pass."""
    blocks = gathered_layers(layers, compute, compute, gather)
    step = one_rank(*blocks, microbatches=microbatches, penalty=penalty)
    passes = 2 * layers * microbatches
    assert step.makespan == gather + (passes - 1) * overlapped_time(compute, gather, penalty=penalty) + compute


@given(st.integers(2, 4), st.integers(2, 5), whole, whole)
def test_under_accumulation_gathers_that_nothing_hides_are_paid_for_with_each_micro_batch(
    layers, microbatches, compute, longer
):
    gather = compute + longer
    blocks = gathered_layers(layers, compute, compute, gather)
    step = one_rank(*blocks, microbatches=microbatches)
    assert step.makespan == 2 * layers * microbatches * gather + compute
    once = one_rank(*[layer(compute, compute, gather_once=gather)] * layers, microbatches=microbatches)
    work = microbatches * layers * 2 * compute
    assert once.makespan == layers * gather + work - (layers - 1) * compute


def test_more_prefetch_hides_what_layers_of_unequal_length_leave_open():
    """Gathers of 3 s before passes of 1 and 5 s by turns, 4 of each: hidden in all once there is room for two ahead."""
    gather, passes = 3, 8
    short, long = (layer(each, each, gather=gather, gather_again=gather) for each in (1, 5))
    took = [one_rank(*[short, long] * 2, prefetch=ahead).makespan for ahead in range(3)]
    work = 4 * (1 + 5)
    assert took[0] == work + passes * gather
    assert took[0] > took[1] > took[2]
    assert took[2] >= gather + work


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_prefetch_costs_room_for_so_many_layers_more(ahead):
    step = one_rank(*gathered_layers(4, 2, 2, 1, gathered=5.0), microbatches=2, prefetch=ahead)
    assert step.memory[0].items["gather_buffers"].max() == 5.0 * (1 + ahead)


def test_weights_that_are_kept_until_backward_are_gathered_half_as_often():
    kept = one_rank(*[layer(1, 1, gather=4, gathered=5.0)] * 3)
    assert kept.makespan == 3 * 4 + 1 + 3
    assert kept.memory[0].items["gather_buffers"].max() == 3 * 5.0


# Gradients reduced


@given(st.integers(1, 4), st.integers(1, 4), whole, whole, whole)
def test_buckets_run_beside_the_last_backward_alone(layers, microbatches, forward, backward, reduce):
    blocks = [layer(forward, backward, reduce_once=reduce)] * layers
    step = one_rank(*blocks, microbatches=microbatches)
    before = microbatches * layers * forward + (microbatches - 1) * layers * backward
    last = max(layers * backward + reduce, backward + layers * reduce)
    assert step.makespan == before + last
    assert min(tasks_of(step, "reduce"))[0] == before + backward
    after = one_rank(*blocks, microbatches=microbatches, overlap_gradients=False)
    assert after.makespan == microbatches * layers * (forward + backward) + layers * reduce


@given(st.integers(1, 4), st.integers(2, 5), whole, whole, whole)
def test_gradients_synchronised_once_save_the_reductions_of_all_other_micro_batches(
    layers, microbatches, forward, backward, longer
):
    """Reductions longer than a pass each way run in a row from the first backward on, and nothing hides the rest."""
    reduce = forward + backward + longer
    every = one_rank(*[layer(forward, backward, reduce=reduce)] * layers, microbatches=microbatches)
    once = one_rank(*[layer(forward, backward, reduce_once=reduce)] * layers, microbatches=microbatches)
    assert every.makespan == layers * forward + backward + microbatches * layers * reduce
    work_before = (microbatches - 1) * layers * (forward + backward)
    assert every.makespan - once.makespan == (microbatches - 1) * layers * reduce - work_before


def test_a_block_is_reduced_in_each_micro_batch_or_in_the_last():
    times = {"every": layer(reduce=1.0), "once": layer(reduce_once=1.0)}
    counts = {name: len(tasks_of(played("1f1b", 2, 6, (block, block)), "reduce")) for name, block in times.items()}
    assert counts == {"every": 2 * 2 * 6, "once": 2 * 2}


def test_the_last_backward_of_a_rank_with_two_stages_is_that_of_each_stage():
    step = played("interleaved", 2, 4, layer(reduce_once=0.5))
    reductions = [label.action for label in step.step.tasks.label if label.name == "reduce"]
    assert sorted((action.stage, action.microbatch) for action in reductions) == [(stage, 3) for stage in range(4)]


# Any table


segments = st.builds(Segment, st.just(""), st.integers(0, 8), st.integers(0, 8), st.sampled_from(["tp", "cp", "ep"]))
rows = st.lists(segments, max_size=3).map(tuple)
maybe = st.integers(0, 6)
blocks = st.builds(
    Block,
    st.just("layer"),
    rows,
    rows,
    rows,
    gather=maybe,
    gather_again=maybe,
    ahead=st.booleans(),
    reduce=maybe,
    gather_once=maybe,
    reduce_once=maybe,
)


@st.composite
def cases(draw, contention=True):
    """Arguments of a step with every kind of transfer, links that some of them share, and any schedule."""
    name, ranks = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.integers(1, 3))
    microbatches = draw(st.integers(2 * ranks, 2 * ranks + 2))
    axes, names = st.sampled_from(["tp", "cp", "ep", "dp", "pp"]), st.sampled_from(["node", "network"])
    table = {
        "send": draw(maybe),
        "penalty": draw(st.sampled_from([0.0, 0.45, 1.0])) if contention else 0.0,
        "prefetch": draw(st.integers(0, 2)),
        "overlap_gradients": draw(st.booleans()),
        "links": draw(st.dictionaries(axes, names)) if contention else {},
        "optimizer": (1.0,) * ranks,
    }
    return (name, ranks, microbatches, draw(st.lists(blocks, min_size=1, max_size=2).map(tuple))), table


def steps():
    return cases().map(lambda case: played(*case[0], **case[1]))


@settings(max_examples=100)
@given(steps())
def test_a_task_starts_as_soon_as_all_that_it_waits_for_has_ended(step):
    tasks, start, end = step.step.tasks, step.played.start, step.played.end
    ready = np.zeros(len(tasks))
    for task, followers in enumerate(tasks.followers):
        ready[followers] = np.maximum(ready[followers], end[task])
    assert start.tolist() == ready.tolist()
    assert (end - start >= np.array(tasks.seconds) * (1 - 1e-12)).all()
    for stream in {*zip(tasks.rank, tasks.stream, strict=True)}:
        own = [task for task in range(len(tasks)) if (tasks.rank[task], tasks.stream[task]) == stream]
        assert all(
            end[one] <= start[other] for one, other in pairwise(sorted(own, key=lambda task: (start[task], end[task])))
        )


@settings(max_examples=100)
@given(steps())
def test_every_task_gets_the_share_of_its_rank_that_the_others_leave(step):
    """Between any two moments at which something starts or ends, by the rules of `play` applied once more."""
    tasks, start, end = step.step.tasks, step.played.start, step.played.end
    beside, done = 1 / (1 + step.durations.penalty), np.zeros(len(tasks))
    owner, compute = np.array(tasks.rank), np.array(tasks.stream) == COMPUTE
    hinders, link = np.array(tasks.hinders), np.array(tasks.link)
    for rank in range(step.order.num_ranks):
        own = np.flatnonzero(owner == rank)
        for since, until in pairwise(np.unique(np.concatenate([start[own], end[own]]))):
            active = own[(start[own] <= since) & (end[own] >= until)]
            for task in active:
                sharing = max(np.count_nonzero(link[active] == link[task]), 1) if link[task] else 1
                others = compute[active].any() if hinders[task] else compute[task] and hinders[active].any()
                done[task] += (until - since) / sharing * (beside if others else 1)
    assert done == pytest.approx(np.array(tasks.seconds), rel=1e-9, abs=1e-9)


@settings(max_examples=100)
@given(steps())
def test_a_step_is_never_longer_than_everything_in_a_row(step):
    """A penalty of 1 at most makes what runs together take as long as one after the other."""
    everything = sum(step.step.tasks.seconds)
    rank_work = np.bincount(
        step.step.tasks.rank, step.step.tasks.seconds * (np.array(step.step.tasks.stream) == COMPUTE)
    )
    assert rank_work.max() * (1 - 1e-12) <= step.makespan <= everything * (1 + 1e-12)
    for use in step.ranks:
        assert use.busy + use.exposed + use.idle == pytest.approx(step.makespan)


@settings(max_examples=100)
@given(cases(contention=False), st.data())
def test_where_nothing_is_shared_a_longer_transfer_never_shortens_a_step(case, data):
    """Where transfers share a link it can: one that comes later may leave the link to one that others wait for."""
    (*numbers, stage), table = case
    place = data.draw(st.integers(0, len(stage) - 1))
    transfers = ("gather", "gather_again", "reduce", "gather_once", "reduce_once")
    longer = {
        name: seconds + data.draw(st.integers(0, 3)) for name in transfers if (seconds := getattr(stage[place], name))
    }
    changed = (*stage[:place], replace(stage[place], **longer), *stage[place + 1 :])
    slower = {**table, "send": table["send"] + data.draw(st.integers(0, 3))}
    assert played(*numbers, changed, **slower).makespan >= played(*numbers, stage, **table).makespan
