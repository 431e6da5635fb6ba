"""accelerate's YAML read as settings: FSDP (both versions), DDP, and DeepSpeed named in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.emit.reading import deepspeed
from planner.emit.reading.script import SCRIPT, constants, job_of
from planner.emit.reading.settings import Settings, Source, model_beside
from planner.spec.plan import ContextKind, GradientSync, Offload, Recompute, Sharding

SIGNS = ("distributed_type", "fsdp_config", "deepspeed_config", "parallelism_config")
STRATEGIES = {
    "FULL_SHARD": Sharding.ZERO3,
    "SHARD_GRAD_OP": Sharding.ZERO3_KEEP,
    "HYBRID_SHARD": Sharding.ZERO3,
    "HYBRID_SHARD_ZERO2": Sharding.ZERO3_KEEP,
    "NO_SHARD": Sharding.NONE,
}
"""fsdp_sharding_strategy of version 1; it could be a number from 1 too."""
CONTEXT_KINDS = {"allgather": ContextKind.ALL_GATHER, "alltoall": ContextKind.RING}
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", "fp8": "fp8"}

Keys = Mapping[str, Any]


def reads(data: Any) -> bool:
    """Whether data is such a configuration."""
    return isinstance(data, Mapping) and any(sign in data for sign in SIGNS)


def read(data: Keys, source: Source) -> Settings:
    """The settings. Raises FileFormatError for values of a wrong kind."""
    script = constants(source.path.with_name(SCRIPT))
    if data.get("distributed_type") == "DEEPSPEED" or data.get("deepspeed_config"):
        return _deepspeed(data, source, script)
    fsdp = _group(data, "fsdp_config", "fsdp_") if data.get("distributed_type") == "FSDP" else {}
    mesh = _group(data, "parallelism_config", "parallelism_config_")
    plan = {**_degrees(mesh, source), **_sharding(fsdp, source), **_script_plan(script, sharded=bool(fsdp))}
    full = source.truth("fsdp_activation_checkpointing", fsdp.get("activation_checkpointing", False))
    recomputed = full or bool(script.get("CHECKPOINT_BLOCKS", False))
    return Settings(
        what="accelerate configuration",
        stack="hf-fsdp" if fsdp else "hf",
        plan={
            **plan,
            "recompute": Recompute.FULL if recomputed else Recompute.NONE,
            "compiled": int(_compiled(data)),
        },
        job={**job_of(script), **_precision(data, script, source)},
        world_size=source.whole("num_processes", data.get("num_processes", 0)),
        model=model_beside(source.path),
        untold=tuple(_untold(fsdp, script)),
    )


def _group(data: Keys, name: str, prefix: str) -> dict[str, Any]:
    """A group of keys, their prefix left out."""
    group = data.get(name) or {}
    return {str(key).removeprefix(prefix): value for key, value in group.items()} if isinstance(group, Mapping) else {}


def _degrees(mesh: Keys, source: Source) -> dict[str, int]:
    def size(name: str) -> int:
        return source.whole(name, mesh.get(name, 1) or 1)

    ulysses, cp = size("sp_size"), size("cp_size")
    degrees = {"tp": size("tp_size"), "cp": max(cp, ulysses), "context_kind": int(ContextKind.NONE)}
    if ulysses > 1:
        degrees["context_kind"] = ContextKind.ULYSSES
    elif cp > 1:
        strategy = mesh.get("cp_comm_strategy", "allgather")
        degrees["context_kind"] = source.one_of("parallelism_config_cp_comm_strategy", strategy, CONTEXT_KINDS)
    if mesh:
        degrees |= {"dp_shard": size("dp_shard_size"), "dp_replicate": size("dp_replicate_size")}
    return degrees


def _sharding(fsdp: Keys, source: Source) -> dict[str, int]:
    if not fsdp:
        return {"sharding": Sharding.NONE}
    offload = source.truth("fsdp_offload_params", fsdp.get("offload_params", False))
    states: dict[str, int] = {"offload": Offload.ALL if offload else Offload.NONE}
    reshard = fsdp.get("reshard_after_forward", True)
    if source.whole("fsdp_version", fsdp.get("version", 1)) == 1 or "sharding_strategy" in fsdp:
        named = fsdp.get("sharding_strategy", reshard if isinstance(reshard, str) else "FULL_SHARD")
        by_number = dict(
            zip("12345", ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"), strict=True)
        )
        return states | {"sharding": source.one_of("sharding strategy", by_number.get(str(named), named), STRATEGIES)}
    again = source.truth("fsdp_reshard_after_forward", reshard)
    return states | {"sharding": Sharding.ZERO3 if again else Sharding.ZERO3_KEEP}


def _script_plan(script: Keys, *, sharded: bool) -> dict[str, int]:
    """Micro-batches, and how often gradients are reduced, from the script beside."""
    plan = {}
    for name, constant in (("micro_batch_size", "MICRO_BATCH_SIZE"), ("num_microbatches", "NUM_MICROBATCHES")):
        if isinstance(script.get(constant), int):
            plan[name] = script[constant]
    every = script.get("REDUCE_EVERY_MICROBATCH")
    if every is not None and bool(every) != sharded:
        plan["gradient_sync"] = GradientSync.EVERY if every else GradientSync.ONCE
    return plan


def _precision(data: Keys, script: Keys, source: Source) -> dict[str, Any]:
    mixed = data.get("mixed_precision")
    text = "no" if mixed is None or mixed is False else str(mixed)
    precision = source.one_of("mixed_precision", text, PRECISIONS)
    half = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(str(script.get("DTYPE")))
    return {"precision": half, "state": "16bit"} if half else {"precision": precision}


def _compiled(data: Keys) -> bool:
    backend = str(_group(data, "dynamo_config", "dynamo_").get("backend", "no"))
    return backend.lower() not in ("no", "")


def _deepspeed(data: Keys, source: Source, script: Keys) -> Settings:
    """The keys that accelerate has for DeepSpeed, or the file that they name."""
    keys = data.get("deepspeed_config") or {}
    if not isinstance(keys, Mapping):
        raise source.error("deepspeed_config should hold keys")
    named = keys.get("deepspeed_config_file")
    if named:
        return deepspeed.read_file(source.path.with_name(str(named)))
    settings: dict[str, Any] = {
        "zero_optimization": {"stage": keys.get("zero_stage", 0)},
        "gradient_accumulation_steps": keys.get("gradient_accumulation_steps", 1),
    }
    for name in ("optimizer", "param"):
        if keys.get(f"offload_{name}_device", "none") not in (None, "none"):
            settings["zero_optimization"][f"offload_{name}"] = {"device": keys[f"offload_{name}_device"]}
    mixed = data.get("mixed_precision")
    if mixed in ("bf16", "fp16"):
        settings[mixed] = {"enabled": True}
    world = source.whole("num_processes", data.get("num_processes", 0))
    return deepspeed.read(settings, source, script, world_size=world)


def _untold(fsdp: Keys, script: Keys) -> list[str]:
    untold = []
    if "MICRO_BATCH_SIZE" not in script:
        untold.append("micro-batch, accumulation and sequence length are the script's")
    if str(fsdp.get("sharding_strategy", "")).startswith("HYBRID") or str(fsdp.get("sharding_strategy")) in ("4", "5"):
        untold.append("how many ranks hold one copy of the model; taken: those of a node")
    return untold
