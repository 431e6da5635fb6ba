"""The largest that fits: every point is what `recommend` says, and nothing larger on the ladder fits."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

import planner
from planner.answer.largest import KINDS, largest
from planner.answer.model_size import scaled_model
from planner.quantities import divisors


def recommended(model, cluster, **options):
    try:
        return planner.recommend(model, cluster, planner.Choices(**options), top=1).best
    except planner.NoFeasiblePlan:
        return None
    except planner.SpecError as error:
        assert "no legal plan has this micro_batch_size" in str(error)  # noqa: PT017
        return None


def asked(solve, value, model, options):
    """The question of `recommend` with one value."""
    if solve == "seq-len":
        return model, options | {"seq_len": value}
    if solve == "global-batch":
        return model, options | {"global_batch_size": value}
    if solve == "micro-batch":
        return model, options | {"fix": f"micro_batch_size={value}"}
    base = planner.model(model)
    factors = [Fraction(part, 8) * Fraction(2) ** power for power in range(-3, 5) for part in range(8, 16)]
    sizes = [each for each in (scaled_model(base, factor) for factor in factors) if each]
    return next(each for each in sizes if each.parameters == value), options


@pytest.mark.parametrize("solve", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_every_point_is_what_recommend_says_of_that_value(solve, seed):
    draw = random.Random(f"{seed}{solve}")
    model = draw.choice(["llama-3.2-1b", "llama-3.1-8b", "qwen2.5-7b", "mixtral-8x7b", "gpt2"])
    cluster = draw.choice(["1xdgx-h100", "2xrtx-4090", "3xdgx-a100-40gb", "4xl40s"])
    options = {"method": draw.choice([None, "qlora"]), "optimizer": draw.choice([None, "adamw-8bit"])}
    try:
        found = largest(model, cluster, planner.Choices(**options), solve=solve)
    except planner.NoFeasiblePlan:
        smallest = {"seq-len": 512, "micro-batch": 1, "global-batch": 1}[solve]
        assert recommended(model, cluster, **asked(solve, smallest, model, options)[1]) is None
        return
    points = draw.sample(found.points, min(len(found.points), 4))
    for point in {*points, *found.shown[-2:]}:
        this, change = asked(solve, point.value, model, options)
        best = recommended(this, cluster, **change)
        assert (best is None) == (point.ranked is None), point.value
        if best:
            assert point.ranked.plan.as_dict() == best.plan.as_dict()
            assert point.ranked.step_time == best.step_time


def test_no_larger_sequence_of_the_ladder_fits_and_no_tried_one_is_faster():
    found = largest("llama-3.2-1b", "2xrtx-3090", solve="seq-len")
    top = found.value_of(found.largest)
    power = 2 ** (top.bit_length() - 1)
    larger = [power * part // 8 for part in range(8, 17) if power * part // 8 > top]
    assert larger
    for value in larger:
        assert recommended("llama-3.2-1b", "2xrtx-3090", seq_len=value) is None
    speeds = {point.value: float(point.ranked.speed.tokens_per_s) for point in found.fitting}
    assert max(speeds, key=speeds.get) == found.value_of(found.fastest) < top


def test_micro_batches_are_the_divisors_of_the_batch():
    found = largest("gpt2", "1xh100-sxm", planner.Choices(global_batch_size=24), solve="micro-batch")
    assert [point.value for point in found.points] == divisors(24).tolist()


def test_a_fix_is_kept_beside_the_micro_batch():
    choices = planner.Choices(global_batch_size=8, fix="tp=2,recompute=full")
    found = largest("llama-3.2-1b", "1xdgx-h100", choices, solve="micro-batch")
    plans = {(int(p.ranked.plan.tp), int(p.ranked.plan.recompute), p.value) for p in found.fitting}
    assert plans == {(2, 2, size) for size in (1, 2, 4, 8)}


def test_a_batch_of_which_all_sizes_fit_is_said_to_be_the_largest_that_is_tried():
    found = largest("gpt2", "1xdgx-h100", solve="global-batch")
    assert "the largest that is tried" in found.sentence
    assert found.value_of(found.largest) == 65536
    assert found.shown == found.points


def test_a_model_of_another_size_keeps_its_shape():
    base = planner.model("llama-3.1-8b")
    half = scaled_model(base, Fraction(1, 2))
    (layer, number), *others = half.layer_kinds
    block = layer.attention
    assert (number, others) == (16, [])
    assert (half.hidden_size, block.num_attention_heads, block.num_key_value_heads, block.head_dim) == (
        2048,
        16,
        4,
        128,
    )
    assert (layer.mlp.intermediate_size, half.vocab_size) == (7168, base.vocab_size)
    embeddings = 2 * base.vocab_size * base.hidden_size
    assert half.parameters - embeddings / 2 == pytest.approx((base.parameters - embeddings) / 8, rel=1e-3)
    assert scaled_model(base, Fraction(1)) == base
    assert scaled_model(base, Fraction(17, 16)) is None


def test_a_single_key_value_head_serves_a_model_of_any_size():
    base = planner.model("llama-3.1-8b")
    (layer, number), *_ = base.layer_kinds
    one = replace(layer, attention=replace(layer.attention, num_key_value_heads=1))
    half = scaled_model(replace(base, layers=(one,) * number), Fraction(1, 2))
    assert half.layers[0].attention.num_key_value_heads == 1


def test_layers_of_several_kinds_keep_their_order_and_experts_their_number():
    base = planner.model("deepseek-v3")
    double = scaled_model(base, Fraction(2))
    dense = [layer.experts is None for layer in base.layers]
    assert [layer.experts is None for layer in double.layers] == [each for each in dense for _ in (0, 1)]
    assert double.layers[-1].experts.num_experts == base.layers[-1].experts.num_experts
    assert double.layers[0].attention.latent == base.layers[0].attention.latent


@pytest.mark.parametrize(
    ("solve", "options", "words"),
    [
        ("seq-len", {"seq_len": 4096}, "--seq-len: is what --solve seq-len looks for"),
        ("global-batch", {"global_batch_size": 8}, "--global-batch-size: is what --solve global-batch looks for"),
        ("micro-batch", {"fix": "mbs=2"}, "--fix micro_batch_size: is what --solve micro-batch looks for"),
        ("speed", {}, "--solve: unknown quantity 'speed'"),
    ],
)
def test_what_is_solved_for_is_not_given(solve, options, words):
    with pytest.raises(planner.SpecError, match=words):
        largest("gpt2", "1xh100-sxm", planner.Choices(**options), solve=solve)
