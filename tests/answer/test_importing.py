from dataclasses import fields, replace

import pytest

from planner.answer.importing import import_plan, told
from planner.catalogue.hardware import cluster
from planner.catalogue.models import model
from planner.catalogue.stacks import stack
from planner.emit.targets import trainer
from planner.errors import SpecError
from planner.spec.plan import ContextKind, GradientSync, Offload, Plan, RankOrder, Recompute, Schedule, Sharding
from planner.spec.plan_file import PlanFile, ProfileReference
from planner.spec.workload import Workload

MAIN_FILES = {
    "torchtitan": "planner_config.py",
    "megatron": "megatron_arguments.txt",
    "accelerate": "accelerate.yaml",
    "deepspeed": "deepspeed.json",
}
PIPELINE = Plan(pp=4, num_microbatches=8, schedule=Schedule.ONE_F_ONE_B)
PLANS = {
    "torchtitan": [
        Plan(dp_shard=8, sharding=Sharding.ZERO3, micro_batch_size=2, num_microbatches=2, compiled=0),
        Plan(dp_shard=4, dp_replicate=2, sharding=Sharding.ZERO3, recompute=Recompute.SELECTIVE),
        Plan(dp_shard=4, sharding=Sharding.ZERO3_KEEP, tp=2, sequence_parallel=1, async_tp=1, recompute=Recompute.FULL),
        Plan(cp=4, dp_shard=2, sharding=Sharding.ZERO3, context_kind=ContextKind.ALL_GATHER),
        Plan(dp_replicate=8, num_microbatches=2, gradient_sync=GradientSync.EVERY),
        replace(PIPELINE, tp=2, micro_batch_size=2, first_stage_layers=7, last_stage_layers=7),
        replace(PIPELINE, virtual_stages=2, schedule=Schedule.INTERLEAVED, dp_shard=2, sharding=Sharding.ZERO3_KEEP),
        replace(PIPELINE, schedule=Schedule.GPIPE, tp=2),
        Plan(dp_shard=8, sharding=Sharding.ZERO3, offload=Offload.ALL),
    ],
    "megatron": [
        replace(PIPELINE, tp=2, sequence_parallel=1, recompute=Recompute.SELECTIVE),
        replace(PIPELINE, virtual_stages=4, schedule=Schedule.INTERLEAVED, dp_shard=2, sharding=Sharding.ZERO1),
        replace(PIPELINE, first_stage_layers=7, last_stage_layers=5, tp=2, rank_order=RankOrder.TP_CP_PP_DP),
        Plan(dp_shard=4, dp_replicate=2, sharding=Sharding.ZERO1, recompute=Recompute.FULL),
        Plan(dp_shard=8, sharding=Sharding.ZERO3, num_microbatches=2),
        Plan(dp_shard=8, sharding=Sharding.ZERO2),
        Plan(dp_replicate=8),
        Plan(cp=4, dp_shard=2, sharding=Sharding.ZERO1, context_kind=ContextKind.ULYSSES),
        Plan(cp=2, tp=4, sequence_parallel=1, async_tp=1, context_kind=ContextKind.RING),
        Plan(dp_shard=8, sharding=Sharding.ZERO1, offload=Offload.OPTIMIZER),
    ],
    "accelerate": [
        Plan(dp_shard=4, dp_replicate=2, sharding=Sharding.ZERO3, micro_batch_size=2, compiled=0),
        Plan(dp_shard=8, sharding=Sharding.ZERO3_KEEP, recompute=Recompute.FULL),
        Plan(dp_shard=8, sharding=Sharding.ZERO3, gradient_sync=GradientSync.ONCE, num_microbatches=4),
        Plan(cp=2, dp_shard=4, sharding=Sharding.ZERO3, context_kind=ContextKind.RING),
        Plan(dp_shard=8, sharding=Sharding.ZERO3, offload=Offload.ALL, compiled=0),
        Plan(dp_replicate=8, num_microbatches=2, recompute=Recompute.FULL, compiled=0),
    ],
    "deepspeed": [
        Plan(dp_replicate=8, compiled=0),
        Plan(dp_shard=8, sharding=Sharding.ZERO1, num_microbatches=4, recompute=Recompute.FULL, compiled=0),
        Plan(dp_shard=8, sharding=Sharding.ZERO2, micro_batch_size=2),
        Plan(dp_shard=8, sharding=Sharding.ZERO3, offload=Offload.ALL, compiled=0),
        Plan(tp=2, dp_shard=4, sharding=Sharding.ZERO1, compiled=0),
        Plan(cp=2, dp_shard=4, sharding=Sharding.ZERO1, context_kind=ContextKind.ULYSSES, compiled=0),
    ],
}
MIXTURES = {
    "torchtitan": ("qwen3-30b-a3b", Plan(dp_shard=8, ep=8, sharding=Sharding.ZERO3)),
    "megatron": ("mixtral-8x7b", Plan(tp=2, dp_shard=4, ep=8, sharding=Sharding.ZERO1, sequence_parallel=1)),
}
CASES = [
    *((name, "llama-3.1-8b", plan) for name, plans in PLANS.items() for plan in plans),
    *((name, *case) for name, case in MIXTURES.items()),
]


