import re

import pytest

import planner
from planner.answer.choices import Choices
from planner.answer.recommend import recommend
from planner.errors import SpecError
from planner.explain.words import PlanFamily, family


@pytest.fixture(scope="module")
def answer():
    return recommend("llama-3.1-8b", "2xdgx-h100")


def test_best_is_the_first_and_ranks_count_from_one(answer):
    assert answer.best is answer.plans[0]
    assert [plan.rank for plan in answer.plans] == [1, 2, 3, 4, 5]
    assert not answer.best.tie


def test_the_first_plan_does_not_depend_on_how_few_are_shown():
    choices = Choices(seq_len=2048, global_batch_size=512)
    few, many = (recommend("llama-3.1-8b", "2xh100-sxm", choices, top=top) for top in (1, 5))
    assert few.best.same(many.best)
    assert few.best.step_time == many.best.step_time


def test_the_best_of_each_family_is_of_that_family_and_no_faster_than_the_best(answer):
    assert answer.families.keys() >= {PlanFamily.FSDP, PlanFamily.HSDP, PlanFamily.TENSOR, PlanFamily.PIPELINE}
    for kind, plan in answer.families.items():
        assert family(plan.plan) == kind
        assert plan.step_time >= answer.best.step_time


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        (PlanFamily.FSDP, "tp=1,pp=1,cp=1,sharding=fsdp"),
        (PlanFamily.HSDP, "tp=1,pp=1,cp=1,sharding=hsdp"),
        (PlanFamily.TENSOR, "tp=2..,pp=1"),
        (PlanFamily.PIPELINE, "pp=2.."),
    ],
    ids=lambda value: value.name if isinstance(value, PlanFamily) else "",
)
def test_the_best_of_a_family_is_what_a_search_of_that_family_finds(answer, kind, fix):
    alone = recommend("llama-3.1-8b", "2xdgx-h100", Choices(fix=fix), top=1)
    assert alone.best.step_time == pytest.approx(answer.families[kind].step_time)


def test_a_family_that_cannot_fit_says_how_much_it_needs(answer):
    assert PlanFamily.DDP not in answer.families
    assert answer.too_large[PlanFamily.DDP] > answer.best.usable


def test_the_front_falls_in_memory_as_it_rises_in_time(answer):
    times, peaks = ([getattr(plan, name) for plan in answer.front] for name in ("step_time", "peak"))
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)
    assert answer.front[0].same(answer.best)


def test_reasons_add_up_to_the_difference(answer):
    best, other = answer.plans[0], answer.families[PlanFamily.PIPELINE]
    mine, theirs = best.prediction()["time_breakdown_s"], other.prediction()["time_breakdown_s"]
    assert sum(theirs.values()) - sum(mine.values()) == pytest.approx(other.step_time - best.step_time)


def test_evaluating_the_best_plan_alone_gives_its_figures_again(answer):
    again = planner.evaluate(answer.question, answer.best.plan)
    assert again.step_time == pytest.approx(answer.best.step_time, rel=1e-12)
    assert again.peak == pytest.approx(answer.best.peak, rel=1e-12)


def test_plans_many_times_slower_are_told_in_times_not_percent():
    slow = recommend("llama-3.1-8b", "2xdgx-h100", Choices(network="tcp-1"))
    told = [reason for reason in slow.reasons if "times as long" in reason]
    assert told
    assert not any(re.search(r"\d{3}\.\d% more time", reason) for reason in slow.reasons)


def test_a_single_accelerator_is_not_counted_in_the_plural():
    assert "(1 GPU) with one GPU," in recommend("gpt2", "1xh100-sxm", top=1).sentence


def test_memory_as_objective_puts_the_smallest_first():
    lean = recommend("llama-3.1-8b", "2xdgx-h100", Choices(objective="memory"))
    assert all(lean.best.peak <= plan.peak for plan in lean.plans)
    assert "more" in lean.reasons[0]


def test_explanation_covers_every_second_and_byte(answer):
    data = planner.explanation(answer.best)
    assert sum(term["value_s"] for term in data["time"]) == pytest.approx(answer.best.step_time)
    assert sum(item["share"] for item in data["memory"]) == pytest.approx(1)
    spent = [term["formulas"][0] for term in data["time"] if term["value_s"]]
    assert all(formula["equation"] and formula["source"] for formula in spent)


def test_a_simpler_plan_that_ties_is_named():
    found = recommend("llama-3.1-8b", "2xdgx-h100")
    assert found.best.plan.pp > 1
    assert found.simpler.tie
    assert found.simpler.plan.pp == found.simpler.plan.tp == found.simpler.plan.cp == 1


def test_nothing_is_simpler_than_replicas():
    assert recommend("gpt2", "1xdgx-h100", Choices(fix="sharding=ddp")).simpler is None


def test_fewer_than_one_plan_cannot_be_asked_for():
    with pytest.raises(SpecError, match="at least 1"):
        recommend("gpt2", "1xdgx-h100", top=0)
