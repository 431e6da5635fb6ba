"""The plan, the workload and the conventions that a completed row states."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from planner.catalogue.stacks import stack
from planner.spec.model import Model
from planner.spec.plan import ContextKind, Offload, Plan, Recompute, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.validate.columns import Stated
from planner.validate.complete import SkippedRun
from planner.validate.defaults import run_defaults

SHARDINGS = {
    "none": Sharding.NONE,
    "ddp": Sharding.NONE,
    "zero1": Sharding.ZERO1,
    "zero2": Sharding.ZERO2,
    "zero3": Sharding.ZERO3,
    "hsdp": Sharding.ZERO3,
}
RECOMPUTATIONS = {
    "none": Recompute.NONE,
    "selective": Recompute.SELECTIVE,
    "full": Recompute.FULL,
    "block": Recompute.FULL,
}
OFFLOADS = {"optimizer": Offload.OPTIMIZER, "true": Offload.ALL, "full": Offload.ALL, "all": Offload.ALL}
ATTENTIONS = {"false": "math", "0": "math", "flash": "flash", "sdpa": "sdpa", "math": "math"}
FUSED = ("true", "1")
KEEPS_GATHERED = ("SHARD_GRAD_OP",)
"""Words in `other` for weights that stay gathered from forward to backward."""
ASYNC_TP = ("tp-comm-overlap", "async tp", "tp async")
"""Words in `other` for tensor parallelism whose transfers run beside its products."""
FUSED_KERNELS = ("fused kernels",)
"""Words in `other` for norms, rotation and loss fused by hand, as a compiler would."""
ULYSSES = ("cp a2a", "ulysses")
ADAPTER_RANK = re.compile(r"lora r(\d+)")
CONVENTIONS: dict[str, dict[str, Any]] = {
    "mixed_precision=PURE": {"reduce_bytes": 2.0},
    "mixed_precision=DEFAULT": {"reduce_bytes": 4.0},
    "fused CE": {"logit_bytes": 6.0, "logit_traffic_bytes": 8.0},
    "fused kernels": {"logit_bytes": 8.0, "logit_traffic_bytes": 10.0, "fuses_gate": 0.0},
    "liger fused loss": {"logit_bytes": 0.0, "logit_traffic_bytes": 8.0},
    "accelerated-peft": {"full_precision_residual": 0.0},
    "partition-activations": {"splits_inputs": 1.0},
}
"""Words in `other` for conventions of `Stack` that they change: reduction as Composer names it; a loss on 16-bit logits
with an fp32 copy and 16-bit gradients (8 bytes), or computed in chunks that never hold all logits (0); a plugin
that loads quantized weights without preparing the rest in fp32; later ones win."""
OPTIMIZERS = {"paged_adamw_8bit": "adamw-8bit-paged", "adamw_8bit": "adamw-8bit", "adamw8bit": "adamw-8bit"}
"""Words for optimizers, in `optimizer` or `other`."""


def run_stack(filled: Stated) -> Stack:
    """The row's stack, with what `other` says of its loss and of the precision that gradients travel in."""
    changes = [change for words, change in CONVENTIONS.items() if _says(filled, (words,))]
    found = stack(filled.stack)
    for change in changes:
        found = replace(found, **change)
    return found


def run_workload(filled: Stated) -> Workload:
    """The job of a completed row. Raises SpecError for words outside the vocabulary."""
    words = filled.other.lower()
    rank = ADAPTER_RANK.search(words)
    named = [name for word, name in OPTIMIZERS.items() if word in words]
    optimizer = OPTIMIZERS.get(filled.optimizer, filled.optimizer)
    return Workload(
        global_batch_size=filled.global_batch,
        seq_len=filled.seq_len,
        precision=filled.precision_compute,
        state=filled.precision_state,
        optimizer=named[0] if named and optimizer == "adamw" else optimizer,
        method=filled.method,
        lora_rank=int(rank[1]) if rank else 16,
        attention=_attention(filled),
        dropout=bool(filled.dropout),
    )


def run_plan(filled: Stated, model: Model) -> Plan:
    """The plan of a completed row; a scalar record. Raises SkippedRun for what a plan cannot say."""
    defaults = run_defaults(filled.stack)
    sharding = _sharding(filled)
    shard = _shard_degree(filled, sharding)
    expert_tp = _expert_tp(filled, defaults.expert_tp) if model.has_experts else 1
    first, last = _stages_by_cost(filled) if defaults.stages == "cost" else _end_stages(filled)
    return Plan(
        tp=filled.tp,
        pp=filled.pp,
        cp=filled.cp,
        ep=filled.ep if model.has_experts else 1,
        expert_tp=expert_tp,
        dp_shard=shard,
        dp_replicate=filled.dp // shard,
        micro_batch_size=filled.micro_batch,
        num_microbatches=filled.grad_accum,
        virtual_stages=filled.vpp if filled.pp > 1 else 1,
        first_stage_layers=first,
        last_stage_layers=last,
        sharding=sharding,
        recompute=_chosen(RECOMPUTATIONS, filled.recompute_mode, "recompute_mode"),
        schedule=_schedule(filled),
        context_kind=_context(filled),
        offload=OFFLOADS.get(filled.cpu_offload.lower(), Offload.NONE),
        sequence_parallel=int(bool(filled.sequence_parallel) and filled.tp > 1),
        async_tp=int(_says(filled, ASYNC_TP) and filled.tp > 1),
        compiled=int(bool(filled.compile) or defaults.fused or _says(filled, FUSED_KERNELS)),
    )