def contents_of(name, plan, **job):
    ranks = int(plan.world_size)
    return PlanFile(
        plan=plan,
        model=model(name),
        cluster=cluster(f"{ranks // 8}xdgx-h100" if ranks % 8 == 0 else f"{ranks}xh100"),
        workload=Workload(**{"global_batch_size": int(plan.global_batch_size), "seq_len": 4096} | job),
        stack=stack("generic"),
        profile=ProfileReference("h100-sxm/generic", "0", "datasheet"),
        planner_version="0",
    )


def written(target, contents, folder):
    assert list(trainer(target).refusals(contents)) == []
    for name, text in trainer(target).files(contents).items():
        (folder / name).write_text(text)
    return folder / MAIN_FILES[target]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_is_emitted_is_read_back_as_the_same_plan(case, tmp_path):
    target, name, plan = CASES[case]
    contents = contents_of(name, plan)
    made = import_plan(written(target, contents, tmp_path), model=name, cluster=contents.cluster.name)
    same = {field.name: int(getattr(made.ranked.plan, field.name)) for field in fields(Plan)}
    assert same == {field.name: int(getattr(plan, field.name)) for field in fields(Plan)}
    assert made.ranked.question.workload == contents.workload


@pytest.mark.parametrize("target", MAIN_FILES)
@pytest.mark.parametrize("job", [{"precision": "fp32"}, {"seq_len": 2048}])
def test_the_job_is_read_back_too(target, job, tmp_path):
    contents = contents_of("llama-3.1-8b", Plan(dp_replicate=8), **job)
    made = import_plan(written(target, contents, tmp_path), model="llama-3.1-8b", cluster="1xdgx-h100")
    assert made.ranked.question.workload == contents.workload


@pytest.mark.parametrize("target", ["accelerate", "deepspeed"])
def test_the_model_beside_the_file_is_taken(target, tmp_path):
    contents = contents_of("llama-3.1-8b", Plan(dp_replicate=8))
    made = import_plan(written(target, contents, tmp_path), cluster="1xdgx-h100")
    assert made.ranked.question.model.parameters == contents.model.parameters


def test_without_a_cluster_it_says_what_the_file_tells(tmp_path):
    contents = contents_of("llama-3.1-8b", Plan(tp=2, dp_shard=4, sharding=Sharding.ZERO1))
    made = import_plan(written("megatron", contents, tmp_path))
    assert made.ranked is None
    assert told(made.settings)["sharding"] == "zero1"
    assert made.remarks[-1] == "name --model and --cluster for a prediction"


def test_ranks_that_are_not_named_follow_the_cluster(tmp_path):
    path = written("megatron", contents_of("llama-3.1-8b", Plan(tp=2, dp_shard=4, sharding=Sharding.ZERO1)), tmp_path)
    text = path.read_text().replace("--global-batch-size 4", "--global-batch-size 64")
    path.write_text(text)
    plan = import_plan(path, model="llama-3.1-8b", cluster="4xdgx-h100").ranked.plan
    assert (plan.dp_shard, plan.num_microbatches) == (16, 4)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--tensor-model-parallel-size 3 --micro-batch-size 1", "does not divide the cluster's 8 GPUs"),
        ("--tensor-model-parallel-size 0 --micro-batch-size 1", "tp should be at least 1"),
        ("--tensor-model-parallel-size 1 --micro-batch-size 3 --global-batch-size 64", "no multiple"),
        ("--tensor-model-parallel-size 1 --num-distributed-optimizer-instances 3", "does not divide 8"),
        (
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tL",
            "chunks of 2 x 1 layers are not the model's 32 on 2 ranks",
        ),
        (
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
            "chunks of 10 x 3 layers",
        ),
        (
            "--tensor-model-parallel-size 1 --context-parallel-size 8 --seq-length 4100",
            "CP 8 does not divide",
        ),
    ],
)
def test_settings_that_make_no_plan_say_why(words, reason, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {words}\n")
    with pytest.raises(SpecError, match=reason):
        import_plan(path, model="llama-3.1-8b", cluster="1xdgx-h100")
