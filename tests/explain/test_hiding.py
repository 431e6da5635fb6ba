"""Bandwidths that hide communication, checked by giving the step time just as much and a little less."""

from dataclasses import replace

import pytest

from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate, links_of
from planner.answer.question import ask
from planner.estimate.step_time import step_time
from planner.explain.hiding import MOST, SMALL, StepOnLinks, hidings
from planner.spec.plan import Plan, Sharding

DDP = Plan(dp_replicate=16, num_microbatches=1, recompute=2)
ZERO1 = Plan(tp=8, dp_shard=2, sharding=Sharding.ZERO1, num_microbatches=4, sequence_parallel=1)


def found(plan, machines, batch, network=None):
    """The hidings of a plan by name, the step as a function of links, and today's."""
    asked = ask("llama-3.1-8b", machines, Choices(global_batch_size=str(batch), stack="pytorch", network=network))

    def step_of(links, profile):
        # What waits for the last bucket of gradients waits at any bandwidth.
        stack = replace(asked.stack, gradient_bucket=0.0)
        return step_time(asked.model, plan, asked.workload, asked.cluster, links, profile=profile, stack=stack)

    links = links_of(asked, plan)
    step = StepOnLinks(plan, asked.cluster, links, asked.profile, step_of)
    return {each.name: each for each in hidings(step)}, step, float(evaluate(asked, plan).time.total)


def with_network(links, axis, factor):
    group = getattr(links, axis)
    return replace(links, **{axis: replace(group, remote_bandwidth=group.remote_bandwidth * factor)})


def test_gradients_hide_from_the_bandwidth_at_which_their_reduction_is_as_long_as_backward():
    by_name, step, total = found(DDP, "2xdgx-h100", 16, network="ib-hdr200x2")
    one = by_name["dp_replicate"]
    assert set(one.limit.ends) == {"nic", "leaf"}
    assert one.hidden.factor > 1
    assert not one.hidden.everywhere
    free = replace(step.profile, overlap_penalty=0.0)

    def exposed(factor):
        return float(step.step_of(with_network(step.links, "dp_replicate", factor), free).dp_exposed)

    assert exposed(one.hidden.factor * 1.001) <= 2e-6 * total
    assert exposed(one.hidden.factor * 0.97) > 2e-6 * total
    assert one.hidden.link == pytest.approx(one.hidden.factor * 25e9)


def test_tensor_parallelism_without_overlap_is_never_hidden_but_becomes_small():
    by_name, step, total = found(ZERO1, "2xdgx-a100", 8)
    tp = by_name["tp"]
    assert tp.hidden is None
    assert tp.exposed > SMALL * total
    assert tp.overlap == 0
    group = step.links.tp
    small = tp.small.factor if tp.small else MOST
    faster = replace(step.links, tp=replace(group, local_bandwidth=group.local_bandwidth * small))
    after = float(step.step_of(faster, step.profile).tp_exposed)
    assert after <= SMALL * total * 1.01 if tp.small else after > SMALL * total
    assert tp.left < tp.exposed


def test_what_is_hidden_today_needs_no_more_and_shows_only_what_overlap_costs():
    plan = replace(DDP, micro_batch_size=8)
    by_name, _, _ = found(plan, "2xdgx-h100", 128)
    one = by_name["dp_replicate"]
    assert one.hidden.factor == 1
    assert one.exposed == pytest.approx(one.overlap)


def test_a_plan_that_sends_nothing_has_nothing_to_hide():
    assert found(Plan(num_microbatches=4), "1xh100-sxm", 4)[0] == {}
