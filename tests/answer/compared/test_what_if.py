"""What a change would do: what asking the changed question says, and nothing where nothing changes."""

from dataclasses import replace
from math import log

import pytest

import planner
from planner.answer.compared.changes import NAMED, USUAL, changes
from planner.answer.compared.dials import DIALS
from planner.answer.compared.what_if import STEP


@pytest.fixture(scope="module")
def base():
    return planner.recommend("llama-3.2-1b", "2xdgx-a100", planner.Choices(network="tcp-100"), top=1).best


def row(base, text):
    (found,) = planner.what_if(base, text).rows
    return found


@pytest.mark.parametrize("name", sorted(DIALS))
def test_one_time_as_much_changes_nothing(base, name):
    found = row(base, f"{name}=1x")
    for effect in (found.held, found.chosen):
        assert (effect.time, effect.speed, effect.memory, effect.tie) == (1, 1, 1, False)
        assert effect.cost == pytest.approx(1)
        assert effect.after.same(base)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("network=ib-hdr200", {"network": "ib-hdr200"}),
        ("seq-len=2x", {"seq_len": 8192}),
        ("seq-len=2048", {"seq_len": 2048}),
        ("batch=2x", {"global_batch_size": 256}),
        ("method=lora", {"method": "lora"}),
        ("optimizer=adamw-8bit", {"optimizer": "adamw-8bit"}),
        ("stack=megatron-core", {"stack": "megatron-core"}),
        ("offload=optimizer", {"offload": "optimizer"}),
    ],
)
def test_the_best_plan_anew_is_what_recommend_says_of_the_changed_question(base, text, options):
    asked = {"network": "tcp-100", "global_batch_size": 128} | options
    best = planner.recommend("llama-3.2-1b", "2xdgx-a100", planner.Choices(**asked), top=1).best
    found = row(base, text).chosen
    assert found.after.same(best)
    assert found.after.step_time == best.step_time
    assert found.time == best.step_time / base.step_time
    assert found.memory == best.peak / base.peak


def test_other_numbers_of_nodes_are_other_clusters(base):
    found = row(base, "nodes=2x")
    asked = planner.Choices(network="tcp-100", global_batch_size=128)
    assert found.chosen.after.step_time == planner.recommend("llama-3.2-1b", "4xdgx-a100", asked, top=1).best.step_time
    assert found.held.after is None
    assert "the plan is for 16 GPUs" in found.held.reason


@pytest.mark.parametrize("text", ["nic=2x", "link=2x", "compute=2x", "memory-bandwidth=2x", "latency=0.5x"])
def test_faster_hardware_makes_no_plan_slower(base, text):
    found = row(base, text)
    assert found.held.time <= 1
    assert found.chosen.time <= found.held.time * (1 + 1e-9)
    assert found.sensitivity * (1 if text.startswith("latency") else -1) >= 0


def test_the_same_plan_is_what_evaluate_says_of_it_on_the_changed_cluster(base):
    asked = base.question
    (pool,) = asked.cluster.pools
    fabric = replace(pool.node.fabric, nic_bandwidth=pool.node.fabric.nic_bandwidth / 2)
    cluster = replace(asked.cluster, pools=(replace(pool, node=replace(pool.node, fabric=fabric)),))
    profile = planner.profile("a100-sxm-80gb", asked.stack.name, fabric=fabric)
    by_hand = planner.evaluate(replace(asked, cluster=cluster, profile=profile), base.plan)
    assert row(base, "nic=0.5x").held.after.step_time == by_hand.step_time > base.step_time


def test_an_amount_is_the_factor_that_makes_it(base):
    now = base.question.cluster.node.fabric.nic_bandwidth
    assert now == 12.5e9
    given, factor = planner.what_if(base, "nic=200Gb/s,nic=2x").rows
    assert given.held.after.step_time == factor.held.after.step_time
    small = row(base, "memory=40GB").held.after
    assert small.question.cluster.accelerator.memory == pytest.approx(40e9)
    assert small.usable / base.usable == pytest.approx(40e9 / base.question.cluster.accelerator.memory)


