"""Hugging Face accelerate 1.15: its configuration for FSDP2 (or DDP), the model, and a training script to start with.

Names and rules: accelerate 1.15.0 (commands/launch.py, parallelism_config.py, utils/fsdp_utils.py), transformers 5.24.
Tensor parallelism is left out: accelerate 1.15 imports ReplicateParallel for it, which transformers 5 no longer has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from planner.emit.hf_config import block_class, hf_config
from planner.emit.job import Files, Program, Trainer
from planner.emit.preface import preface
from planner.emit.quoting import yaml_text
from planner.emit.shapes import Unlike
from planner.emit.templates import filled
from planner.spec.plan import ContextKind, GradientSync, Offload, Plan, Recompute, Sharding
from planner.spec.plan_file import PlanFile
from planner.spec.workload import Workload

VERSION = "1.15"
WRITTEN_FOR = f"accelerate {VERSION} and transformers 5.24"
CONFIG, MODEL, SCRIPT = "accelerate.yaml", "config.json", "train.py"
CONTEXT_KINDS = {ContextKind.RING: "alltoall", ContextKind.ALL_GATHER: "allgather"}
"""How keys and values go round: accelerate's cp_comm_strategy."""
MIXED = {"bf16": "bf16", "fp16": "fp16", "tf32": "no", "fp32": "no"}
OPTIMIZERS = {
    "adamw": "torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)",
    "sgd": "torch.optim.SGD(model.parameters(), lr=3e-4)",
    "sgd-momentum": "torch.optim.SGD(model.parameters(), lr=3e-4, momentum=0.9)",
}
HALF = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}


def files(contents: PlanFile) -> Files:
    """Configuration, model and script. Raises Unlike where the model is not known: see `refusals`."""
    return {
        CONFIG: preface(contents, WRITTEN_FOR) + yaml_text(configuration(contents)),
        MODEL: model_text(contents),
        SCRIPT: _script(contents),
    }


def model_text(contents: PlanFile) -> str:
    """The config.json of the model."""
    return json.dumps(hf_config(contents.model), indent=2) + "\n"


def program(_contents: PlanFile) -> Program:
    """The script, started by `accelerate launch`."""
    return Program(
        words=(SCRIPT,),
        starter="accelerate",
        requirements=("torch>=2.11", f"accelerate=={VERSION}.*", "transformers>=5.10,<6"),
    )


def refusals(contents: PlanFile) -> Iterator[str]:
    """What it cannot express of the model and the job, and of the plan what depends on both."""
    plan = contents.plan
    try:
        hf_config(contents.model)
    except Unlike as reason:
        yield str(reason)
    yield from unlike_job(contents.workload)
    if plan.tp > 1:
        yield "it has no tensor parallelism with transformers 5: it imports ReplicateParallel, which is gone"
    if plan.sharding == Sharding.NONE and plan.shard_group > 1:
        yield f"FSDP2 shards over dp_shard x cp = {plan.shard_group} ranks: sharding none needs 1"
    if plan.cp > 1 and plan.dp_replicate > 1 and plan.dp_shard == 1:
        yield "context parallelism with replicas needs dp_shard above 1"
    if plan.cp > 1 and contents.workload.attention == "math":
        yield "context parallelism needs a fused attention"


def unlike_job(workload: Workload) -> Iterator[str]:
    """What train.py does not do."""
    if workload.dropout:
        yield "the models of config.json have no dropout"
    if workload.method != "full":
        yield f"train.py trains all weights: for {workload.method} bring a script of your own"


TRAINER = Trainer("accelerate", "hf-fsdp", WRITTEN_FOR, files, program, refusals)


def configuration(contents: PlanFile) -> dict[str, Any]:
    """The keys of accelerate.yaml."""
    plan, workload = contents.plan, contents.workload
    mixed = "no" if workload.state == "16bit" else MIXED[workload.precision]
    world = int(plan.world_size)
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _distributed_type(plan),
        "mixed_precision": mixed,
        "num_machines": contents.cluster.num_nodes,
        "num_processes": world,
        "machine_rank": 0,
        "rdzv_backend": "static",
        "main_training_function": "main",
        "use_cpu": False,
    }
    if plan.compiled:
        config["dynamo_config"] = {"dynamo_backend": "INDUCTOR", "dynamo_use_regional_compilation": True}
    if plan.sharding != Sharding.NONE:
        config["fsdp_config"] = _fsdp(contents)
        config["parallelism_config"] = _parallelism(plan)
    return config


def _distributed_type(plan: Plan) -> str:
    if plan.sharding != Sharding.NONE:
        return "FSDP"
    return "MULTI_GPU" if plan.world_size > 1 else "NO"


def _fsdp(contents: PlanFile) -> dict[str, Any]:
    plan = contents.plan
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": plan.sharding != Sharding.ZERO3_KEEP,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": block_class(contents.model),
        "fsdp_activation_checkpointing": plan.recompute == Recompute.FULL,
        "fsdp_offload_params": plan.offload == Offload.ALL,
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _parallelism(plan: Plan) -> dict[str, Any]:
    config: dict[str, Any] = {
        "parallelism_config_dp_replicate_size": int(plan.dp_replicate),
        "parallelism_config_dp_shard_size": int(plan.dp_shard),
        "parallelism_config_tp_size": int(plan.tp),
        "parallelism_config_cp_size": int(plan.cp),
    }
    if plan.cp > 1:
        config["parallelism_config_cp_comm_strategy"] = CONTEXT_KINDS[ContextKind(int(plan.context_kind))]
    return config


def _script(contents: PlanFile) -> str:
    plan, workload = contents.plan, contents.workload
    sharded = plan.sharding != Sharding.NONE
    usual = sharded if plan.gradient_sync == GradientSync.USUAL else plan.gradient_sync == GradientSync.EVERY
    return filled(
        "accelerate_train",
        preface=preface(contents, WRITTEN_FOR),
        world_size=int(plan.world_size),
        seq_len=workload.seq_len,
        micro_batch_size=int(plan.micro_batch_size),
        num_microbatches=int(plan.num_microbatches),
        context_size=int(plan.cp),
        sharded=sharded,
        reduce_every=bool(usual),
        checkpoint_blocks=plan.recompute == Recompute.FULL and not sharded,
        dtype=weight_type(workload),
        attention='"eager"' if workload.attention == "math" else '"sdpa"',
        tf32='\n    torch.set_float32_matmul_precision("high")' if workload.precision == "tf32" else "",
        optimizer=OPTIMIZERS[workload.optimizer],
    )


def weight_type(workload: Workload) -> str:
    """The type of the weights that the optimizer updates: of a mixed state fp32, else the 16-bit one."""
    return HALF.get(workload.precision, "torch.float32") if workload.state == "16bit" else "torch.float32"
