import json

import pytest

from planner.errors import FileFormatError
from planner.spec.plan import ContextKind, GradientSync, Offload, RankOrder, Recompute, Schedule, Sharding

LLAMA = """#!/bin/bash
# Runs a model of eight billion parameters
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
GPUS_PER_NODE=8
NUM_NODES=4
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP_SIZE=4
PP_SIZE=${PP_SIZE:-2}
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP_SIZE
    --pipeline-model-parallel-size $PP_SIZE
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel  # always
)
TRAINING_ARGS=(
    --num-layers 32
    --micro-batch-size 1
    --global-batch-size 128
    --seq-length 8192
    --bf16
    --use-distributed-optimizer
    --recompute-granularity full
)
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
    )
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_PARALLEL_ARGS[@]} ${TRAINING_ARGS[@]}
"""


def fields(settings, *names):
    return {name: settings.plan[name] for name in names}


def test_a_script_for_megatron(read):
    settings = read(LLAMA)
    assert settings.stack == "megatron-core"
    assert settings.world_size == 32
    assert fields(settings, "tp", "pp", "virtual_stages", "schedule", "sharding", "recompute", "sequence_parallel") == {
        "tp": 4,
        "pp": 2,
        "virtual_stages": 4,
        "schedule": Schedule.INTERLEAVED,
        "sharding": Sharding.ZERO1,
        "recompute": Recompute.FULL,
        "sequence_parallel": 1,
    }
    assert settings.job["global_batch_size"] == 128
    assert settings.job["precision"] == "fp8"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--use-megatron-fsdp", {"sharding": Sharding.ZERO3}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"sharding": Sharding.ZERO2}),
        ("--use-torch-fsdp2", {"sharding": Sharding.ZERO3}),
        ("--num-distributed-optimizer-instances 2", {"dp_replicate": 2}),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"cp": 2, "context_kind": ContextKind.ULYSSES}),
        ("--context-parallel-size 2", {"context_kind": ContextKind.RING}),
        ("--num-experts 8 --expert-model-parallel-size 4", {"ep": 4, "expert_tp": 2}),
        ("--recompute-activations", {"recompute": Recompute.SELECTIVE}),
        ("--optimizer-cpu-offload", {"offload": Offload.OPTIMIZER}),
        ("--use-tp-pp-dp-mapping", {"rank_order": RankOrder.TP_CP_PP_DP}),
        ("--tp-comm-overlap", {"async_tp": 1}),
    ],
)
def test_arguments_of_megatron(read, words, expected):
    settings = read(f"pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 {words}")
    assert fields(settings, *expected) == expected


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ("Et*3|t*4|t*3L", (3, 4, 3)),
        ("E|(t|)*3,m|m||L", (0, 1, 1, 1, 0, 0, 0, 0)),
        ("Ett,|t*2|(tt|)*2L", (2, 2, 2, 2, 0)),
    ],
)
def test_layouts_of_megatron(read, layout, sizes):
    stages = f"--pipeline-model-parallel-size 1 --pipeline-model-parallel-layout '{layout}'"
    settings = read(f"pretrain_gpt.py --tensor-model-parallel-size 1 {stages}")
    assert settings.layers_per_stage(10) == sizes


def test_a_number_that_the_script_does_not_say_is_named(read):
    with pytest.raises(FileFormatError, match=r"--tensor-model-parallel-size should be a whole number, not '\$TP'"):
        read("pretrain_gpt.py --tensor-model-parallel-size $TP --micro-batch-size 1")


TOML = """
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 64
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "never"
tensor_parallel_degree = 8
context_parallel_degree = 2
context_parallel_rotate_method = "alltoall"
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "full"
[compile]
enable = true
"""


