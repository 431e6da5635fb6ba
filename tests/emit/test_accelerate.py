import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from planner.emit.accelerate import TRAINER
from planner.spec.model import Attention, Layer, Mlp, Model
from planner.spec.plan import ContextKind, GradientSync, Offload, Plan, Recompute, Sharding

ON_CPU = Path(__file__).with_name("accelerate_on_cpu.py")
LAYER = Layer(Attention(8, 4, 32), Mlp(512), other_parameters=512)
TINY = Model("tiny", 256, 2048, (LAYER,) * 4, other_parameters=256, max_seq_len=512, model_type="llama")


def files_of(contents):
    assert list(TRAINER.refusals(contents)) == []
    return TRAINER.files(contents)


def config_of(contents):
    return yaml.safe_load(files_of(contents)["accelerate.yaml"])


def value(contents, name):
    """A constant of train.py."""
    body = ast.parse(files_of(contents)["train.py"]).body
    (found,) = [each.value for each in body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name]
    return ast.unparse(found)


def test_shards_and_replicas(contents_of):
    plan = Plan(dp_shard=4, dp_replicate=4, sharding=Sharding.ZERO3, num_microbatches=2)
    config = config_of(contents_of("llama-3.1-8b", plan))
    assert (config["distributed_type"], config["num_processes"], config["num_machines"]) == ("FSDP", 16, 2)
    assert config["fsdp_config"]["fsdp_version"] == 2
    assert config["fsdp_config"]["fsdp_reshard_after_forward"] is True
    assert config["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "LlamaDecoderLayer"
    assert config["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 4,
        "parallelism_config_dp_shard_size": 4,
        "parallelism_config_tp_size": 1,
        "parallelism_config_cp_size": 1,
    }


def test_plain_replicas_have_no_fsdp(contents_of):
    config = config_of(contents_of("llama-3.2-1b", Plan(dp_replicate=4, compiled=0)))
    assert config["distributed_type"] == "MULTI_GPU"
    assert not {"fsdp_config", "parallelism_config", "dynamo_config"} & config.keys()


@pytest.mark.parametrize(("kind", "written"), [(ContextKind.RING, "alltoall"), (ContextKind.ALL_GATHER, "allgather")])
def test_context_parallelism(contents_of, kind, written):
    plan = Plan(cp=2, dp_shard=2, sharding=Sharding.ZERO3, context_kind=kind)
    contents = contents_of("llama-3.1-8b", plan)
    assert config_of(contents)["parallelism_config"]["parallelism_config_cp_comm_strategy"] == written
    assert value(contents, "CONTEXT_SIZE") == "2"


def test_what_is_kept_computed_again_compiled_and_offloaded(contents_of):
    plan = Plan(dp_shard=4, sharding=Sharding.ZERO3_KEEP, recompute=Recompute.FULL)
    config = config_of(contents_of("llama-3.1-8b", plan))
    assert config["fsdp_config"]["fsdp_reshard_after_forward"] is False
    assert config["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert config["dynamo_config"]["dynamo_backend"] == "INDUCTOR"
    plan = Plan(dp_shard=4, sharding=Sharding.ZERO3, offload=Offload.ALL)
    assert config_of(contents_of("llama-3.1-8b", plan))["fsdp_config"]["fsdp_offload_params"] is True


@pytest.mark.parametrize(
    ("plan", "every"),
    [
        (Plan(dp_replicate=2), "False"),
        (Plan(dp_replicate=2, gradient_sync=GradientSync.EVERY), "True"),
        (Plan(dp_shard=2, sharding=3), "True"),
        (Plan(dp_shard=2, sharding=3, gradient_sync=GradientSync.ONCE), "False"),
    ],
)
def test_gradients_are_reduced_as_often_as_the_plan_says(contents_of, plan, every):
    assert value(contents_of("llama-3.1-8b", plan), "REDUCE_EVERY_MICROBATCH") == every


def test_precision_and_state(contents_of):
    plan = Plan(dp_shard=2, sharding=3)
    mixed = contents_of("llama-3.1-8b", plan)
    assert (config_of(mixed)["mixed_precision"], value(mixed, "DTYPE")) == ("bf16", "torch.float32")
    small = contents_of("llama-3.1-8b", plan, state="16bit")
    assert (config_of(small)["mixed_precision"], value(small, "DTYPE")) == ("no", "torch.bfloat16")
    tf32 = contents_of("llama-3.1-8b", plan, precision="tf32")
    assert config_of(tf32)["mixed_precision"] == "no"
    assert 'set_float32_matmul_precision("high")' in files_of(tf32)["train.py"]


REFUSED = {
    "tensor parallelism": ("llama-3.1-8b", Plan(tp=2), {}, "tensor parallelism"),
    "unsharded ranks of a context group": ("llama-3.1-8b", Plan(cp=2, context_kind=1), {}, "sharding none"),
    "another family": ("t5-base", Plan(), {"seq_len": 512}, "no t5 model"),
    "dropout": ("gpt2", Plan(), {"seq_len": 512, "dropout": True}, "dropout"),
    "adapters": ("llama-3.1-8b", Plan(), {"method": "lora"}, "all weights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_express_is_refused_in_words(case, contents_of):
    model, plan, job, words = REFUSED[case]
    assert any(words in reason for reason in TRAINER.refusals(contents_of(model, plan, **job)))


def test_a_hostile_name_stays_data(contents_of, hostile):
    contents = hostile(contents_of("llama-3.1-8b", Plan(dp_shard=2, sharding=3)))
    files = files_of(contents)
    assert config_of(contents).keys() == config_of(contents_of("llama-3.1-8b", Plan(dp_shard=2, sharding=3))).keys()
    assert "pwned" not in files["config.json"]
    assert "pwned" not in ast.unparse(ast.parse(files["train.py"]))
    assert json.loads(files["config.json"])["hidden_size"] == 4096


def write(contents, folder):
    for name, text in files_of(contents).items():
        (folder / name).write_text(text)


def test_accelerate_reads_its_configuration(contents_of, tmp_path):
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    plan = Plan(dp_shard=4, dp_replicate=2, sharding=3, recompute=2)
    write(contents_of("llama-3.1-8b", plan), tmp_path)
    read = config_args.load_config_from_file(str(tmp_path / "accelerate.yaml"))
    assert read.fsdp_config["fsdp_version"] == 2
    assert read.num_processes == 8


def test_every_key_is_an_option_of_accelerate_launch(contents_of):
    launch = pytest.importorskip("accelerate.commands.launch")
    options = {each.dest for each in launch.launch_command_parser()._actions}
    plan = Plan(cp=2, dp_shard=4, sharding=3, context_kind=1)
    config = config_of(contents_of("llama-3.1-8b", plan))
    inside = [key for group in ("fsdp_config", "parallelism_config", "dynamo_config") for key in config[group]]
    assert set(inside) <= options


TRAINED = {
    "fsdp": (Plan(dp_shard=2, sharding=Sharding.ZERO3, num_microbatches=2), {"precision": "fp32"}),
    "kept, computed again": (Plan(dp_shard=2, sharding=Sharding.ZERO3_KEEP, recompute=Recompute.FULL), {}),
    "hybrid": (Plan(dp_shard=2, dp_replicate=2, sharding=Sharding.ZERO3), {}),
    "replicas": (Plan(dp_replicate=2, num_microbatches=2, recompute=Recompute.FULL), {}),
    "16 bits": (Plan(dp_shard=2, sharding=Sharding.ZERO3), {"state": "16bit"}),
    "momentum": (Plan(dp_shard=2, sharding=Sharding.ZERO3), {"optimizer": "sgd-momentum"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED)
def test_the_script_trains_on_cpus(case, contents_of, tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    plan, job = TRAINED[case]
    write(contents_of(TINY, replace(plan, compiled=0, micro_batch_size=2), seq_len=128, **job), tmp_path)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(plan.world_size)]
    result = subprocess.run(
        [*run, str(ON_CPU), "accelerate.yaml", "train.py", "--steps", "3"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in result.stdout.splitlines() if "loss" in line]
    assert len(losses) == 3
    assert all(7 < loss < 9 for loss in losses)