def test_sensitivity_is_the_finite_difference_of_the_held_plan(base):
    found, little = planner.what_if(base, f"compute=2x,compute={STEP}x").rows
    assert found.sensitivity == pytest.approx(log(little.held.time) / log(STEP), rel=1e-9)
    assert -1 <= found.sensitivity < 0
    assert row(base, "seq-len=2x").sensitivity is None


def test_price_is_money_and_no_time(base):
    found = row(base, "price=0.5x").held
    assert (found.time, found.cost) == (1, pytest.approx(0.5))
    middle = sum(row(base, "price=2USD").held.after.usd_per_million_tokens) / 2
    assert middle == pytest.approx(2 / 3600 / float(base.speed.tokens_per_s_per_gpu) * 1e6)


def test_cards_too_small_do_not_fit_with_the_same_plan_and_may_with_another():
    big = planner.recommend("llama-3.1-8b", "2xdgx-h100", planner.Choices(fix="pp=1,tp=1"), top=1).best
    found = row(big, "memory=0.5x")
    assert found.held.after.verdict.name == "DOES_NOT_FIT"
    assert found.chosen.after.verdict.name != "DOES_NOT_FIT"
    assert found.chosen.after.question.choices.fix == "pp=1,tp=1"
    tiny = row(big, "memory=1GB")
    assert tiny.chosen.after is None
    assert "legal plans fits" in tiny.chosen.reason


def test_a_batch_that_the_plan_does_not_divide_is_no_same_plan(base):
    found = row(base, "batch=127")
    assert found.held.after is None
    assert "no multiple of the plan's micro-batches" in found.held.reason


def test_a_plan_that_is_not_the_best_is_said_to_be_none_and_changes_are_against_it():
    slow = planner.recommend("llama-3.2-1b", "1xdgx-h100", planner.Choices(fix="tp=8"), top=1).best
    free = planner.evaluate(planner.ask("llama-3.2-1b", "1xdgx-h100"), slow.plan)
    found = planner.what_if(free, "compute=1x")
    assert found.now.chosen.speed == found.rows[0].chosen.speed > 1
    assert "with the best as it is" in found.sentence
    assert "none of 1 change makes it faster" in found.sentence


def test_the_first_line_names_the_change_that_helps_most(base):
    found = planner.what_if(base, "link=2x,nic=8x,nic=1x")
    speeds = {each.text: each.chosen.speed for each in found.rows}
    assert found.best.text == max(speeds, key=speeds.get)
    assert f"of 3 changes {found.best.text} helps most" in found.sentence
    assert found.best.text in dict(found.reasons)


def test_all_is_a_usual_set_and_each_change_counts_once():
    assert [each.text for each in changes("all,nic=2x")] == list(USUAL)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--what-if: names no change"),
        ("nic", "write NAME=VALUE such as nic=2x, not 'nic'"),
        ("nics=2x", "unknown change 'nics'; did you mean nic"),
        ("nic=2", "nic=2: write a factor such as 2x, or an amount such as 400Gb/s"),
        ("nic=0x", "nic=0x: a factor is above 0"),
        ("nic=400gbps", "ambiguous"),
        ("memory=0GB", "must be above zero"),
        ("seq-len=4GB", "or a whole number"),
        ("batch=2000000000x", "a factor is above 0 and at most"),
    ],
)
def test_a_change_that_cannot_be_read_says_what_would_be_right(text, words):
    with pytest.raises(planner.SpecError, match=words):
        changes(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("precision=fp8", "precision=fp8: .*has no fp8 matrix peak"),
        ("network=ib-9000", "network=ib-9000: .*unknown network"),
        ("method=magic", "method=magic: .*unknown method"),
        ("offload=some", "offload=some: unknown offload"),
        ("seq-len=0.3x", "seq-len=0.3x: makes 1228.8, which is no whole number"),
    ],
)
def test_a_change_that_cannot_be_made_says_why(base, text, words):
    assert text.partition("=")[0] in (*DIALS, *NAMED)
    with pytest.raises(planner.SpecError, match=words):
        planner.what_if(base, text)