def test_toml_of_torchtitan(read):
    settings = read(TOML, "llama3_8b.toml")
    assert settings.stack == "torchtitan"
    assert fields(settings, "dp_replicate", "sharding", "tp", "cp", "context_kind", "async_tp", "compiled") == {
        "dp_replicate": 2,
        "sharding": Sharding.ZERO3_KEEP,
        "tp": 8,
        "cp": 2,
        "context_kind": ContextKind.RING,
        "async_tp": 1,
        "compiled": 1,
    }
    assert "dp_shard" not in settings.plan
    assert settings.plan["recompute"] == Recompute.FULL
    assert settings.job == {"global_batch_size": 64, "seq_len": 8192, "precision": "bf16"}


def test_options_of_torchtitan(read):
    words = "--parallelism.pipeline_parallel_degree 4 --parallelism.pipeline_parallel_schedule GPipe"
    more = "--training.local-batch-size 8 --compile.enable activation-checkpoint:none"
    settings = read(
        f"torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b {words} {more}"
    )
    assert fields(settings, "pp", "schedule", "micro_batch_size", "compiled", "recompute") == {
        "pp": 4,
        "schedule": Schedule.GPIPE,
        "micro_batch_size": 1,
        "compiled": 1,
        "recompute": Recompute.NONE,
    }
    assert settings.job["sequences_per_rank"] == 8
    assert settings.layers_per_stage(32) == (8, 9, 8, 7)


MODULE = """
from torchtitan.trainer import Trainer

def small() -> Trainer.Config:
    training = TrainingConfig(local_batch_size=4, seq_len=2048)
    return Trainer.Config(training=training, activation_checkpoint=FullAC.Config())

def large() -> Trainer.Config:
    degree = 8
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=1, seq_len=8192, enable_cpu_offload=True),
        parallelism=ParallelismConfig(tensor_parallel_degree=degree, expert_parallel_degree=2),
        activation_checkpoint=None,
    )
"""


def test_a_module_of_torchtitan_is_read_and_not_run(read, tmp_path):
    line = "torchrun --nnodes 1 --nproc-per-node 8 -m torchtitan.train --module mine --config"
    settings = read(f"{line} small --training.seq_len 4096", mine__py=MODULE + f"open({str(tmp_path / 'x')!r}, 'w')\n")
    assert settings.job["seq_len"] == 4096
    assert fields(settings, "micro_batch_size", "recompute") == {"micro_batch_size": 4, "recompute": Recompute.FULL}
    settings = read(f"{line} large", mine__py=MODULE)
    assert settings.plan["offload"] == Offload.ALL
    assert settings.plan["recompute"] == Recompute.NONE
    assert settings.untold[0].startswith("parallelism.tensor_parallel_degree is degree, which is no plain value")
    assert not (tmp_path / "x").exists()


def test_a_module_with_several_configurations_wants_a_name(read):
    with pytest.raises(FileFormatError, match=r"2 configurations \(small, large\)"):
        read(MODULE, "mine.py")


FSDP1 = """
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_sharding_strategy: {strategy}
  fsdp_offload_params: {offload}
  fsdp_activation_checkpointing: true
"""


@pytest.mark.parametrize(
    ("strategy", "sharding"),
    [("FULL_SHARD", Sharding.ZERO3), ("SHARD_GRAD_OP", Sharding.ZERO3_KEEP), ("3", Sharding.NONE)],
)
def test_accelerate_with_the_first_version_of_fsdp(read, strategy, sharding):
    settings = read(FSDP1.format(strategy=strategy, offload="false"), "fsdp.yaml")
    assert settings.world_size == 16
    assert fields(settings, "sharding", "recompute") == {"sharding": sharding, "recompute": Recompute.FULL}


def test_accelerate_with_a_mesh(read):
    text = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\n"
        "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_offload_params: no}\n"
        "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
        "  parallelism_config_tp_size: 2\n  parallelism_config_cp_size: 2\n"
        "  parallelism_config_cp_comm_strategy: alltoall\n"
    )
    settings = read(text, "config.yml")
    assert fields(settings, "dp_replicate", "dp_shard", "tp", "cp", "context_kind", "sharding") == {
        "dp_replicate": 2,
        "dp_shard": 2,
        "tp": 2,
        "cp": 2,
        "context_kind": ContextKind.RING,
        "sharding": Sharding.ZERO3_KEEP,
    }


