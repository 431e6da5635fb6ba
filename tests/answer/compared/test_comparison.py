"""Sides compared: each is what `recommend` says of it, and what accounts for the difference adds up."""

import random
import re

import pytest

import planner
from planner.answer.compared.figures import percent
from planner.answer.compared.sides import MOST_SIDES, is_plan_file
from planner.estimate.interval import p_faster


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Two plan files of one question."""
    folder = tmp_path_factory.mktemp("plans")
    for name, fix in (("wide", "tp=8,pp=1"), ("plain", "tp=1,pp=1,cp=1")):
        best = planner.recommend("llama-3.2-1b", "2xdgx-h100", planner.Choices(fix=fix), top=1).best
        planner.write_plan(best, folder / name)
    return folder


def line(found, key):
    return next(each for each in found.lines if each.key == key)


@pytest.mark.parametrize("seed", range(3))
def test_every_side_is_what_recommend_says_of_it(seed):
    draw = random.Random(seed)
    model = draw.choice(["llama-3.2-1b", "gpt2", "mixtral-8x7b"])
    clusters = draw.sample(["2xdgx-h100", "1xdgx-a100", "8xl40s", "4xrtx-4090"], 2)
    axis, values = draw.choice(
        [("network", ["roce-100", "tcp-10"]), ("method", ["full", "lora"]), ("optimizer", ["adamw", "sgd"])]
    )
    found = planner.sides([model, *clusters], {axis: ",".join(values)})
    assert [side.label for side in found] == [f"{cluster}, {value}" for cluster in clusters for value in values]
    for side in found:
        cluster, value = side.label.split(", ")
        choices = planner.Choices(**{axis: value})
        if side.ranked is None:
            with pytest.raises(planner.NoFeasiblePlan, match=re.escape(side.reason)):
                planner.recommend(model, cluster, choices)
            continue
        best = planner.recommend(model, cluster, choices, top=1).best
        assert side.ranked.same(best)
        assert side.ranked.step_time == best.step_time


def test_a_plan_file_is_compared_as_evaluate_judges_it(plans):
    found = planner.compare(planner.sides([str(plans / "wide"), str(plans / "plain" / "plan.json")]))
    for side in found.sides:
        again = planner.evaluate(side.question, side.ranked.plan)
        assert side.ranked.step_time == pytest.approx(again.step_time, rel=1e-12)
        assert side.ranked.peak == again.peak
    assert "tensor-parallel communication" in found.sentence


def test_a_file_and_a_question_stand_side_by_side(plans):
    found = planner.sides([str(plans / "wide"), "llama-3.2-1b", "2xdgx-h100"])
    assert [side.label for side in found] == [str(plans / "wide"), "llama-3.2-1b on 2xdgx-h100"]


def test_the_other_order_gives_the_opposite_differences():
    one = planner.compare(planner.sides(["llama-3.2-1b", "2xdgx-h100", "2xdgx-a100"]))
    two = planner.compare(planner.sides(["llama-3.2-1b", "2xdgx-a100", "2xdgx-h100"]))
    assert one.sentence == two.sentence
    assert [each.as_dict() for each in one.against] == [each.as_dict() for each in two.against]
    assert one.remarks == two.remarks
    for here, there in zip(one.lines, two.lines, strict=True):
        assert (here.key, here.spread) == (there.key, there.spread)
        assert here.figures == there.figures[::-1]


def test_the_reason_is_of_the_terms_that_account_for_the_difference():
    found = planner.compare(planner.sides(["llama-3.1-8b", "4xdgx-h100"], {"network": "ib-ndr400,tcp-10"}))
    fast, slow = found.fitting
    assert (fast.label, slow.label) == ("ib-ndr400", "tcp-10")
    parts = [each for each in found.lines if each.section == "time"]
    sums = [sum(each.figures[place].value or 0 for each in parts) for place in (0, 1)]
    assert sums == [pytest.approx(side.ranked.step_time) for side in found.sides]
    largest = max((each for each in parts if each.figures[1].value), key=lambda each: each.spread)
    assert largest.name.removeprefix("time: ") in found.against[0].reason
    assert found.against[0].more == pytest.approx(slow.ranked.step_time / fast.ranked.step_time - 1)


def test_steps_of_other_sizes_are_compared_by_the_token():
    found = planner.compare(planner.sides(["llama-3.2-1b", "1xdgx-h100"], {"global_batch_size": "64,256"}))
    assert "per million tokens" in found.sentence
    small, large = (side.ranked for side in found.sides)
    rates = [float(each.speed.tokens_per_s) for each in (small, large)]
    assert found.fastest.ranked is (small if rates[0] > rates[1] else large)
    assert found.against[0].more == pytest.approx(max(rates) / min(rates) - 1)


def test_equal_sides_are_said_to_be_the_same(plans):
    found = planner.compare(planner.sides([str(plans / "wide"), str(plans / "wide")][:1]) * 2)
    assert found.same
    assert found.differences == ()
    assert found.remarks == ()
    assert found.sentence.startswith("The 2 sides are the same: same inputs, same plan")


def test_what_makes_no_difference_to_time_is_said_to_take_the_same():
    found = planner.compare(planner.sides(["gpt2", "1xdgx-h100"], {"network": "ib-ndr400,tcp-10"}))
    assert "ib-ndr400 and tcp-10 take the same time" in found.sentence
    assert [each.key for each in found.differences] == ["network"]


@pytest.mark.parametrize(
    ("axis", "values", "key"),
    [
        ("seq_len", "1024,2048", "sequence length"),
        ("optimizer", "adamw,adamw-8bit", "optimizer"),
        ("precision", "bf16,fp8", "precision"),
        ("usd_per_gpu_hour", "1,2", "USD per GPU-hour"),
        ("stack", "megatron-core,torchtitan", "stack"),
        ("fix", ("tp=1", "tp=2"), "tp"),
    ],
)
def test_a_changed_figure_is_among_the_differences_and_before_the_equal_ones(axis, values, key):
    found = planner.compare(planner.sides(["llama-3.2-1b", "1xdgx-h100"], {axis: values}))
    assert line(found, key).differs
    differs = [each.differs for each in found.lines]
    assert differs == sorted(differs, reverse=True)


def test_a_tie_is_said_as_a_tie():
    found = planner.compare(planner.sides(["llama-3.1-8b", "4xdgx-h100"], {"network": "ib-ndr400,roce-400"}))
    (other,) = found.against
    profile = found.fastest.question.profile
    assert other.tie
    assert " tie: " in found.sentence
    chance = p_faster(found.fastest.ranked.step_time, other.side.ranked.step_time, profile)
    assert other.p_slower == pytest.approx(chance)
    assert f"is faster is {chance:.0%}" in found.sentence


def test_other_hardware_shares_no_error_so_that_less_can_be_told():
    h100, a100 = (side.ranked for side in planner.sides(["gpt2", "1xdgx-h100", "1xdgx-a100"]))
    one, two = h100.question.profile, a100.question.profile
    assert p_faster(1.0, 1.2, one, two) < p_faster(1.0, 1.2, one)
    assert p_faster(1.0, 1.2, one, two) + p_faster(1.2, 1.0, two, one) == pytest.approx(1)


def test_a_side_that_nothing_fits_on_says_why_and_the_others_are_compared():
    found = planner.compare(planner.sides(["llama-3.1-70b", "1xdgx-h100", "4xdgx-h100"]))
    assert found.sentence.startswith("Only 4xdgx-h100 fits")
    assert "nothing fits: 1xdgx-h100" in found.sentence
    assert any("the smallest needs" in text for title, text in found.remarks if title == "memory")
    with pytest.raises(planner.NoFeasiblePlan, match="nothing fits on any side; 1xh100-sxm: "):
        planner.compare(planner.sides(["llama-3.1-70b", "1xh100-sxm", "1xl40s"]))


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (["gpt2"], {}, "gpt2: missing CLUSTER"),
        (["gpt2", "1xl40s"], {"seq_len": "1k"}, "--seq-len: write whole numbers with commas"),
        (["gpt2", "1xl40s"], {"network": ","}, "--network: names nothing"),
        (["gpt2", "1xl40s"], {"planet": "mars"}, "planet: is no choice"),
        (["gpt2", "1xl40s"], {"global_batch_size": "1,2,3", "method": "full,lora,qlora"}, "9 sides; at most 8"),
        (["gpt2", "1xl40s", "2xno-such-node"], {}, "unknown node type"),
    ],
)
def test_what_cannot_be_compared_says_what_would_be_right(arguments, given, words):
    with pytest.raises(planner.SpecError, match=words):
        planner.sides(arguments, given)
    assert MOST_SIDES == 8


def test_one_side_alone_is_no_comparison():
    with pytest.raises(planner.SpecError, match="1 side alone: name another"):
        planner.compare(planner.sides(["gpt2", "1xl40s"]))


def test_a_plan_answers_its_own_question(plans):
    with pytest.raises(planner.SpecError, match="leave out --network"):
        planner.sides([str(plans / "wide")], {"network": "tcp-10"})


def test_plan_files_are_told_from_models(plans, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama"}', encoding="utf-8")
    assert is_plan_file(str(plans / "wide"))
    assert is_plan_file(str(tmp_path / "missing.json"))
    assert not is_plan_file(str(config))
    assert not is_plan_file(str(tmp_path / "other" / "config.json"))
    assert not is_plan_file("llama-3.2-1b")


def test_changes_are_percent_up_to_twice_and_times_from_there():
    assert [percent(each) for each in (0.25, 0.999, 1.0, 1.034, 1.5, 2.0)] == [
        *("-75 %", "-0.1 %", "0 %", "+3.4 %", "+50 %", "x 2.00")
    ]
