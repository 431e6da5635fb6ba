"""Schedules against torch's own, against the closed forms of what they hold, and against waiting for ever."""

import re
from itertools import product
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost import pipeline
from planner.errors import SpecError
from planner.simulate.actions import Action, Kind, Order
from planner.simulate.looped_schedules import group_size
from planner.simulate.schedules import FIXED_CHUNKS, NAME_OF, SCHEDULES, known_order
from planner.spec.plan import Schedule

TORCH_CLASS = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}
COMPUTE = {"F", "B", "I", "W", "OVERLAP_F_B"}
F0, F1, B0, B1 = (Action(kind, 0, microbatch) for kind in (Kind.FORWARD, Kind.BACKWARD) for microbatch in (0, 1))
I0, W0 = Action(Kind.INPUT, 0, 0), Action(Kind.WEIGHT, 0, 0)


def torch_schedule(name, ranks, microbatches, chunks=1, *, rank=0):
    """torch's schedule of stages that do nothing: its order is made of their numbers alone."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    if not hasattr(schedules, name):
        pytest.skip(f"this torch has no {name}")
    stage = MagicMock(num_stages=ranks * chunks, group_size=ranks, group_rank=rank, stage_index=rank)
    single = issubclass(getattr(schedules, name), schedules.PipelineScheduleSingle)
    return getattr(schedules, name)(stage if single else [stage] * chunks, microbatches)


def torch_passes(schedule):
    """Each rank's passes in torch's spelling, without idle slots, and without what is no compute."""
    return [
        [str(action) for action in actions if action is not None and action.computation_type.value in COMPUTE]
        for _, actions in sorted(schedule.pipeline_order.items())
    ]


def counted_from_0(passes):
    """Passes of a rank whose forwards torch counts from 1, as it does in the order of 1F1B's last rank (2.13)."""
    if passes[0].endswith("F0"):
        return passes
    return [re.sub(r"(?<=F)\d+", lambda number: str(int(number[0]) - 1), each) for each in passes]


def starts(actions):
    """Actions that start together, in order."""
    grouped = []
    for action in actions:
        if action.paired:
            grouped[-1].append(action)
        else:
            grouped.append([action])
    return grouped


def passes(order):
    """Each rank's passes, a pair as one."""
    return [
        [str(group[0]) if len(group) == 1 else f"({group[0]};{group[1]})OVERLAP_F_B" for group in starts(actions)]
        for actions in order.actions
    ]


def needs(action, last_stage):
    """What must have been done before an action: any of these, or nothing."""
    kind, stage, microbatch, _ = action
    if kind is Kind.FORWARD:
        return {("F", stage - 1, microbatch)} if stage else set()
    if kind is Kind.WEIGHT:
        return {("I", stage, microbatch)}
    if stage == last_stage:
        return {("F", stage, microbatch)}
    return {("B", stage + 1, microbatch), ("I", stage + 1, microbatch)}


def play(order):
    """What waits for ever when each rank does its own in order, and each rank's idle time after its first action.

    Every action takes 1, B takes 2; what starts together takes its sum.
    """
    waiting = [list(reversed(starts(actions))) for actions in order.actions]
    clock, idle, ended, moved = [0] * len(waiting), [0] * len(waiting), {}, True
    while moved:
        moved = False
        for rank, todo in enumerate(waiting):
            while todo:
                needed = [needs(action, order.num_stages - 1) for action in todo[-1]]
                if not all(not each or each & ended.keys() for each in needed):
                    break
                start = max([clock[rank], *(ended[each] for each in set().union(*needed) & ended.keys())])
                idle[rank] += start - clock[rank] if clock[rank] else 0
                group = todo.pop()
                clock[rank] = start + sum(2 if action.kind is Kind.BACKWARD else 1 for action in group)
                ended |= {(str(action.kind), action.stage, action.microbatch): clock[rank] for action in group}
                moved = True
    return [str(action) for todo in waiting for group in reversed(todo) for action in group], idle


def peaks(order):
    """Most passes that each rank holds at a time, from a forward until its gradients of weights."""
    change = {Kind.FORWARD: 1, Kind.INPUT: 0, Kind.BACKWARD: -1, Kind.WEIGHT: -1}
    return [max(np.cumsum([change[action.kind] for action in actions])) for actions in order.actions]


