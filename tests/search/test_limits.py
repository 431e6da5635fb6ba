from dataclasses import replace

import numpy as np
import pytest

from planner.catalogue.stacks import stack as named_stack
from planner.errors import NoFeasiblePlan, SpecError
from planner.search.enumerate import enumerate_plans
from planner.search.fix import parse_fix
from planner.search.legality import legal, reasons
from planner.spec.plan import ContextKind, GradientSync, Offload, Plan, RankOrder, Recompute, Schedule, Sharding
from planner.spec.stack import LIMITS, Stack, unsupported
from planner.spec.workload import Workload

FSDP = Plan(dp_shard=8, sharding=Sharding.ZERO3, num_microbatches=128)
PIPELINE = Plan(pp=8, schedule=Schedule.ONE_F_ONE_B, num_microbatches=1024)
FSDP_PIPELINE = replace(PIPELINE, pp=2, dp_shard=4, sharding=Sharding.ZERO3_KEEP, num_microbatches=256)


def limited(**limits):
    return Stack("small", **limits)


@pytest.mark.parametrize(
    ("limits", "plan", "words"),
    [
        ({"axes": ()}, Plan(tp=8, num_microbatches=1024), "small has no tensor parallelism; possible: 1"),
        ({"schedules": ("none",)}, PIPELINE, "small has no pipeline parallelism; possible: 1"),
        ({"context_kinds": ("none",)}, Plan(cp=8, context_kind=ContextKind.RING, num_microbatches=1024),
         "small has no context parallelism; possible: 1"),
        ({"replicated_shardings": ("none",)}, replace(FSDP, dp_shard=4, dp_replicate=2),
         "with dp_replicate 2 small has no sharding but none; possible: none"),
        ({"pipeline_shardings": ("none", "zero3_keep")}, replace(FSDP_PIPELINE, sharding=Sharding.ZERO3),
         "with PP 2 small has no sharding but none or zero3_keep; possible: none, zero3_keep"),
        ({"offloads": ()}, replace(FSDP, offload=Offload.OPTIMIZER), "small has no offload optimizer; possible: none"),
        ({"offload_shardings": ("zero2",)}, replace(FSDP, offload=Offload.ALL),
         "with offload all small has no sharding but zero2; possible: none"),
        ({"gradient_syncs": ("usual",)}, replace(FSDP, gradient_sync=GradientSync.ONCE),
         "small has no gradient sync once; possible: usual"),
        ({"pipeline_syncs": ("usual", "once")}, replace(FSDP_PIPELINE, gradient_sync=GradientSync.EVERY),
         "with PP 2 small has no gradient sync but usual or once; possible: usual, once"),
        ({"recomputations": ("full",)}, replace(FSDP, recompute=Recompute.SELECTIVE),
         "small has no recompute selective; possible: none, full"),
        ({"rank_orders": ("tp_cp_dp_pp",)}, replace(FSDP, rank_order=RankOrder.DP_TP_CP_PP),
         "small has no rank order dp_tp_cp_pp; possible: tp_cp_dp_pp"),
        ({"tensor_shardings": ("zero3",)}, Plan(tp=2, dp_replicate=4, num_microbatches=256),
         "with TP 2 small has no sharding but zero3"),
        ({"unsharded_groups": False}, Plan(cp=8, context_kind=ContextKind.RING, num_microbatches=1024),
         "small shards where dp_shard 1 x CP 8 is above 1; possible: zero1, zero2, zero3, zero3_keep"),
        ({"replica_syncs": ("every",)}, Plan(dp_replicate=8, num_microbatches=128),
         "for plain replicas small has no gradient sync but every; possible: every"),
        ({"short_pipelines": False}, replace(PIPELINE, micro_batch_size=256, num_microbatches=4),
         "1F1B of small needs a micro-batch for each stage: micro-batches 4 with PP 8; possible: 8, 9,"),
        ({"async_tp": False}, Plan(tp=8, sequence_parallel=1, async_tp=1, num_microbatches=1024),
         "small has no async TP; possible: 0"),
        ({"gathered_chunks": 3}, replace(FSDP_PIPELINE, schedule=Schedule.INTERLEAVED, virtual_stages=4),
         "sharding zero3_keep: small keeps 3 chunks of a rank gathered, not virtual stages 4; possible: 1, 2, 3"),
    ],
)  # fmt: skip
def test_what_a_stack_lacks_is_said_in_words_with_what_it_has(limits, plan, words, models, problem):
    assert reasons(plan, problem(models.llama_8b)) == []
    said = reasons(plan, problem(models.llama_8b, stack=limited(**limits)))
    assert said[0].startswith(words)


