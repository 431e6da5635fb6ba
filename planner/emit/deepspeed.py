"""DeepSpeed 0.19: its configuration for ZeRO, the model, and a training script to start with.

Names and rules: DeepSpeed 0.19.8 (runtime/config.py, runtime/zero/config.py, runtime/tensor_parallel/config.py,
runtime/sequence_parallel/ulysses_sp.py). JSON has no comments: what is expected stands at the top of train.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from planner.emit.accelerate import model_text, unlike_job
from planner.emit.hf_config import hf_config
from planner.emit.job import Files, Program, Trainer
from planner.emit.preface import preface
from planner.emit.shapes import Unlike
from planner.emit.templates import filled
from planner.spec.plan import Offload, Plan, Recompute, Sharding
from planner.spec.plan_file import PlanFile
from planner.spec.workload import Workload

VERSION = "0.19"
WRITTEN_FOR = f"DeepSpeed {VERSION} and transformers 5.24"
CONFIG, MODEL, SCRIPT = "deepspeed.json", "config.json", "train.py"
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "sgd": {"type": "SGD", "params": {"lr": 3e-4}},
    "sgd-momentum": {"type": "SGD", "params": {"lr": 3e-4, "momentum": 0.9}},
}
TYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}
TENSOR_STAGES = (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2)
"""Shardings that go with tensor parallelism."""


def files(contents: PlanFile) -> Files:
    """Configuration, model and script. Raises Unlike where the model is not known: see `refusals`."""
    return {
        CONFIG: json.dumps(configuration(contents), indent=2) + "\n",
        MODEL: model_text(contents),
        SCRIPT: _script(contents),
    }


def program(_contents: PlanFile) -> Program:
    """The script, started by torchrun."""
    return Program(words=(SCRIPT,), requirements=("torch>=2.11", f"deepspeed=={VERSION}.*", "transformers>=5.10,<6"))


def refusals(contents: PlanFile) -> Iterator[str]:
    """What it cannot express of the model and the job, and of the plan what depends on both."""
    try:
        hf_config(contents.model)
    except Unlike as reason:
        yield str(reason)
    yield from unlike_job(contents.workload)
    yield from _unlike_plan(contents.plan, contents.workload)


def _unlike_plan(plan: Plan, workload: Workload) -> Iterator[str]:
    if plan.tp > 1 and plan.sharding not in TENSOR_STAGES:
        yield f"its tensor parallelism goes with ZeRO 1 and 2, not with ZeRO-3: tp {plan.tp}"
    if plan.tp > 1 and plan.cp > 1:
        yield f"it has tensor or sequence parallelism, not both: tp {plan.tp}, cp {plan.cp}"
    if plan.cp > 1 and workload.attention == "math":
        yield "its sequence parallelism needs a fused attention"
    if plan.dp_replicate > 1 and plan.sharding != Sharding.NONE:
        yield "it shards over all data-parallel ranks: sharding with replicas is not written"
    if workload.state == "16bit" and plan.sharding == Sharding.NONE:
        yield "16-bit states need ZeRO"


TRAINER = Trainer("deepspeed", "hf-deepspeed", WRITTEN_FOR, files, program, refusals)


def configuration(contents: PlanFile) -> dict[str, Any]:
    """The keys of deepspeed.json; what is not named stays at DeepSpeed's defaults."""
    plan, workload = contents.plan, contents.workload
    config: dict[str, Any] = {
        # with tensor parallelism it counts every rank as one with sequences of its own, and refuses the right number
        **({"train_batch_size": workload.global_batch_size} if plan.tp == 1 else {}),
        "train_micro_batch_size_per_gpu": int(plan.micro_batch_size),
        "gradient_accumulation_steps": int(plan.num_microbatches),
        "gradient_clipping": 1.0,
        "optimizer": OPTIMIZERS[workload.optimizer],
        **_precision(workload),
        "zero_optimization": _zero(plan),
    }
    if plan.tp > 1:
        config["tensor_parallel"] = {"autotp_size": int(plan.tp)}
    if plan.cp > 1:
        config["sequence_parallel_size"] = int(plan.cp)
    if workload.optimizer != "adamw":
        config["zero_allow_untested_optimizer"] = True
    return config


def _precision(workload: Workload) -> dict[str, Any]:
    if workload.precision == "fp32":
        return {}
    settings: dict[str, Any] = {"enabled": True}
    if workload.state == "16bit":
        settings |= {f"{workload.precision}_master_weights_and_grads": True}
        settings |= {"bf16_optimizer_states": True} if workload.precision == "bf16" else {}
    return {workload.precision: settings}


def _zero(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {"stage": int(plan.sharding)}
    on_host = {"device": "cpu", "pin_memory": True}
    if plan.offload != Offload.NONE:
        settings["offload_optimizer"] = on_host
    if plan.offload == Offload.ALL:
        settings["offload_param"] = on_host
    return settings


def _script(contents: PlanFile) -> str:
    plan, workload = contents.plan, contents.workload
    return filled(
        "deepspeed_train",
        preface=preface(contents, WRITTEN_FOR),
        world_size=int(plan.world_size),
        seq_len=workload.seq_len,
        micro_batch_size=int(plan.micro_batch_size),
        num_microbatches=int(plan.num_microbatches),
        tensor_size=int(plan.tp),
        sequence_size=int(plan.cp),
        checkpoint_blocks=plan.recompute == Recompute.FULL,
        compiled=bool(plan.compiled),
        dtype=TYPES[workload.precision],
        attention='"eager"' if workload.attention == "math" else '"sdpa"',
    )