@st.composite
def known_orders(draw):
    """A schedule's name, legal numbers, and the order."""
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    ranks = draw(st.integers(1, 8))
    least = 2 * ranks if name == "dualpipe-v" else 1
    microbatches = draw(st.integers(least, least + 32))
    chunks = FIXED_CHUNKS.get(name) or draw(st.integers(1, 4))
    return ranks, microbatches, chunks, known_order(name, ranks, microbatches, chunks)


@pytest.mark.parametrize("ranks", range(1, 8))
@pytest.mark.parametrize("name", TORCH_CLASS)
def test_the_order_of_actions_is_that_of_torch(name, ranks):
    compared = 0
    choices = [FIXED_CHUNKS[name]] if name in FIXED_CHUNKS else [1, 2, 3]
    for microbatches, chunks in product(range(1, 3 * ranks + 5), choices):
        try:
            theirs = torch_schedule(TORCH_CLASS[name], ranks, microbatches, chunks)
        except ValueError:
            continue
        ours = known_order(name, ranks, microbatches, chunks)
        assert passes(ours) == [counted_from_0(rank) for rank in torch_passes(theirs)], (microbatches, chunks)
        if hasattr(theirs, "stage_index_to_group_rank"):
            assert dict(enumerate(ours.rank_of)) == theirs.stage_index_to_group_rank
        compared += 1
    assert compared >= ranks


@pytest.mark.parametrize("ranks", range(1, 8))
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_order_of_actions_is_what_torch_runs(name, ranks):
    """Schedules of one stage run from a loop of their own, not from `pipeline_order`."""
    for microbatches, rank in product(range(ranks, 3 * ranks + 5), range(ranks)):
        schedule = torch_schedule(TORCH_CLASS[name], ranks, microbatches, rank=rank)
        stage, schedule._initialize_stage = schedule._stage, lambda *_: None
        for operations in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
            getattr(stage, operations).return_value = []
        schedule._step_microbatches([()] * microbatches, [{}] * microbatches)
        letters = {"forward_one_chunk": "F", "backward_one_chunk": "B"}
        ran = [f"{rank}{letters[call[0]]}{call[1][0]}" for call in stage.mock_calls if call[0] in letters]
        assert ran == passes(known_order(name, ranks, microbatches))[rank]


@given(known_orders())
def test_every_schedule_does_each_micro_batch_on_each_stage_and_never_waits_for_ever(known):
    ranks, microbatches, chunks, order = known
    assert (order.num_ranks, order.num_stages, order.num_microbatches) == (ranks, ranks * chunks, microbatches)
    assert play(order)[0] == []


@given(st.integers(1, 10), st.integers(1, 40))
def test_micro_batches_in_flight_are_those_of_the_closed_forms(ranks, microbatches):
    every = np.arange(ranks)
    assert peaks(known_order("gpipe", ranks, microbatches)) == [pipeline.gpipe_in_flight(microbatches)] * ranks
    expected = pipeline.one_f_one_b_in_flight(microbatches, ranks, every)
    assert peaks(known_order("1f1b", ranks, microbatches)) == expected.tolist()
    assert peaks(known_order("zb-h1", ranks, microbatches)) == [pipeline.zb_h1_in_flight(microbatches, ranks)] * ranks


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 5))
def test_interleaved_in_flight_is_that_of_the_closed_form(ranks, groups, chunks):
    order = known_order("interleaved", ranks, groups * ranks, chunks)
    expected = pipeline.interleaved_in_flight(groups * ranks, ranks, np.arange(ranks), chunks)
    assert [peak / chunks for peak in peaks(order)] == expected.tolist()


@given(st.integers(1, 8), st.integers(0, 24))
def test_zb_v_holds_on_all_ranks_what_1f1b_holds_on_the_first(ranks, more):
    assert peaks(known_order("zb-v", ranks, 2 * ranks + more)) == [2 * ranks] * ranks


@given(st.integers(1, 8), st.integers(-1, 24))
def test_a_rank_of_zb_v_never_waits_once_it_started_where_parts_take_equally_long(ranks, more):
    assert play(known_order("zb-v", ranks, 2 * ranks + more)) == ([], [0] * ranks)