def test_a_stack_without_experts_parallelism_keeps_them_whole_and_together(models, problem):
    dealt = Plan(dp_shard=8, ep=8, sharding=Sharding.ZERO3, num_microbatches=128)
    divided = Plan(tp=8, expert_tp=8, num_microbatches=1024)
    setting = problem(models.mixtral, stack=limited(axes=("tp",)))
    assert reasons(dealt, setting) == ["small has no expert parallelism; possible: 1"]
    assert reasons(divided, setting) == ["small does not divide single experts; possible: 1"]


@pytest.mark.parametrize(
    ("degrees", "held"),
    [
        ({"tp": 2, "ep": 1, "expert_tp": 2, "dp_shard": 4}, True),
        ({"tp": 2, "ep": 2, "expert_tp": 1, "dp_shard": 4}, True),
        ({"tp": 2, "ep": 2, "expert_tp": 2, "dp_shard": 4}, False),
        ({"tp": 2, "ep": 1, "expert_tp": 1, "dp_shard": 4}, False),
        ({"tp": 1, "ep": 8, "expert_tp": 1, "dp_shard": 8}, True),
    ],
)
def test_experts_that_are_not_free_are_divided_by_tp_exactly_where_not_by_ep(degrees, held, models, problem):
    plan = Plan(**degrees, sharding=Sharding.ZERO3, sequence_parallel=int(degrees["tp"] > 1), num_microbatches=1)
    plan = replace(plan, num_microbatches=1024 // plan.dp)
    assert reasons(plan, problem(models.mixtral)) == []
    said = reasons(plan, problem(models.mixtral, stack=limited(free_experts=False)))
    assert (said == []) == held
    assert all(words.startswith("small divides experts by TP 2 where they are not dealt out") for words in said)


def test_experts_need_sequence_parallelism_where_the_stack_says_so(models, problem):
    plan = Plan(tp=8, expert_tp=8, num_microbatches=1024)
    stack = limited(unscattered_experts=False)
    assert reasons(plan, problem(models.mixtral)) == []
    assert reasons(plan, problem(models.mixtral, stack=stack)) == [
        "experts of small with TP 8 need sequence parallelism; possible: 1"
    ]
    assert reasons(replace(plan, sequence_parallel=1), problem(models.mixtral, stack=stack)) == []
    assert reasons(replace(plan, expert_tp=1), problem(models.llama_8b, stack=stack)) == []


def test_stages_inside_replicas_need_equal_groups_of_experts_where_orders_are_not_free(models, problem, nodes):
    inside = Plan(
        tp=2, pp=2, dp_shard=4, ep=2, sharding=Sharding.ZERO1, schedule=Schedule.ONE_F_ONE_B, sequence_parallel=1,
        num_microbatches=256, rank_order=RankOrder.TP_CP_PP_DP,
    )  # fmt: skip
    setting = problem(models.mixtral, nodes(2), stack=limited(free_orders=False))
    assert reasons(inside, setting) == []
    assert reasons(replace(inside, ep=4, rank_order=RankOrder.TP_CP_DP_PP), setting) == []
    assert reasons(replace(inside, ep=4), setting) == [
        "small has rank order tp_cp_pp_dp with PP 2 only where TP 2 x CP 1 is the experts' EP 4 x expert TP 1; "
        "possible: tp_cp_dp_pp"
    ]
    dense = problem(models.llama_8b, nodes(2), stack=limited(free_orders=False))
    assert reasons(replace(inside, ep=1), dense) == []
    found = enumerate_plans(models.mixtral, nodes(4), Workload(64, 4096), stack=limited(free_orders=False))
    assert legal(found.rows(slice(None)), problem(models.mixtral, nodes(4), Workload(64, 4096), setting.stack)).all()


def test_key_value_heads_are_not_copied_where_the_stack_does_not(models, problem, nodes):
    setting = problem(models.llama_70b, nodes(2), stack=limited(copied_kv_heads=False))
    words = reasons(Plan(tp=16, num_microbatches=1024), setting)
    assert words[0].startswith("small does not copy 8 key-value heads to TP 16; possible: 1, 2, 4, 8")


def test_a_tied_model_is_not_divided_into_stages_where_the_stack_does_not(models, problem):
    tied = replace(models.llama_8b, tie_word_embeddings=True)
    assert reasons(PIPELINE, problem(tied)) == []
    stack = limited(tied_pipelines=False)
    assert reasons(PIPELINE, problem(models.llama_8b, stack=stack)) == []
    words = "small has no pipeline parallelism where embedding and head are one matrix; possible: 1"
    assert reasons(PIPELINE, problem(tied, stack=stack)) == [words]


def test_replicas_are_searched_with_the_synchronisation_that_they_have(models, nodes, problem):
    question = (models.llama_8b, nodes(1), Workload(64, 4096))
    stack = limited(replica_syncs=("every",))
    plans = enumerate_plans(*question, stack=stack).rows(slice(None))
    replicas = (plans.sharding == Sharding.NONE) & (plans.dp * plans.cp > 1) & (plans.pp == 1)
    assert set(plans.gradient_sync[replicas]) == {GradientSync.EVERY}
    assert set(plans.gradient_sync[~replicas]) == {GradientSync.USUAL}
    assert legal(plans, problem(*question, stack=stack)).all()
    assert len(plans) == len(enumerate_plans(*question, stack=limited()))
    with pytest.raises(SpecError, match="no gradient sync but every"):
        enumerate_plans(*question, stack=stack, fix=parse_fix("sync=usual,sharding=ddp,pp=1,tp=1,cp=1,mbs=1"))


def test_one_micro_batch_is_a_gpipe_where_1f1b_needs_more(models, nodes):
    question = (models.llama_8b, nodes(1), Workload(1, 4096))
    schedules = {
        short: set(enumerate_plans(*question, stack=limited(short_pipelines=short)).plans.schedule)
        for short in (True, False)
    }
    assert Schedule.ONE_F_ONE_B in schedules[True]
    assert Schedule.GPIPE not in schedules[True]
    assert Schedule.GPIPE in schedules[False]
    assert Schedule.ONE_F_ONE_B not in schedules[False]


def test_adapters_may_have_fewer_axes_than_full_training(models, problem):
    stack = limited(adapter_axes=("cp",))
    plan = Plan(tp=8, num_microbatches=1024)
    lora = problem(models.llama_8b, workload=Workload(1024, 4096, method="lora"), stack=stack)
    assert reasons(plan, lora) == ["small has no tensor parallelism with lora; possible: 1"]
    assert reasons(plan, problem(models.llama_8b, stack=stack)) == []


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (("even",), [True, True, False, False, False, True]),
        (("even", "ends"), [True, True, True, True, False, True]),
        (("even", "ends", "uneven"), [True] * 6),
    ],
)
def test_stages_are_as_long_as_the_stack_can_deal_layers(splits, expected, models, problem):
    # 32 layers on 1, 4 (8 each), 4 (7, 9, 9, 7), 2 (15, 17), 5 (6, 7, 7, 6, 6) and 4 stages (8 each, spelled out).
    plans = Plan(
        pp=np.array([1, 4, 4, 2, 5, 4]),
        first_stage_layers=np.array([0, 0, 7, 15, 6, 8]),
        last_stage_layers=np.array([0, 0, 7, 17, 6, 8]),
    )
    setting = problem(models.llama_8b, stack=limited(stage_splits=splits))
    rule = [words for plan in plans for words in reasons(plan, setting) if "does not deal" in words]
    held = [not any("does not deal" in words for words in reasons(plan, setting)) for plan in plans]
    assert held == expected
    assert len(rule) == expected.count(False)


