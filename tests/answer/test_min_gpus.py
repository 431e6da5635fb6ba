"""The fewest GPUs: each answer is what `recommend` says of that count, and no smaller count would do."""

import random

import pytest

import planner
from planner.answer.feasible import room
from planner.answer.min_gpus import ALONE, min_gpus
from planner.answer.question import ask
from planner.answer.recommend import best_plan

PARTS = ("h100-sxm", "rtx-3090", "rtx-2080-ti", "v100-sxm2-16gb")


def first_that(possible, name, *, node_size=8, most=20):
    """The smallest count that a plain loop over `recommend` finds, with its best plan."""
    for count in (*(each for each in ALONE if each < node_size), *range(node_size, most * node_size + 1, node_size)):
        try:
            best = planner.recommend(possible.model, f"{count}x{name}", possible.choices, top=1).best
        except planner.PlannerError:
            continue
        if possible(best):
            return count, best
    return None, None


class Possible:
    """What is asked of a plan."""

    def __init__(self, model, choices, days=None):
        self.model, self.choices, self.days = model, choices, days

    def __call__(self, best):
        return self.days is None or best.run.days <= self.days


def same(one, other):
    return one.plan.as_dict() == other.plan.as_dict() and one.step_time == other.step_time and one.peak == other.peak


def questions():
    """Seeded random questions, small enough to try every count."""
    draw = random.Random(8)
    for number in range(14):
        model = draw.choice(["llama-3.2-1b", "llama-3.1-8b", "qwen2.5-7b", "gpt2", "mixtral-8x7b"])
        options = {
            "method": draw.choice([None, "lora", "qlora"]) if number % 2 else None,
            "seq_len": draw.choice([None, 2048, 16384]) if model != "gpt2" else None,
            "global_batch_size": draw.choice([None, 7, 24, 512]),
            "optimizer": draw.choice([None, "adamw-8bit", "sgd"]),
            "offload": draw.choice([None, None, "optimizer"]),
            "network": draw.choice([None, "tcp-10", "roce-100"]),
        }
        yield pytest.param(
            model, draw.choice(["h100-sxm", "rtx-3090", "rtx-2080-ti", "gb200"]), options, id=str(number)
        )


@pytest.mark.parametrize(("model", "part", "options"), list(questions()))
def test_no_smaller_count_fits_and_the_plan_is_what_recommend_says(model, part, options):
    choices = planner.Choices(**options)
    size = planner.node(planner.catalogue.hardware.standard_node(part)).gpus_per_node
    count, best = first_that(Possible(model, choices), part, node_size=size)
    try:
        found = min_gpus(model, choices, accelerators=[part]).counts[0].fewest
    except planner.PlannerError:
        assert count is None
        return
    if count is None:
        assert found.question.cluster.world_size > 20 * size
    else:
        assert found.question.cluster.world_size == count
        assert same(found, best)


@pytest.mark.parametrize(
    ("model", "part", "tokens", "days"),
    [
        ("llama-3.2-1b", "h100-sxm", "100B", 8),
        ("llama-3.2-1b", "rtx-4090", "10B", 10),
        ("llama-3.2-1b", "h100-sxm", "100B", 1.1),
        ("llama-3.1-8b", "a100-sxm-80gb", "100B", 21),
        ("gpt2", "l40s", "300B", 3),
    ],
)
def test_no_smaller_count_finishes_in_time(model, part, tokens, days):
    choices = planner.Choices(tokens=tokens)
    count, best = first_that(Possible(model, choices, days), part)
    found = min_gpus(model, choices, accelerators=[part], days=days).counts[0].in_time
    assert found.question.cluster.world_size == count
    assert same(found, best)
    assert found.run.days <= days


@pytest.mark.parametrize("part", ["h100-sxm", "rtx-4090"])
def test_changes_are_those_with_which_the_next_smaller_count_fits(part):
    count = min_gpus("llama-3.1-8b", accelerators=[part]).counts[0]
    assert count.changes
    fit = {each.options for each in count.changes}
    options = {
        "--offload optimizer": {"offload": "optimizer"},
        "--optimizer adamw-8bit": {"optimizer": "adamw-8bit"},
        "--state 16bit": {"state": "16bit"},
        "--seq-len 2048": {"seq_len": 2048},
        "--method lora": {"method": "lora"},
    }
    for text, change in options.items():
        # The usual batch is one of tokens: at half the sequence it would be twice the sequences.
        batch = count.fewest.question.workload.global_batch_size if "seq_len" in change else None
        asked = ask("llama-3.1-8b", f"{count.fewer}x{part}", planner.Choices(**change, global_batch_size=batch))
        assert room(asked).fits == (text in fit), text
        if text in fit:
            assert best_plan(asked).verdict.name != "DOES_NOT_FIT"


def test_the_plans_that_need_least_memory_show_whether_any_fits():
    for part in PARTS:
        for count in (1, 4, 8):
            text = f"{count}x{part}"
            for model in ("llama-3.1-8b", "gpt2", *(["mixtral-8x7b"] if count == 8 else [])):
                try:
                    asked = ask(model, text, planner.Choices(stack="megatron-core" if count == 4 else None))
                    expected = best_plan(asked).rank == 1
                except planner.NoFeasiblePlan:
                    expected = False
                except planner.SpecError:
                    continue
                assert room(asked).fits == expected, (model, text)


def test_accelerators_without_a_price_come_after_those_with_one():
    found = min_gpus("llama-3.2-1b", accelerators=["rtx-a6000", "h100-sxm", "l40s"])
    assert [each.accelerator for each in found.counts] == ["l40s", "h100-sxm", "rtx-a6000"]
    assert found.sentence.startswith("Full training of llama-3.2-1b fits on 1 l40s, 0.6 to 2.23 USD per hour")


def test_one_accelerator_that_cannot_is_a_row_and_not_an_error():
    found = min_gpus("llama-3.2-1b", planner.Choices(precision="fp8"), accelerators=["a100-sxm-80gb", "h100-sxm"])
    assert [each.accelerator for each in found.counts] == ["h100-sxm", "a100-sxm-80gb"]
    assert "no fp8 matrix peak" in found.counts[1].reason
    assert found.counts[1].fewest is None


def test_a_run_that_no_count_finishes_in_time_names_the_fastest_that_was_tried():
    with pytest.raises(planner.NoFeasiblePlan, match=r"not within 0\.001 days on up to 16,384.*the fastest tried"):
        min_gpus("gpt2", planner.Choices(tokens="10T"), accelerators=["rtx-3090"], days=0.001)
