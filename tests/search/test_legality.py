from dataclasses import replace

import numpy as np
import pytest

from planner.search.layers import dealt_evenly, end_layers
from planner.search.legality import legal, reasons
from planner.spec.model import Attention, LatentAttention, Layer, Mlp, Model, ModelKind
from planner.spec.plan import ContextKind, Offload, Plan, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload

MEGATRON = Stack("megatron-core", shardings=("none", "zero1"), context_kinds=("none", "ring"))


def reason_on(axis_words, plan, setting):
    return next((words for words in reasons(plan, setting) if axis_words in words), "")


def test_tp_8_of_28_heads_is_refused_with_the_divisors(models, problem):
    plan = Plan(tp=8, num_microbatches=1024)
    assert reason_on("attention heads", plan, problem(models.qwen2_7b)) == (
        "TP 8 does not divide 28 attention heads; possible: 1, 2, 4, 7, 14, 28 (with the other rules: 1, 2, 4)"
    )


def test_tp_7_of_28_heads_fails_on_4_key_value_heads_and_on_the_feed_forward_block(models, problem, nodes):
    words = " | ".join(reasons(Plan(tp=7, num_microbatches=1024), problem(models.qwen2_7b, nodes(1, gpus=7))))
    assert "TP 7 is neither divisor nor multiple of 4 key-value heads" in words
    assert "TP 7 does not divide the intermediate size 18944" in words


def test_key_value_heads_are_copied_where_tp_is_a_multiple_of_them(models, problem, nodes):
    assert reasons(Plan(tp=16, num_microbatches=1024), problem(models.llama_70b, nodes(2))) == []


def test_latent_attention_is_divided_by_query_heads_alone(problem, nodes):
    latent = Attention(128, 1, 192, LatentAttention(1536, 512, 128, 64, 128))
    model = Model("mla", 7168, 129280, (Layer(latent, Mlp(18432)),) * 4)
    assert reasons(Plan(tp=8, num_microbatches=1024), problem(model)) == []


def test_a_published_405b_plan_is_legal(models, problem, nodes):
    plan = Plan(
        tp=8, pp=16, dp_shard=128, sharding=Sharding.ZERO3_KEEP, schedule=Schedule.INTERLEAVED, virtual_stages=4,
        num_microbatches=16, first_stage_layers=7, last_stage_layers=7, sequence_parallel=1,
    )  # fmt: skip
    assert reasons(plan, problem(models.llama_405b, nodes(2048), Workload(2048, 8192))) == []


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(pp=8, num_microbatches=1024), "schedule none does not go with PP 8"),
        (Plan(tp=8, num_microbatches=512), "micro-batch 1 x micro-batches 512 x DP 1 is not the global batch of 1024"),
        (Plan(dp_replicate=3), "DP 3 does not divide 8 GPUs; possible: 1, 2, 4, 8"),
        (Plan(cp=3), "CP 3 does not divide 4096 tokens"),
        (Plan(ep=2), "EP 2: a dense model has no experts; possible: 1"),
        (Plan(expert_tp=8, tp=8), "expert TP 8: a dense model has no experts; possible: 1"),
        (Plan(sharding=Sharding.ZERO3), "sharding zero3 needs dp_shard 1 x CP 1 above 1; possible: none"),
        (Plan(sequence_parallel=1), "sequence parallelism needs TP 1 above 1"),
        (Plan(async_tp=1), "async TP needs sequence parallelism"),
        (Plan(virtual_stages=2), "schedule none does not go with virtual stages 2; possible: 1"),
        (Plan(pp=4, first_stage_layers=31, last_stage_layers=0), "leave too few for PP 4"),
    ],
)
def test_a_broken_rule_is_named_with_its_figures(plan, words, models, problem):
    assert words in " | ".join(reasons(plan, problem(models.llama_8b)))


def test_more_stages_than_layers_are_refused(models, problem, nodes):
    words = reason_on("stages", Plan(pp=64, schedule=Schedule.ONE_F_ONE_B), problem(models.llama_8b, nodes(8)))
    assert words == (
        "PP 64 makes more stages than the 32 layers; possible: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
        "... 32 (with the other rules: 1, 2, 4, 8, 16, 32)"
    )


def test_ring_and_gather_divide_the_sequence_into_two_parts_a_rank_only_under_a_causal_mask(models, problem, nodes):
    cluster, job = nodes(1, gpus=6), Workload(1024, 4098)
    ring = Plan(cp=6, context_kind=ContextKind.RING, sharding=Sharding.ZERO3, num_microbatches=1024)
    gather = replace(ring, context_kind=ContextKind.ALL_GATHER)
    encoder = replace(models.llama_8b, kind=ModelKind.ENCODER)
    for plan in (ring, gather):
        words = reasons(plan, problem(models.llama_8b, cluster, job))[0]
        assert "CP 6 needs two parts a rank of 4098 tokens" in words
        assert reasons(plan, problem(encoder, cluster, job)) == []


def test_ulysses_needs_a_key_value_head_for_each_rank_of_cp_times_tp(models, problem):
    plans = Plan(
        tp=np.array([1, 2, 2]), cp=np.array([8, 4, 2]), dp_replicate=np.array([1, 1, 2]), num_microbatches=512,
        micro_batch_size=np.array([2, 2, 1]), context_kind=ContextKind.ULYSSES,
    )  # fmt: skip
    assert legal(plans, problem(models.llama_8b)).tolist() == [True, True, True]
    assert legal(plans, problem(models.qwen2_7b)).tolist() == [False, False, True]