def test_deepspeed_named_by_accelerate(read):
    text = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config:\n"
    stage = "  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
    settings = read(text + stage + "  gradient_accumulation_steps: 4\n", "zero3.yaml")
    assert (settings.stack, settings.world_size) == ("hf-deepspeed", 8)
    assert fields(settings, "sharding", "offload", "num_microbatches") == {
        "sharding": Sharding.ZERO3,
        "offload": Offload.OPTIMIZER,
        "num_microbatches": 4,
    }
    named = read(
        text + "  deepspeed_config_file: ds.json\n", "zero.yaml", ds__json='{"zero_optimization": {"stage": 2}}'
    )
    assert named.plan["sharding"] == Sharding.ZERO2


def test_deepspeed_as_the_trainer_takes_it(read):
    text = {
        "bf16": {"enabled": "auto"},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "zero_hpz_partition_size": 8},
    }
    settings = read(json.dumps(text), "ds.json")
    assert settings.plan["offload"] == Offload.ALL
    assert "micro_batch_size" not in settings.plan
    assert "precision" not in settings.job
    assert any("left to the Trainer's arguments" in each for each in settings.untold)
    assert any("zero_hpz_partition_size" in each for each in settings.untold)


def test_constants_of_the_script_beside_complete_it(read):
    script = "SEQ_LEN = 2048\nMICRO_BATCH_SIZE = 2\nNUM_MICROBATCHES = 4\nREDUCE_EVERY_MICROBATCH = False\n"
    text = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nnum_processes: 2\n"
    settings = read(text, "accelerate.yaml", train__py=script)
    assert settings.plan["gradient_sync"] == GradientSync.ONCE
    assert fields(settings, "micro_batch_size", "num_microbatches") == {"micro_batch_size": 2, "num_microbatches": 4}
    assert settings.job["seq_len"] == 2048


BAD = {
    "a text about something else": ("notes.txt", "buy milk"),
    "a table of something else": ("x.json", '{"a": 1}'),
    "broken JSON": ("x.json", '{"a": '),
    "broken YAML": ("x.yaml", "a: [1\nb"),
    "broken TOML": ("x.toml", "a = "),
    "broken Python": ("x.py", "def f(:"),
    "a plan.json": ("plan.json", '{"schema_version": 1, "plan": {}}'),
    "a stage that is none": ("ds.json", '{"zero_optimization": {"stage": 7}}'),
    "a group that is none": ("ds.json", '{"zero_optimization": 3}'),
    "a truth that is none": (
        "a.yaml",
        "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_offload_params: [1]}",
    ),
    "an unknown schedule": ("t.toml", "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'X'"),
    "a number too large": ("t.toml", "[parallelism]\ntensor_parallel_degree = 99999999999"),
    "a layout that is none": (
        "run.sh",
        "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout q|r",
    ),
    "a deep nest": ("x.json", "[" * 100000),
    "a deep nest of Python": ("x.py", f"x = {'-' * 20000}1"),
    "a name of many parts": ("x.py", f"def f():\n    return {'.'.join('a' * 3000)}()"),
    "a file without end": ("x.sh", "--a b " * 400_000),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_settings_says_so_in_one_line(read, case):
    name, text = BAD[case]
    with pytest.raises(FileFormatError) as raised:
        read(text, name)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_or_is_no_text(tmp_path):
    from planner.emit.reading.recognise import read_settings

    with pytest.raises(FileFormatError, match="cannot be read"):
        read_settings(tmp_path / "no.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="not UTF-8"):
        read_settings(tmp_path / "x.yaml")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_settings(tmp_path)
