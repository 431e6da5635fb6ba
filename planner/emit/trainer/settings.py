"""What a plan.json says, as the trainer needs it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

PRECISIONS = ("bf16", "fp16", "tf32", "fp32")
CONTEXT_KINDS = ("none", "all_gather", "ulysses")
PIPELINE_SCHEDULES = {
    "gpipe": "GPipe",
    "one_f_one_b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "interleaved_zb": "InterleavedZeroBubble",
    "zb_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
"""Schedule of a plan, or of `--schedule` -> the class of torch.distributed.pipelining."""


class Refusal(Exception):
    """What the trainer cannot do, in one line that says what would be right."""


class Agreed(Refusal):
    """The same on every rank, so that one of them has to say it."""


@dataclass(frozen=True)
class Latent:
    """Dimensions of multi-head latent attention; `q_lora_rank` 0: queries are projected directly."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class Layer:
    """Dimensions of one decoder layer. `intermediate_size` 0: no dense block; `num_experts` 0: no experts."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    gated: bool = True
    num_experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    expert_gated: bool = True
    latent: Latent | None = None


@dataclass(frozen=True)
class Model:
    """Dimensions of a decoder (or, without `causal`, of an encoder of the same build)."""

    name: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    tie_word_embeddings: bool = False
    causal: bool = True


@dataclass(frozen=True)
class Plan:
    """The plan's fields, named as in plan.json; kinds by name."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int = 1
    dp_shard: int = 1
    dp_replicate: int = 1
    micro_batch_size: int = 1
    num_microbatches: int = 1
    virtual_stages: int = 1
    first_stage_layers: int = 0
    last_stage_layers: int = 0
    sharding: str = "none"
    recompute: str = "none"
    schedule: str = "none"
    context_kind: str = "none"
    offload: str = "none"
    gradient_sync: str = "usual"
    rank_order: str = "tp_cp_dp_pp"
    sequence_parallel: bool = False
    async_tp: bool = False
    compiled: bool = False

    @property
    def dp(self) -> int:
        """Data-parallel degree: ranks that see different sequences."""
        return self.dp_shard * self.dp_replicate

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def shards(self) -> bool:
        """Whether parameters are divided (FSDP) and not replicated."""
        return self.sharding in ("zero3", "zero3_keep")

    @property
    def replicas(self) -> int:
        """Copies of each parameter among the ranks of dp and cp."""
        return self.dp_replicate if self.shards else self.dp * self.cp

    @property
    def shard_group(self) -> int:
        """Ranks that divide each parameter."""
        return self.dp_shard * self.cp if self.shards else 1

    @property
    def plain_ddp(self) -> bool:
        """Whether DistributedDataParallel will do: nothing but replicas."""
        return not self.shards and self.tp * self.pp * self.cp * self.ep == 1

    @property
    def global_batch_size(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch_size * self.num_microbatches * self.dp


@dataclass(frozen=True)
class Settings:
    """Model, plan and workload, and what was predicted of them (the keys of `prediction` in plan.json)."""

    model: Model
    plan: Plan
    seq_len: int
    precision: str = "bf16"
    state: str = "mixed"
    optimizer: str = "adamw"
    method: str = "full"
    lora_rank: int = 16
    attention: str = "flash"
    prediction: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_settings(path: Path) -> Settings:
    """The settings of a plan.json. Raises Refusal for what cannot be read or run."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        settings = _settings(data)
    except (OSError, ValueError) as error:
        raise Refusal(f"{path}: cannot be read: {error}") from error
    except (KeyError, TypeError) as error:
        raise Agreed(f"{path}: is no plan.json: {error!r} is missing or of another type") from error
    for reason in refusals(settings):
        raise Agreed(f"{path}: {reason}")
    return settings


def refusals(settings: Settings) -> Iterator[str]:
    """What of a plan this trainer cannot run, in words."""
    plan = settings.plan
    allowed = {
        "sharding": (plan.sharding, ("none", "zero3", "zero3_keep")),
        "precision": (settings.precision, PRECISIONS),
        "optimizer": (settings.optimizer, ("adamw", "sgd", "sgd-momentum")),
        "method": (settings.method, ("full", "lora")),
        "context_kind": (plan.context_kind, CONTEXT_KINDS),
        "offload": (plan.offload, ("none", "all")),
        "schedule": (plan.schedule, ("none", *PIPELINE_SCHEDULES)),
    }
    for name, (value, known) in allowed.items():
        if value not in known:
            yield f"{name} {value} is not supported; possible: {', '.join(known)}"
    if plan.offload == "all" and not plan.shards:
        yield f"offload all needs parameters that are sharded (zero3), not sharding {plan.sharding}"
    if settings.method == "lora" and plan.tp * plan.pp * plan.ep > 1:
        yield "LoRA adapters need TP, PP and EP of 1"


def with_world_size(settings: Settings, world_size: int, *, elastic: bool) -> Settings:
    """The settings for so many processes; with `elastic` the replicas follow them at the same global batch.

    Raises Refusal where the degrees do not multiply to the number of processes.
    """
    plan = settings.plan
    if plan.world_size == world_size:
        return settings
    rest = plan.world_size // plan.dp_replicate
    product = (
        f"tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp_shard {plan.dp_shard} x dp_replicate {plan.dp_replicate}"
    )
    if not elastic or world_size % rest:
        raise Agreed(f"the plan is for {plan.world_size} processes ({product}), but {world_size} were started")
    replicas = world_size // rest
    per_micro_batch = plan.micro_batch_size * plan.dp_shard * replicas
    if plan.global_batch_size % per_micro_batch:
        raise Agreed(
            f"{replicas} replicas do not divide the global batch of {plan.global_batch_size} sequences "
            f"in micro-batches of {plan.micro_batch_size}"
        )
    micro_batches = plan.global_batch_size // per_micro_batch
    return replace(settings, plan=replace(plan, dp_replicate=replicas, num_microbatches=micro_batches))


def with_schedule(plan: Plan, schedule: str | None) -> Plan:
    """The plan under another pipeline schedule, with the chunks that it runs. Raises Refusal where it cannot."""
    wanted = schedule or plan.schedule
    if wanted == "none":
        return plan
    if plan.pp == 1:
        raise Agreed(f"--schedule {wanted}: the plan has no pipeline")
    chunks = {"gpipe": 1, "one_f_one_b": 1, "zb_v": 2, "dualpipe_v": 2}.get(wanted, max(2, plan.virtual_stages))
    if wanted in ("interleaved", "interleaved_zb") and plan.num_microbatches % plan.pp:
        raise Agreed(f"--schedule {wanted}: {plan.num_microbatches} micro-batches are no multiple of pp {plan.pp}")
    if wanted == "one_f_one_b" and plan.num_microbatches < plan.pp:
        raise Agreed(f"--schedule {wanted}: {plan.num_microbatches} micro-batches are fewer than pp {plan.pp}")
    return replace(plan, schedule=wanted, virtual_stages=chunks)


def _settings(data: Mapping[str, Any]) -> Settings:
    workload = data["workload"]
    names = ("seq_len", "precision", "state", "optimizer", "method", "lora_rank", "attention")
    return Settings(
        model=_model(data["model"]),
        plan=_plan(data["plan"]),
        prediction=data.get("prediction", {}),
        notes=tuple(_notes(data["model"], workload["seq_len"])),
        **{name: workload[name] for name in names},
    )


def _plan(data: Mapping[str, Any]) -> Plan:
    """The plan. Raises TypeError for a field of another type or a degree below 1."""
    values = {each.name: data[each.name] for each in fields(Plan)}
    for each in fields(Plan):
        value, usual = values[each.name], each.default
        smallest = 1 if usual == 1 else 0
        if not isinstance(value, type(usual)) or (isinstance(value, int) and value < smallest):
            raise TypeError(f"plan.{each.name}: {value!r}")
    return Plan(**values)


def _notes(model: Mapping[str, Any], seq_len: int) -> Iterator[str]:
    """What is built otherwise than the model says, in words."""
    windows = {entry["layer"]["attention"]["sliding_window"] for entry in model["layers"]} - {None}
    if any(window < seq_len for window in windows):
        yield f"sliding windows of {min(windows):,} tokens are computed as full attention"
    if model["left_out"]:
        yield f"not built: {', '.join(model['left_out'])}"


def _model(data: Mapping[str, Any]) -> Model:
    layers = [_layer(entry["layer"]) for entry in data["layers"] for _ in range(entry["count"])]
    return Model(
        name=data["name"],
        hidden_size=data["hidden_size"],
        vocab_size=data["vocab_size"],
        layers=tuple(layers),
        tie_word_embeddings=data["tie_word_embeddings"],
        causal=data["kind"] == "decoder",
    )


def _layer(data: Mapping[str, Any]) -> Layer:
    attention, mlp, experts = data["attention"], data["mlp"] or {}, data["experts"] or {}
    expert = experts.get("expert", {})
    if data["cross_attention"]:
        raise Agreed("encoder-decoder models are not built here")
    return Layer(
        num_attention_heads=attention["num_attention_heads"],
        num_key_value_heads=attention["num_key_value_heads"],
        head_dim=attention["head_dim"],
        intermediate_size=mlp.get("intermediate_size", 0),
        gated=mlp.get("gated", True),
        num_experts=experts.get("num_experts", 0),
        experts_per_token=experts.get("experts_per_token", 0),
        expert_size=expert.get("intermediate_size", 0),
        expert_gated=expert.get("gated", True),
        latent=Latent(**attention["latent"]) if attention["latent"] else None,
    )