def test_ring_attention_needs_a_fused_kernel(models, problem):
    plan = Plan(cp=8, context_kind=ContextKind.RING, num_microbatches=1024)
    setting = problem(models.llama_8b, workload=Workload(1024, 4096, attention="math"))
    assert reasons(plan, setting) == [
        "ring attention needs a fused kernel, not math; possible: none, ulysses, all_gather",
    ]


def test_experts_lie_inside_the_ranks_that_share_a_stage(models, problem, nodes):
    whole = Plan(pp=4, dp_shard=4, ep=8, schedule=Schedule.ONE_F_ONE_B, num_microbatches=256)
    setting = problem(models.mixtral, nodes(2))
    assert reason_on("EP 8", whole, setting).startswith("EP 8 x expert TP 1 does not divide dp_shard 4 x CP 1 x TP 1")
    assert reasons(replace(whole, dp_shard=8, pp=2, num_microbatches=128), setting) == []


def test_experts_under_tensor_parallelism_need_sequence_parallelism(models, problem):
    plan = Plan(tp=2, dp_shard=4, ep=8, num_microbatches=256)
    assert reasons(plan, problem(models.mixtral)) == [
        "EP 8, expert TP 1 with TP 2 need sequence parallelism; possible: 1"
    ]


def test_zero2_goes_neither_with_a_pipeline_nor_with_replicas_of_its_group(models, problem):
    plan = Plan(dp_shard=4, sharding=Sharding.ZERO2, num_microbatches=256)
    setting = problem(models.llama_8b)
    pipeline = replace(plan, pp=2, schedule=Schedule.ONE_F_ONE_B)
    assert reason_on("ZeRO-2", pipeline, setting).startswith("ZeRO-2 cannot keep gradients over PP 2's micro-batches")
    assert "ZeRO-2 has no hybrid form" in reason_on("ZeRO-2", replace(plan, dp_replicate=2), setting)


def test_interleaving_needs_rounds_of_pp_micro_batches(models, problem, nodes):
    plan = Plan(pp=8, num_microbatches=12, dp_replicate=1, schedule=Schedule.INTERLEAVED, virtual_stages=2)
    words = reason_on("interleave", plan, problem(models.llama_8b, nodes(1), Workload(12, 4096)))
    assert words.startswith("micro-batches 12 to interleave: no multiple of PP 8; possible: 8")


def test_a_stack_is_not_asked_for_what_it_cannot_express(models, problem):
    plan = Plan(dp_shard=8, sharding=Sharding.ZERO3, num_microbatches=128)
    assert reasons(plan, problem(models.llama_8b, stack=MEGATRON)) == [
        "megatron-core has no sharding zero3; possible: none, zero1"
    ]


def test_qlora_is_sharded_but_not_cut(models, problem):
    setting = problem(models.llama_8b, workload=Workload(1024, 4096, method="qlora"))
    assert reasons(Plan(dp_shard=8, sharding=Sharding.ZERO3, num_microbatches=128), setting) == []
    assert reasons(Plan(tp=8, num_microbatches=1024), setting) == ["TP 8 would cut QLoRA's 4-bit matrices; possible: 1"]


def test_offloaded_states_have_one_owner(models, problem):
    ddp = Plan(dp_replicate=8, offload=Offload.OPTIMIZER, num_microbatches=128)
    setting = problem(models.llama_8b)
    assert reasons(ddp, setting) == ["offload optimizer needs sharded states, not sharding none; possible: none"]
    assert reasons(replace(ddp, dp_replicate=1, dp_shard=8, sharding=Sharding.ZERO1), setting) == []
    assert reasons(replace(ddp, dp_replicate=1, dp_shard=8, sharding=Sharding.ZERO1, offload=Offload.ALL), setting)
    assert reasons(Plan(dp_replicate=1, tp=8, offload=Offload.ALL, num_microbatches=1024), setting) == []


def test_an_encoder_decoder_model_is_not_divided_into_stages(models, problem):
    model = replace(models.llama_8b, kind=ModelKind.ENCODER_DECODER)
    plan = Plan(pp=8, schedule=Schedule.ONE_F_ONE_B, num_microbatches=1024)
    assert "an encoder-decoder model is not divided into stages" in reasons(plan, problem(model))[0]


def test_layers_left_over_go_between_the_ends():
    pp = np.arange(1, 33)
    for layers in (32, 61, 80, 126):
        first, last = end_layers(layers, pp)
        rest = layers - first - last
        uneven = layers % pp > 0
        assert (first[uneven] + last[uneven] <= 2 * np.ceil(layers / pp[uneven])).all()
        assert (last[uneven] == layers // pp[uneven]).all()
        longest = np.ceil(rest[uneven & (pp > 2)] / (pp[uneven & (pp > 2)] - 2))
        assert (longest == np.ceil(layers / pp[uneven & (pp > 2)])).all()


def test_405b_is_interleaved_with_one_layer_less_at_each_end():
    assert dealt_evenly(126, 16, np.array([1, 2, 3, 4, 8])).tolist() == [True, True, False, True, False]
    assert [int(part) for part in end_layers(126, np.int64(16))] == [7, 7]
