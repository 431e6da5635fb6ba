"""Plans with their layers dealt anew: against every plan of the kind, within memory, as simulated and as emitted."""

import re
from dataclasses import replace

import numpy as np
import pytest

from planner.answer.balance import balanced
from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate
from planner.answer.plan_files import plan_file_of
from planner.answer.question import ask
from planner.answer.recommend import recommend
from planner.catalogue.models import model as catalogue_model
from planner.emit.megatron import arguments_text
from planner.errors import NoFeasiblePlan
from planner.search.fitting import memory_limit
from planner.search.layers import end_layers

PIPELINES = {
    "heavy head": ("llama-3.1-8b", "2xdgx-h100", "pp=4,schedule=one_f_one_b"),
    "two stages": ("gemma-2-9b", "4xdgx-h100", "pp=2,schedule=one_f_one_b"),
    "light head": ("gpt-3-175b", "32xdgx-a100", "pp=8,schedule=one_f_one_b"),
    "dense layers first": ("deepseek-v2-lite", "4xdgx-h100", "pp=4,schedule=one_f_one_b"),
    "windows in turn": ("gpt-oss-120b", "8xdgx-h100", "pp=4,schedule=gpipe"),
    "interleaved": ("llama-3.1-8b", "2xdgx-h100", "pp=4,schedule=interleaved,virtual_stages=2"),
    "zero bubble": ("llama-3.1-8b", "2xdgx-h100", "pp=4,schedule=zb_h1"),
    "full memory": ("gemma-3-27b", "8xdgx-h100", "pp=16,schedule=one_f_one_b,num_microbatches=32"),
    "one stage": ("llama-3.1-8b", "1xdgx-h100", "pp=1"),
}


@pytest.fixture(scope="module")
def balance():
    """The balance of the best of a pipeline's plans whose layers are dealt evenly, each asked once."""
    known = {}

    def found(name):
        if name not in known:
            model, cluster, fix = PIPELINES[name]
            pp = int(re.search(r"pp=(\d+)", fix)[1])
            first, last = (int(end) for end in end_layers(catalogue_model(model).num_hidden_layers, np.int64(pp)))
            even = f"{fix},first_stage_layers={first},last_stage_layers={last}"
            best = recommend(model, cluster, Choices(fix=even), top=1).best
            known[name] = balanced(best.question, best.plan)
        return known[name]

    return found


@pytest.mark.parametrize("name", PIPELINES)
def test_a_balanced_plan_holds_all_layers_within_memory_and_is_never_slower(balance, name):
    found = balance(name)
    question = found.before.question
    assert sum(found.split_after.sizes) == question.model.num_hidden_layers
    assert max(found.split_after.peaks) <= memory_limit(question.cluster)
    assert found.after.step_time <= found.before.step_time
    assert found.reason


@pytest.mark.parametrize("name", ["heavy head", "two stages", "dense layers first", "interleaved", "zero bubble"])
def test_no_other_layers_on_the_first_and_last_rank_are_faster(balance, name):
    """All that hold up to four layers more or less than an even share."""
    found = balance(name)
    question, plan = found.before.question, found.plan
    share = question.model.num_hidden_layers // int(plan.pp)
    ends = range(share - 4, share + 5)
    every = [
        evaluate(
            question, replace(plan, first_stage_layers=question.model.num_hidden_layers - last, last_stage_layers=last)
        )
        if plan.pp == 2
        else evaluate(question, replace(plan, first_stage_layers=first, last_stage_layers=last))
        for last in ends
        for first in (ends if plan.pp > 2 else (0,))
    ]
    fitting = [each.step_time for each in every if each.peak <= memory_limit(question.cluster)]
    assert found.after.step_time <= min(fitting) * (1 + 1e-9)


def test_the_rank_with_a_heavy_head_gets_fewer_layers(balance):
    found = balance("heavy head")
    assert found.split_before.sizes == (8, 8, 8, 8)
    assert found.split_after.sizes[-1] < 8
    assert found.reason.startswith("the head takes as long as 2.")
    assert found.after.step_time < 0.95 * found.before.step_time


def test_the_simulation_agrees_on_what_is_gained(balance):
    found = balance("heavy head")
    before, after = found.simulated
    assert after / before == pytest.approx(found.after.step_time / found.before.step_time, abs=0.02)


def test_equal_layers_and_a_light_head_stay_as_they_are(balance):
    found = balance("light head")
    assert found.plan is found.before.plan
    assert "no other layers" in found.reason


def test_peaks_by_rank_are_those_of_the_estimate(balance):
    found = balance("heavy head")
    assert max(found.split_before.peaks) == pytest.approx(found.before.peak)
    assert max(found.split_after.peaks) == pytest.approx(found.after.peak)


def test_where_memory_is_full_a_better_split_that_no_plan_can_say_is_named(balance):
    found = balance("full memory")
    assert found.any_split.seconds < 0.99 * found.split_after.seconds
    assert f"{found.any_split.words} would take" in found.reason


def test_several_chunks_a_rank_have_no_free_split(balance):
    assert balance("interleaved").any_split is None


def test_a_split_that_does_not_fit_is_replaced_by_one_that_does(balance):
    found = balance("full memory")
    question = found.before.question
    heavy = replace(found.plan, first_stage_layers=12)
    again = balanced(question, heavy)
    assert max(again.split_before.peaks) > memory_limit(question.cluster) >= max(again.split_after.peaks)
    assert "do not fit (rank 0 needs" in again.reason


def test_where_no_split_fits_that_is_an_error(balance):
    plan = balance("light head").plan
    question = ask("gpt-3-175b", "32xdgx-a100-40gb", Choices(seq_len=2048))
    with pytest.raises(NoFeasiblePlan, match="no split of 96 layers fits on 8 ranks"):
        balanced(question, replace(plan, recompute=0, micro_batch_size=8))


def test_a_balanced_plan_is_emitted_with_its_layout():
    asked = Choices(stack="megatron-core", fix="pp=4,schedule=1f1b")
    best = recommend("llama-3.1-8b", "2xdgx-h100", asked, top=1).best
    found = balanced(best.question, best.plan)
    layout = "|".join(f"t*{size}" for size in found.split_after.sizes)
    assert f"--pipeline-model-parallel-layout 'E{layout},L'" in arguments_text(plan_file_of(found.after))


def test_a_balance_has_json_names(balance):
    data = balance("heavy head").as_dict()
    assert list(data) == ["plan", "reason", "before", "after"]
    assert data["after"]["layers"][-1] == data["plan"]["last_stage_layers"]
    assert len(data["after"]["peak_memory_gib"]) == 4