def test_only_what_a_stack_has_is_searched(models, nodes):
    stack = limited(
        axes=(), schedules=("none", "one_f_one_b"), pipeline_shardings=("none", "zero3_keep"),
        recomputations=("full",), rank_orders=("tp_cp_dp_pp",), stage_splits=("even",), context_kinds=("none",),
    )  # fmt: skip
    plans = enumerate_plans(models.llama_8b, nodes(3), Workload(96, 4096), stack=stack).plans
    assert set(plans.tp) == {1}
    assert set(plans.cp) == {1}
    assert set(plans.pp) == {1, 2, 4, 8}
    assert set(plans.sharding[plans.pp > 1]) == {Sharding.NONE, Sharding.ZERO3_KEEP}
    assert set(plans.sharding[plans.pp == 1]) == set(Sharding)
    assert set(plans.recompute) == {Recompute.NONE, Recompute.FULL}
    assert set(plans.rank_order) == {RankOrder.TP_CP_DP_PP}


def test_every_plan_that_is_searched_for_our_trainer_is_one_that_it_can_express(models, nodes, problem):
    trainer = named_stack("pytorch")
    question = (models.llama_70b, nodes(4), Workload(64, 4096))
    plans = enumerate_plans(*question, stack=trainer).rows(slice(None))
    assert legal(plans, problem(*question, stack=trainer)).all()
    assert plans.virtual_stages[plans.sharding == Sharding.NONE].max() > 3
    assert plans.virtual_stages[plans.sharding == Sharding.ZERO3_KEEP].max() <= 3
    assert not ((plans.sharding == Sharding.ZERO3) & (plans.pp > 1)).any()
    assert Schedule.ZB_H1 not in plans.schedule