def _attention(filled: Stated) -> str:
    """Backend of attention; "true" says fused, and the stack says by which kernel."""
    word = filled.flash_attention.lower()
    own = run_defaults(filled.stack).attention
    fused = "sdpa" if own == "math" else own
    return fused if word in FUSED else str(_chosen(ATTENTIONS, word, "flash_attention"))


def _chosen(vocabulary: dict[str, Any], word: str, column: str) -> Any:
    if word not in vocabulary:
        raise SkippedRun(f"{column} {word!r} is none of {', '.join(vocabulary)}")
    return vocabulary[word]


def _says(filled: Stated, words: tuple[str, ...]) -> bool:
    return any(word.lower() in filled.other.lower() for word in words)


def _sharding(filled: Stated) -> Sharding:
    sharding = Sharding(_chosen(SHARDINGS, filled.sharding, "sharding"))
    in_pipeline = filled.pp > 1 and sharding is Sharding.ZERO3 and run_defaults(filled.stack).keeps_gathered
    return Sharding.ZERO3_KEEP if in_pipeline or _says(filled, KEEPS_GATHERED) else sharding


def _shard_degree(filled: Stated, sharding: Sharding) -> int:
    """Ranks of dp that share parameters or states; a stated shard group may count those of cp too."""
    if sharding is Sharding.NONE:
        return 1
    within = filled.shard_size // filled.cp if filled.shard_size > filled.dp else filled.shard_size
    if filled.sharding == "hsdp" and filled.shard_size == filled.dp:
        within = min(filled.gpus_per_node or filled.dp, filled.dp)
    if not within or filled.dp % within:
        raise SkippedRun(f"shard_size {filled.shard_size} does not divide dp {filled.dp}")
    return within


def _expert_tp(filled: Stated, usual: str) -> int:
    """Degree that divides each expert: by the stack's custom where the ranks allow it."""
    if usual == "tp" and (filled.dp * filled.cp) % filled.ep == 0:
        return filled.tp
    if (filled.dp * filled.cp * filled.tp) % filled.ep:
        raise SkippedRun(f"ep {filled.ep} does not divide dp x cp x tp = {filled.dp * filled.cp * filled.tp}")
    return 1 if filled.ep > 1 or usual != "tp" else filled.tp


def _end_stages(filled: Stated) -> tuple[int, int]:
    """Layers of the first and last rank where embedding and head take a layer's place; 0, 0 where they do not."""
    chunks = filled.pp * max(filled.vpp, 1)
    if filled.pp == 1 or filled.layers % chunks == 0 or (filled.layers + 2) % chunks:
        return 0, 0
    each = (filled.layers + 2) // filled.pp - 1
    return each, each


def _stages_by_cost(filled: Stated) -> tuple[int, int]:
    """Layers of the first and last rank where each takes blocks until their cumulated cost passes its share.

    A last rank that is left the head alone counts as one of a single layer.
    """
    head_size = filled.hidden // filled.heads
    layer = 4 * filled.heads * head_size * filled.hidden + 3 * filled.ffn_hidden * filled.hidden
    total = filled.layers * layer + filled.vocab * filled.hidden
    ends = [min(total * (rank + 1) // (filled.pp * layer) + 1, filled.layers) for rank in range(filled.pp)]
    if filled.pp == 1 or ends[0] >= filled.layers:
        return 0, 0
    return ends[0], max(filled.layers - ends[-2], 1)


def _schedule(filled: Stated) -> Schedule:
    """The order of a pipeline; schedules that are not modelled count as the zero-bubble one that is."""
    if filled.pp == 1:
        return Schedule.NONE
    word = filled.pp_schedule.lower()
    if filled.vpp > 1 or word.startswith("interleaved"):
        return Schedule.INTERLEAVED
    if word in ("gpipe", "afab"):
        return Schedule.GPIPE
    return Schedule.ZB_H1 if word.startswith(("zb", "v-", "dualpipe")) else Schedule.ONE_F_ONE_B


def _context(filled: Stated) -> ContextKind:
    if filled.cp == 1:
        return ContextKind.NONE
    return ContextKind.ULYSSES if _says(filled, ULYSSES) else ContextKind.RING
