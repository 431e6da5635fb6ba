"""DeepSpeed's JSON read as settings. Defaults: DeepSpeed 0.19.8, runtime/config.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.emit.reading.script import SCRIPT, constants, job_of
from planner.emit.reading.settings import Settings, Source, model_beside, text_of
from planner.spec.plan import ContextKind, Offload, Recompute, Sharding

SIGNS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
AUTO = "auto"
"""What the Hugging Face Trainer fills in from its own arguments."""
OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd", "lion": "lion", "muon": "muon"}

Keys = Mapping[str, Any]


def reads(data: Any) -> bool:
    """Whether data is such a configuration."""
    return isinstance(data, Mapping) and any(sign in data for sign in SIGNS)


def read_file(path: Path) -> Settings:
    """The settings of a file. Raises FileFormatError where it is no such file."""
    source = Source(path)
    try:
        data = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise source.error(f"is not JSON: {error}") from error
    if not reads(data):
        raise source.error("is no configuration of DeepSpeed")
    return read(data, source, constants(path.with_name(SCRIPT)))


def read(data: Keys, source: Source, script: Keys, *, world_size: int = 0) -> Settings:
    """The settings. Raises FileFormatError for values of a wrong kind."""
    zero = _group(data, "zero_optimization", source)
    stage = source.whole("zero_optimization.stage", zero.get("stage", 0))
    if stage not in (0, 1, 2, 3):
        raise source.error(f"zero_optimization.stage should be 0 to 3, not {stage}")
    full = bool(script.get("CHECKPOINT_BLOCKS", False))
    return Settings(
        what="DeepSpeed configuration",
        stack="hf-deepspeed",
        plan={
            "sharding": Sharding(stage),
            "offload": _offload(zero),
            **_degrees(data, source),
            **dict(_batch(data, source)),
            "recompute": Recompute.FULL if full else Recompute.NONE,
            "compiled": int(bool(script.get("COMPILED", False))),
        },
        job={**job_of(script), **dict(_job(data, source))},
        world_size=world_size or _world(script),
        model=model_beside(source.path),
        untold=tuple(_untold(data, zero, script)),
    )


def _world(script: Keys) -> int:
    size = script.get("WORLD_SIZE", 0)
    return size if isinstance(size, int) else 0


def _group(data: Keys, name: str, source: Source) -> Keys:
    group = data.get(name, {})
    if not isinstance(group, Mapping):
        raise source.error(f"{name} should hold keys")
    return group


def _offload(zero: Keys) -> int:
    def away(name: str) -> bool:
        part = zero.get(name)
        return isinstance(part, Mapping) and part.get("device", "none") not in (None, "none")

    if away("offload_param"):
        return Offload.ALL
    return Offload.OPTIMIZER if away("offload_optimizer") or zero.get("cpu_offload") is True else Offload.NONE


def _degrees(data: Keys, source: Source) -> dict[str, int]:
    tensor = _group(data, "tensor_parallel", source)
    sequences = source.whole("sequence_parallel_size", data.get("sequence_parallel_size", 1))
    return {
        "tp": max(source.whole("tensor_parallel.autotp_size", tensor.get("autotp_size", 1)), 1),
        "cp": sequences,
        "context_kind": ContextKind.ULYSSES if sequences > 1 else ContextKind.NONE,
    }


def _batch(data: Keys, source: Source) -> Iterator[tuple[str, int]]:
    names = {"micro_batch_size": "train_micro_batch_size_per_gpu", "num_microbatches": "gradient_accumulation_steps"}
    for field, name in names.items():
        if data.get(name, AUTO) != AUTO:
            yield field, source.whole(name, data[name])


def _job(data: Keys, source: Source) -> Iterator[tuple[str, Any]]:
    if data.get("train_batch_size", AUTO) != AUTO:
        yield "global_batch_size", source.whole("train_batch_size", data["train_batch_size"])
    for precision in ("bf16", "fp16"):
        group = _group(data, precision, source)
        if group.get("enabled") is True:
            yield "precision", precision
            if group.get(f"{precision}_master_weights_and_grads") is True:
                yield "state", "16bit"
            break
    else:
        if not any(_group(data, precision, source).get("enabled") == AUTO for precision in ("bf16", "fp16")):
            yield "precision", "fp32"
    optimizer = _group(data, "optimizer", source)
    name = OPTIMIZERS.get(str(optimizer.get("type", "")).lower())
    if name:
        momentum = name == "sgd" and bool(_group(optimizer, "params", source).get("momentum"))
        yield "optimizer", "sgd-momentum" if momentum else name


def _untold(data: Keys, zero: Keys, script: Keys) -> Iterator[str]:
    auto = [key for key, value in data.items() if value == AUTO]
    if auto:
        yield f"{', '.join(auto)}: left to the Trainer's arguments"
    if "CHECKPOINT_BLOCKS" not in script:
        yield "whether activations are computed again is the script's; taken: no"
    for name in ("zero_hpz_partition_size", "mics_shard_size"):
        if zero.get(name, 0) not in (0, 1, -1):
            yield f"{name} keeps copies within groups of {zero[name]}; here all ranks share one"
    if isinstance(zero.get("offload_param"), Mapping) and zero["offload_param"].get("device") == "nvme":
        yield "what rests on NVMe counts as resting in host memory"
