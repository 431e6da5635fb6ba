import ast
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from planner.emit.deepspeed import TRAINER
from planner.spec.model import Attention, Layer, Mlp, Model
from planner.spec.plan import ContextKind, Offload, Plan, Recompute, Sharding

LAYER = Layer(Attention(8, 4, 32), Mlp(512), other_parameters=512)
TINY = Model("tiny", 256, 2048, (LAYER,) * 4, other_parameters=256, max_seq_len=512, model_type="llama")
TOP = {
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
    *("optimizer", "bf16", "fp16", "zero_optimization", "zero_allow_untested_optimizer"),
    *("tensor_parallel", "sequence_parallel_size"),
}
"""Keys that DeepSpeed 0.19 knows (runtime/constants.py, runtime/config.py); it passes over others without a word."""


def files_of(contents):
    assert list(TRAINER.refusals(contents)) == []
    return TRAINER.files(contents)


def config_of(contents):
    config = json.loads(files_of(contents)["deepspeed.json"])
    assert config.keys() <= TOP
    return config


def value(contents, name):
    body = ast.parse(files_of(contents)["train.py"]).body
    (found,) = [each.value for each in body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name]
    return ast.unparse(found)


@pytest.mark.parametrize("sharding", [Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3])
def test_the_stage_is_that_of_the_sharding(contents_of, sharding):
    plan = Plan(dp_replicate=4) if sharding == Sharding.NONE else Plan(dp_shard=4, sharding=sharding)
    assert config_of(contents_of("llama-3.1-8b", plan))["zero_optimization"] == {"stage": int(sharding)}


def test_the_batch_is_the_product(contents_of):
    plan = Plan(dp_shard=4, cp=2, sharding=1, context_kind=ContextKind.ULYSSES, micro_batch_size=2, num_microbatches=3)
    config = config_of(contents_of("llama-3.1-8b", plan))
    assert config["train_batch_size"] == 2 * 3 * 8 // config["sequence_parallel_size"]
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] == 6
    assert value(contents_of("llama-3.1-8b", plan), "SEQUENCE_SIZE") == "2"


def test_tensor_parallelism_leaves_the_product_to_deepspeed(contents_of):
    config = config_of(contents_of("llama-3.1-8b", Plan(tp=2, dp_shard=2, sharding=2)))
    assert config["tensor_parallel"] == {"autotp_size": 2}
    assert "train_batch_size" not in config


@pytest.mark.parametrize(
    ("offload", "parts"),
    [(Offload.OPTIMIZER, {"offload_optimizer"}), (Offload.ALL, {"offload_optimizer", "offload_param"})],
)
def test_offloading(contents_of, offload, parts):
    zero = config_of(contents_of("llama-3.1-8b", Plan(dp_shard=4, sharding=3, offload=offload)))["zero_optimization"]
    assert zero.keys() - {"stage"} == parts
    assert all(zero[part]["device"] == "cpu" for part in parts)


def test_precision_state_and_optimizer(contents_of):
    plan = Plan(dp_shard=4, sharding=1)
    assert config_of(contents_of("llama-3.1-8b", plan))["bf16"] == {"enabled": True}
    assert not {"bf16", "fp16"} & config_of(contents_of("llama-3.1-8b", plan, precision="fp32")).keys()
    small = config_of(contents_of("llama-3.1-8b", plan, state="16bit"))
    assert small["bf16"]["bf16_master_weights_and_grads"] is True
    momentum = config_of(contents_of("llama-3.1-8b", plan, optimizer="sgd-momentum"))
    assert momentum["optimizer"]["params"]["momentum"] == 0.9
    assert momentum["zero_allow_untested_optimizer"] is True


REFUSED = {
    "tensor parallelism with ZeRO-3": (Plan(tp=2, dp_shard=2, sharding=3), {}, "not with ZeRO-3"),
    "both": (Plan(tp=2, cp=2, sharding=1, context_kind=2), {}, "not both"),
    "replicas of shards": (Plan(dp_shard=2, dp_replicate=2, sharding=3), {}, "replicas"),
    "unsharded 16-bit states": (Plan(), {"state": "16bit"}, "ZeRO"),
    "adapters": (Plan(), {"method": "qlora"}, "all weights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_express_is_refused_in_words(case, contents_of):
    plan, job, words = REFUSED[case]
    assert any(words in reason for reason in TRAINER.refusals(contents_of("llama-3.1-8b", plan, **job)))


def test_a_hostile_name_stays_data(contents_of, hostile):
    files = files_of(hostile(contents_of("llama-3.1-8b", Plan(dp_shard=2, sharding=3))))
    assert "pwned" not in files["deepspeed.json"] + files["config.json"]
    assert "pwned" not in ast.unparse(ast.parse(files["train.py"]))


PARSED = {
    "stage 0": (Plan(dp_replicate=2), {}),
    "stage 1": (Plan(dp_shard=2, sharding=1), {"precision": "fp16"}),
    "stage 2": (Plan(dp_shard=2, sharding=2), {"state": "16bit"}),
    "stage 3, offloaded": (Plan(dp_shard=2, sharding=3, offload=Offload.ALL), {"optimizer": "sgd"}),
    "tensor parallelism": (Plan(tp=2), {}),
    "sequence parallelism": (Plan(cp=2, sharding=1, context_kind=2), {}),
}


@pytest.mark.parametrize("case", PARSED)
def test_deepspeed_reads_its_configuration(case, contents_of, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    module = pytest.importorskip("deepspeed.runtime.config")
    plan, job = PARSED[case]
    config = config_of(contents_of("llama-3.1-8b", plan, **job))
    if "train_batch_size" in config:
        config["train_batch_size"] //= int(plan.dp)  # without a process group it counts one rank
    read = module.DeepSpeedConfig(config)
    assert read.zero_config.stage == int(plan.sharding)
    with pytest.raises(ValueError, match="no_such_key"):
        module.DeepSpeedConfig(config | {"zero_optimization": config["zero_optimization"] | {"no_such_key": 1}})


TRAINED = {
    "replicas": (Plan(dp_replicate=2, num_microbatches=2), {}),
    "stage 1": (Plan(dp_shard=2, sharding=1, recompute=Recompute.FULL), {}),
    "stage 2": (Plan(dp_shard=2, sharding=2, num_microbatches=2), {}),
    "stage 3": (Plan(dp_shard=2, sharding=3, num_microbatches=2), {"precision": "fp32"}),
    "16 bits": (Plan(dp_shard=2, sharding=1), {"state": "16bit"}),
    "tensor parallelism": (Plan(tp=2), {}),
    "sequence parallelism": (Plan(cp=2, sharding=1, context_kind=2), {}),
    "momentum": (Plan(dp_shard=2, sharding=2), {"optimizer": "sgd-momentum"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TRAINED)
def test_the_script_trains_on_cpus(case, contents_of, tmp_path):
    pytest.importorskip("transformers")
    monkey = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    if subprocess.run([sys.executable, "-c", "import deepspeed"], env=monkey, capture_output=True).returncode:
        pytest.skip("deepspeed is not installed")
    plan, job = TRAINED[case]
    contents = contents_of(TINY, replace(plan, compiled=0, micro_batch_size=2), seq_len=128, **job)
    for name, text in files_of(contents).items():
        (tmp_path / name).write_text(text)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    result = subprocess.run(
        [*run, "--steps", "3"], cwd=tmp_path, env=monkey, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in result.stdout.splitlines() if "step " in line]
    assert len(losses) == 3
    assert all(7 < loss < 9 for loss in losses)
