"""Orders in which ranks wait for each other for ever: refused, and the text names the ranks and actions."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.simulate.actions import Kind
from planner.simulate.makespan import Program, makespan
from planner.simulate.play import Deadlock, play
from planner.simulate.tasks import COMPUTE, Tasks
from planner.spec.durations import Segment
from tests.simulate.samples import layer, order_of, played_order

CLAUSE = re.compile(r"rank (\d+) waits with (\w+) for (\w+) of rank (\d+)")


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            order_of("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"),
            "rank 0 waits with 0B0 for 1B0 of rank 1; rank 1 waits with 1F1 for 0F1 of rank 0",
        ),
        (
            order_of("0F0 0I0 0F1 0W0 0I1 0W1", "1F0 1F1 1I0 1W0 1I1 1W1"),
            "rank 0 waits with 0I0 for 1I0 of rank 1; rank 1 waits with 1F1 for 0F1 of rank 0",
        ),
        (
            order_of("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", "2F1 2B1 2F0 2B0"),
            "rank 0 waits with 0B0 for 1B0 of rank 1; rank 1 waits with 1B0 for 2B0 of rank 2; "
            "rank 2 waits with 2F1 for 1F1 of rank 1",
        ),
        (
            order_of("2F0 0F0 2B0 0B0", "1F0 1B0"),
            "rank 0 waits with 2F0 for 1F0 of rank 1; rank 1 waits with 1F0 for 0F0 of rank 0",
        ),
        (order_of("1F0 0F0 1B0 0B0"), "rank 0 waits with 1F0 for 0F0 of rank 0"),
    ],
)
def test_who_waits_for_whom_is_named(order, said):
    with pytest.raises(Deadlock, match=re.escape(f"the schedule stops: {said}") + "$"):
        played_order(order, layer())


def test_a_deadlock_is_a_fault_of_the_input():
    assert issubclass(Deadlock, SpecError)
    assert Deadlock.exit_code == 2


def test_a_deadlock_is_named_the_same_with_every_kind_of_transfer_about():
    transfers = {"gather": 0.5, "gather_again": 0.5, "gather_once": 0.25, "reduce": 0.5, "reduce_once": 0.5}
    forward = (Segment("both", 1.0, 0.5, "cp"), Segment("after", transfer=0.5, axis="tp"))
    stage = (layer(**transfers), replace(layer(), forward=forward, gather=0.5))
    with pytest.raises(Deadlock, match="rank 0 waits with 0B0 for 1B0 of rank 1; rank 1 waits with 1F1 for 0F1"):
        played_order(order_of("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"), stage, send=0.5)


def test_a_pair_whose_backward_waits_for_what_its_own_forward_leads_to_is_named():
    """The second block of the forward comes after the first of the backward."""
    order = order_of("0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B0 1B1")
    with pytest.raises(Deadlock, match="rank 0 waits with 0B0 for 1B0 of rank 1; rank 1 waits with 1F1 for 0F1"):
        played_order(order, (layer(), layer()))


@st.composite
def shuffled_orders(draw):
    """Passes of each rank in any order in which each micro-batch has its forward before its backward."""
    ranks, microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    chunks = draw(st.integers(1, 2))
    way = draw(st.sampled_from(["FB", "FIW"]))
    programs = []
    for rank in range(ranks):
        places = [(stage, batch) for stage in range(rank, ranks * chunks, ranks) for batch in range(microbatches)]
        turns = draw(st.permutations([place for place in places for _ in way]))
        letters = {place: iter(way) for place in places}
        programs.append(" ".join(f"{stage}{next(letters[stage, batch])}{batch}" for stage, batch in turns))
    return order_of(*programs)


def needs(action, last_stage):
    """Actions on other stages of which one has to be done before, as text: a whole backward or its first part."""
    stage, microbatch = action.stage, action.microbatch
    if action.kind is Kind.WEIGHT:
        return set()
    if action.kind is Kind.FORWARD:
        return {f"{stage - 1}F{microbatch}"} if stage else set()
    return {f"{stage + 1}{letter}{microbatch}" for letter in "BI"} if stage < last_stage else set()


def stuck(order):
    """The first action of each rank that is never done, with what it needs."""
    todo, done = [list(actions) for actions in order.actions], set()
    before = -1
    while before < len(done):
        before = len(done)
        for actions in todo:
            while actions and (not (needed := needs(actions[0], order.num_stages - 1)) or needed & done):
                done.add(str(actions.pop(0)))
    return {
        rank: (str(actions[0]), needs(actions[0], order.num_stages - 1)) for rank, actions in enumerate(todo) if actions
    }


@settings(max_examples=400)
@given(shuffled_orders())
def test_an_order_is_played_to_the_end_or_those_that_wait_are_named(order):
    waiting = stuck(order)
    seconds = {kind: [1.0] * order.num_stages for kind in Kind}
    if not waiting:
        assert played_order(order, layer()).makespan > 0
        assert makespan(Program.of(order), seconds) > 0
        return
    with pytest.raises(Deadlock) as error:
        played_order(order, layer())
    named = {
        int(rank): (action, needed, int(owner)) for rank, action, needed, owner in CLAUSE.findall(str(error.value))
    }
    assert named.keys() == waiting.keys()
    for rank, (action, needed, owner) in named.items():
        assert action == waiting[rank][0]
        assert needed in waiting[rank][1]
        assert needed in map(str, order.actions[owner])
    with pytest.raises(Deadlock):
        makespan(Program.of(order), seconds)


def test_a_task_that_was_promised_and_never_comes_is_a_deadlock():
    tasks = Tasks()
    tasks.add(0, COMPUTE, 1.0, "waiting", after=(tasks.promise("what never comes"),))
    with pytest.raises(Deadlock):
        play(tasks)