def test_orders_that_wait_for_each_other_are_not_played_to_the_end():
    order = Order(((F0, F1, B1, B0), tuple(each._replace(stage=1) for each in (F0, B0, F1, B1))), (0, 1))
    assert play(order)[0] == []
    waiting = Order(((F0, B0, F1, B1), tuple(each._replace(stage=1) for each in (F0, F1, B0, B1))), (0, 1))
    assert play(waiting)[0] == ["0B0", "0F1", "0B1", "1F1", "1B0", "1B1"]


@given(st.integers(1, 8), st.integers(0, 24))
def test_dualpipe_v_holds_one_chunk_more_than_zb_v(ranks, more):
    assert peaks(known_order("dualpipe-v", ranks, 2 * ranks + more)) == [2 * ranks + 1] * ranks


@given(st.integers(1, 12), st.integers(1, 100))
def test_groups_of_interleaved_are_never_shorter_than_the_pipeline(ranks, microbatches):
    size = group_size(ranks, microbatches)
    assert size == microbatches or size >= ranks
    assert microbatches % size == 0 or microbatches % size >= ranks
    if microbatches % ranks == 0:
        assert size == ranks


def test_a_forward_and_a_backward_of_dualpipe_v_run_together_on_every_rank():
    order = known_order("dualpipe-v", 4, 8)
    for actions in order.actions:
        pairs = [group for group in starts(actions) if len(group) > 1]
        assert pairs
        assert all([action.kind for action in pair] == ["F", "B"] for pair in pairs)


def test_every_schedule_of_a_plan_has_an_order():
    assert set(NAME_OF) == set(Schedule)
    assert set(NAME_OF.values()) <= set(SCHEDULES)
    assert passes(known_order(NAME_OF[Schedule.NONE], 1, 2)) == [["0F0", "0B0", "0F1", "0B1"]]


def test_names_are_known_in_any_case():
    assert known_order("ZB-V", 2, 4) == known_order("zb-v", 2, 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zbv", 2, 4), "unknown schedule 'zbv'; did you mean zb-v"),
        (("dualpipe-v", 4, 7), "7 micro-batches on 4 ranks; it needs at least 8"),
        (("1f1b", 4, 8, 2), "1f1b with 2 stages a rank; it is made for 1"),
        (("zb-v", 4, 8, 4), "zb-v with 4 stages a rank; it is made for 2"),
        (("interleaved", 4, 8, 0), "0 stages a rank; it needs at least 1"),
        (("gpipe", 0, 8), "0 ranks; it needs at least 1"),
        (("looped-bfs", 2, 0), "0 micro-batches; it needs at least 1"),
        (("zb-v", 100_000, 4), "4 micro-batches on 100000 x 2 stages; over 4000000 forwards"),
    ],
)
def test_numbers_that_a_schedule_is_not_made_for_are_refused(arguments, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        known_order(*arguments)


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([F0, B0, F1], "stage 0 does F with micro-batch 1; right is FB or FIW"),
        ([F1, B1], "stage 0 does nothing with micro-batch 0"),
        ([F0, F0, B0], "stage 0 does F, F, B with micro-batch 0"),
        ([F0, B0, W0], "stage 0 does F, B, W"),
        ([F0, W0, I0], "stage 0 does F, W, I"),
        ([B0, F0], "stage 0 does B, F"),
        ([F0, Action(Kind.FORWARD, 1, 0), B0], "rank 0 does 1F0; there are stages 0 to 0"),
        ([], "a schedule without actions"),
        ([F0, F1._replace(paired=True), B0, B1], "rank 0 starts 0F1 together with 0F0"),
        ([F0, B0._replace(paired=True)], "rank 0 starts 0B0 together with 0F0"),
        ([F0._replace(paired=True), B0], "rank 0 starts 0F0 together with nothing"),
        (
            [
                F0,
                F1,
                B0._replace(paired=True),
                Action(Kind.FORWARD, 0, 2, paired=True),
                B1,
                Action(Kind.BACKWARD, 0, 2),
            ],
            "rank 0 starts 0F2 together with 0B0 of another pair",
        ),
    ],
)
def test_what_is_no_complete_order_is_refused(actions, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        Order((tuple(actions),), (0,))


def test_an_action_on_another_rank_than_its_stage_is_refused():
    with pytest.raises(SpecError, match="rank 1 does 0B0, but stage 0 is on rank 0"):
        Order(((F0,), (B0,)), (0, 1))
    with pytest.raises(SpecError, match="every rank needs a stage"):
        Order(((F0, B0), ()), (0,))
