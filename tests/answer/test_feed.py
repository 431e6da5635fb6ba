from dataclasses import replace

import pytest

from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate
from planner.answer.feed import FeedChoices, feed
from planner.answer.question import ask
from planner.errors import SpecError


def asked(model="llama-3.1-8b", cluster="2xdgx-h100", **choices):
    return ask(model, cluster, Choices(**choices))


def small(stack="hf"):
    """A model so small, and a batch so small, that the host cannot launch its kernels as fast as they run."""
    return asked("gpt2", "1xh100-sxm", global_batch_size=1, stack=stack)


def test_storage_gives_the_tokens_of_the_step_in_four_bytes_each():
    found = feed(asked())
    assert found.stored == pytest.approx(4 * found.ranked.speed.tokens_per_s)
    assert feed(asked("gpt2")).sample_bytes == 2 * 1024


def test_ranks_of_one_replica_read_the_same_samples():
    found = feed(asked(fix="tp=4,pp=2,cp=1"))
    assert found.copies == 8
    assert found.as_dict()["copies"] == 8


def test_workers_by_hand():
    """A worker of half the node's rate: two of them, and eight where each of four tensor-parallel ranks has its own."""
    rate = feed(asked(fix="tp=1,pp=1,cp=1")).samples_per_s / 2
    alone = feed(asked(fix="tp=1,pp=1,cp=1"), FeedChoices(samples_per_s_per_worker=0.5 * rate * (1 + 1e-9)))
    assert alone.workers == 2
    shared = feed(asked(fix="tp=4,pp=1,cp=1"))
    again = feed(
        asked(fix="tp=4,pp=1,cp=1"), FeedChoices(samples_per_s_per_worker=shared.samples_per_s / 4 * (1 + 1e-9))
    )
    assert again.workers == 8


def test_the_verdict_follows_the_storage():
    question = asked(fix="tp=4,pp=1,cp=1")
    need = feed(question).stored / 1e9
    assert "keeps up;" in feed(question, FeedChoices(storage_gb_per_s=5 * need)).sentence
    assert "keeps up unless 4 GPUs" in feed(question, FeedChoices(storage_gb_per_s=2 * need)).sentence
    short = feed(question, FeedChoices(storage_gb_per_s=0.5 * need))
    assert not short.keeps_up
    assert "does not keep up" in short.sentence


def test_images_are_read_as_files_and_need_a_rate_of_workers():
    found = feed(asked("vit-base", "8xrtx-4090"))
    assert found.sample_bytes == pytest.approx(107_714, abs=1)
    assert found.workers is None
    assert feed(asked("vit-base", "8xrtx-4090"), FeedChoices(samples_per_s_per_worker=100)).workers > 0


def test_a_large_step_does_not_wait_for_launches():
    found = feed(asked())
    assert found.launching[0].host == 0
    assert "does not wait for launches" in found.sentence


def test_launches_of_a_small_eager_model_cost_most_of_its_step_and_graphs_save_it():
    planned, *_ = by_name = feed(small()).launching
    times = {each.name: each.step_time for each in by_name}
    assert planned.host > 0.5 * planned.step_time
    assert times["torch.compile and CUDA graphs"] < times["CUDA graphs"] < times["torch.compile"] < times["as planned"]
    assert times["CUDA graphs"] == pytest.approx(planned.step_time - planned.host)


def test_what_compile_gains_is_what_the_plan_takes_compiled():
    found = feed(small())
    question = small()
    fused = replace(question, stack=replace(question.stack, kernels_per_layer=20.0))
    expected = evaluate(fused, replace(found.ranked.plan, compiled=1)).step_time
    assert {each.name: each.step_time for each in found.launching}["torch.compile"] == expected


def test_a_compiled_plan_is_not_compiled_again():
    assert [each.name for each in feed(small("generic")).launching] == ["as planned", "CUDA graphs"]


@pytest.mark.parametrize(("optimizer", "factor"), [("adamw", 2.0), ("sgd", 4.0), ("sgd-momentum", 4.0), ("lion", 2.0)])
def test_four_times_the_batch_doubles_adams_rate_and_quadruples_sgds(optimizer, factor):
    advice = feed(
        asked(global_batch_size=256, optimizer=optimizer), FeedChoices(from_batch="64", learning_rate=1e-4)
    ).batch
    assert advice.factor == 4
    assert advice.rate_factor == factor
    assert advice.learning_rate == pytest.approx(factor * 1e-4)


def test_the_fitted_batch_needs_the_tokens_of_the_run():
    assert feed(asked()).batch.fitted_tokens is None
    advice = feed(asked(tokens="2T")).batch
    layers = 8_030_261_248 - 2 * 128_256 * 4096
    assert advice.fitted_tokens == pytest.approx(0.2920 * (6 * layers * 2e12) ** 0.3271)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (FeedChoices(storage_gb_per_s=0), "--storage-gb-per-s: must be positive"),
        (FeedChoices(samples_per_s_per_worker=-1), "--samples-per-s-per-worker: must be positive"),
        (FeedChoices(learning_rate=1e-4), "needs --from-batch"),
        (FeedChoices(from_batch="0"), "--from-batch: must be a whole number of sequences, at least 1"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(chosen, message):
    with pytest.raises(SpecError, match=message):
        feed(asked(), chosen)
