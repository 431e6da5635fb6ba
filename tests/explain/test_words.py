import pytest

from planner.explain.words import PlanFamily, family, legend, plan_words, short_name
from planner.rows import concatenate
from planner.spec.plan import ContextKind, Offload, Plan, Recompute, Schedule, Sharding

PLANS = [
    (Plan(), "one GPU", PlanFamily.DDP),
    (Plan(dp_replicate=16), "DDP 16", PlanFamily.DDP),
    (Plan(dp_shard=16, sharding=Sharding.ZERO1), "ZeRO-1 16", PlanFamily.ZERO),
    (Plan(dp_shard=16, sharding=Sharding.ZERO3), "FSDP 16", PlanFamily.FSDP),
    (Plan(dp_shard=16, sharding=Sharding.ZERO3_KEEP), "FSDP-keep 16", PlanFamily.FSDP),
    (Plan(dp_shard=8, dp_replicate=2, sharding=Sharding.ZERO3), "HSDP 2x8", PlanFamily.HSDP),
    (Plan(tp=8), "TP 8", PlanFamily.TENSOR),
    (Plan(tp=8, dp_shard=2, sharding=Sharding.ZERO1), "TP 8 + ZeRO-1 2", PlanFamily.TENSOR),
    (Plan(cp=2, dp_shard=8, sharding=Sharding.ZERO3), "CP 2 + FSDP 16", PlanFamily.CONTEXT),
    (Plan(ep=8, dp_shard=8, sharding=Sharding.ZERO3), "EP 8 + FSDP 8", PlanFamily.EXPERT),
    (Plan(tp=2, pp=4, virtual_stages=5, dp_replicate=2), "TP 2 + PP 4x5 + DDP 2", PlanFamily.PIPELINE),
]


@pytest.mark.parametrize(("plan", "name", "kind"), PLANS, ids=[name for _, name, _ in PLANS])
def test_a_plan_has_a_short_name_and_a_family(plan, name, kind):
    assert short_name(plan) == name
    assert family(plan) == kind


def test_families_of_a_column_equal_those_of_its_rows():
    together = family(concatenate([plan for plan, _, _ in PLANS]))
    assert together.tolist() == [kind for _, _, kind in PLANS]


def test_words_name_what_is_divided_and_what_is_paid_for_it():
    plan = Plan(
        tp=8, pp=4, cp=2, dp_replicate=2, micro_batch_size=1, num_microbatches=32, sequence_parallel=1,
        schedule=Schedule.ONE_F_ONE_B, context_kind=ContextKind.RING, recompute=Recompute.FULL,
        offload=Offload.OPTIMIZER,
    )  # fmt: skip
    assert plan_words(plan) == (
        "tensor parallelism 8 with sequence parallelism, 4 pipeline stages (1F1B), context parallelism 2 (ring), "
        "2 DDP replicas, micro-batch 1 x 32 in flight, full recomputation, optimizer offloaded"
    )


def test_the_legend_explains_only_what_some_plan_bears():
    assert legend([Plan(tp=8), Plan(dp_shard=8, sharding=Sharding.ZERO3)]) == []
    kept = Plan(tp=2, dp_shard=4, dp_replicate=2, sharding=Sharding.ZERO3_KEEP, sequence_parallel=1)
    told = legend([Plan(), kept])
    assert [each.split(":")[0] for each in told] == ["-keep", "HSDP-keep 2x4", "SP"]


def test_gathered_keys_are_told_from_the_ring():
    plan = Plan(cp=4, context_kind=ContextKind.ALL_GATHER, dp_replicate=2)
    assert short_name(plan) == "CP-gather 4 + DDP 2"
    assert "context parallelism 4 (all-gather)" in plan_words(plan)
    assert legend([plan]) == ["CP-gather 4: attention on the keys and values gathered from 4 GPUs"]