def test_a_fixed_value_beyond_the_stack_is_refused_at_once(models, nodes):
    question = (models.llama_8b, nodes(1), Workload(128, 4096))
    with pytest.raises(SpecError, match="pytorch has no schedule zb_h1; possible: none, gpipe, one_f_one_b"):
        enumerate_plans(*question, stack=named_stack("pytorch"), fix=parse_fix("schedule=zb_h1"))
    with pytest.raises(SpecError, match="small has no rank order"):
        enumerate_plans(*question, stack=limited(rank_orders=("tp_cp_dp_pp",)), fix=parse_fix("order=tp_cp_pp_dp"))


def test_layers_that_do_not_divide_leave_a_stack_with_even_stages_without_a_pipeline(models, nodes):
    job, stack = Workload(64, 4096), limited(stage_splits=("even",))
    with pytest.raises((NoFeasiblePlan, SpecError), match="does not deal 126 layers"):
        enumerate_plans(models.llama_405b, nodes(8), job, stack=stack, fix=parse_fix("pp=4"))


def test_what_a_job_asks_of_a_stack_beyond_it_is_named_by_field():
    stack = limited(optimizers=("adamw",), precisions=("bf16", "fp8"), states=("mixed",), attentions=("flash",))
    job = Workload(8, 4096, precision="fp16", optimizer="lion", state="16bit", attention="math")
    assert unsupported(stack, job) == {
        "optimizer": "small has no optimizer lion; it has: adamw",
        "precision": "small has no precision fp16; it has: bf16, fp8",
        "state": "small has no 16bit states; it has: mixed",
        "attention": "small has no math attention; it has: flash",
    }
    assert unsupported(Stack("everything"), job) == {}


def test_a_stack_without_limits_has_every_name_that_plans_and_jobs_are_written_with():
    generic, everything = named_stack("generic"), Stack("everything")
    assert {name: getattr(generic, name) for name in LIMITS} == {name: getattr(everything, name) for name in LIMITS}
