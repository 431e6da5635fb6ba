"""A software stack: the conventions of a training framework that change time and memory, and what it can express."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from planner.quantities import Bytes, Count, Scalar
from planner.spec.plan import ContextKind, GradientSync, Offload, RankOrder, Recompute, Schedule, Sharding
from planner.spec.workload import ATTENTION_BACKENDS, METHODS, OPTIMIZERS, PRECISIONS, STATES, Workload

Names = tuple[str, ...]


def _names(kind: type[IntEnum]) -> Names:
    """The names of every member, as plans are written."""
    return tuple(member.name.lower() for member in kind)


SHARDINGS, OFFLOADS, SCHEDULES = _names(Sharding), _names(Offload), _names(Schedule)
CONTEXT_KINDS, RECOMPUTATIONS, RANK_ORDERS = _names(ContextKind), _names(Recompute), _names(RankOrder)
GRADIENT_SYNCS = _names(GradientSync)
STAGE_SPLITS = ("even", "ends", "uneven")
AXES = ("tp", "ep", "expert_tp")
ADAPTER_AXES = ("tp", "pp", "cp", "ep", "expert_tp")


@dataclass(frozen=True)
class Stack:
    """Conventions under mixed precision (fp32 master weights), per parameter in bytes where it says so, and limits.

    ZeRO-3 keeps one fp32 shard of parameters (which is the master copy), gathers them in the compute precision and
    reduces gradients in `reduce_bytes`. Without it each rank holds `weight_bytes` + `gradient_bytes` per parameter,
    and the optimizer `master_bytes` + its states.

    The fields of LIMITS say what the framework can express, by the names that plans and workloads are written with;
    what a stack does not limit it has in every form.
    """

    name: str
    weight_bytes: Bytes = 4.0
    """Compute weights under DDP, ZeRO-1 and ZeRO-2: 2 (16-bit copy beside a master) or 4 (torch autocast)."""
    gradient_bytes: Bytes = 4.0
    """Gradient held between micro-batches."""
    master_bytes: Bytes = 0.0
    """Master copy beside the weights: 4 where weights are 16-bit, 0 where the weights are the master."""
    fp16_gradient_bytes: Bytes = 0.0
    """Gradient held between micro-batches in fp16, where that is another than in bf16; 0 where it is not."""
    backward_gradient_bytes: Bytes = 0.0
    """16-bit gradients of a whole backward that wait to be added to the gradients held between micro-batches."""
    bucket_bytes: Bytes = 0.0
    """Buckets of DDP beside the gradients, where there are replicas."""
    reduction_bucket: Count = 0.0
    """Gradients that ZeRO-1 and ZeRO-2 gather before they reduce them; one bucket is filled while one is reduced."""
    gradient_bucket: Bytes = 0.0
    """Gradients that plain replicas reduce at a time (DDP's bucket_cap_mb): the last of them are full when the backward
    ends."""
    step_gradient_bytes: Bytes = 0.0
    """Copy of the rank's share of 16-bit gradients in full precision during the optimizer step."""
    reduce_bytes: Bytes = 4.0
    """Bytes per gradient element on the wire."""
    logit_bytes: Bytes = 12.0
    """Peak bytes per logit of the loss: about 6 for a fused cross-entropy, 12 for torch's on an fp32 copy."""
    logit_traffic_bytes: Bytes = 28.0
    """Memory traffic per logit, forward and backward."""
    compiled: bool = True
    """Whether element-wise kernels are fused, by torch.compile or by hand, unless a plan says otherwise."""
    elementwise_factor: Scalar = 1.0
    """Memory traffic of norms, activations and residuals, where they are fused, over one pass over their operands."""
    optimizer_traffic_bytes: Bytes = 32.0
    """Memory traffic of the optimizer per parameter (fused Adam about 32, foreach 44, a loop over tensors 60)."""
    kernels_per_layer: Scalar = 20.0
    """Operators that the host dispatches in one layer's forward, where kernels are fused (few under torch.compile, some
    50 in hand-fused Python, hardly any under CUDA graphs)."""
    selective_operators: Scalar = 1.0
    """What selective recomputation means: 1 = every second matrix product and all element-wise work (torchtitan),
    0 = the attention core alone (Megatron)."""
    early_stop: Scalar = 1.0
    """1 where full recomputation stops before the block's last matrix product (torch >= 2.1), else 0."""
    overlap_gradients: Scalar = 1.0
    """1 where the gradient reduction of DDP, ZeRO-1 and ZeRO-2 overlaps the last backward, else 0."""
    gradients_persist: Scalar = 1.0
    """1 where DDP, ZeRO-1 and ZeRO-2 hold gradient buffers through the whole step, 0 where they are freed."""
    optimizer_temporary_copies: Scalar = 0.0
    """Working copies of the local weights during the optimizer step (foreach kernels: 1; fused: 0)."""
    eager_norm_bytes: Bytes = 17.0
    """What the two norms of a layer keep per token and hidden unit, where they are not fused, beside 16-bit inputs and
    outputs: two fp32 copies each under torch's (17, with the rotary embedding's), one under Hugging Face's (8)."""
    splits_inputs: Scalar = 0.0
    """1 where tensor-parallel ranks keep a part each of what full recomputation starts from (DeepSpeed's
    partition_activations)."""
    fuses_gate: Scalar = 1.0
    """0 where fused kernels leave the gate's non-linearity and its product apart."""
    frozen_input_gradients: Scalar = 0.0
    """1 where ZeRO-3 holds the gradient of every layer's input until the backward's end, with frozen weights."""
    full_precision_residual: Scalar = 0.0
    """1 where QLoRA, its weights not sharded, keeps embedding, head and the residual stream in fp32."""
    waiting_buffers: Count = 0.0
    """Unsharded inputs of tensor-parallel reductions (T x h) whose memory waits for the device where the host runs
    ahead of it: as many as fit in its queue of kernels."""
    scatters_sends: Scalar = 0.0
    """1 where tensor-parallel ranks send a part each of what goes between pipeline stages, and gather what arrives;
    sequence parallelism sends parts in any case."""
    accumulation_bytes: Bytes = 0.0
    """Memory traffic per parameter on the rank of adding a micro-batch's gradients to those of earlier ones."""
    gathered_inputs: Scalar = 2.0
    """Unsharded layer inputs (T x h) that tensor with sequence parallelism keeps at a time (DTensor: up to 6)."""
    keeps_gathered_keys: Scalar = 1.0
    """1 where context parallelism by all-gather keeps all ranks' keys and values for backward, 0 where it keeps the
    rank's own and gathers again."""
    keeps_gathered_inputs: Scalar = 0.0
    """1 where sequence parallelism keeps gathered inputs for backward (DTensor), 0 where it gathers them again."""
    whole_embedding_gradient: Scalar = 0.0
    """1 where a vocabulary-parallel embedding's gradient has all rows at first (DTensor), 0 where only the rank's."""
    live_parameters: Count = 0.0
    """Parameters that ZeRO-3 leaves gathered while there are so many (DeepSpeed's stage3_max_live_parameters)."""
    allocator_slack: Scalar = 1.07
    """Reserved over allocated memory."""
    fragmented_flight: Scalar = 0.0
    """What is reserved beyond that for activations of micro-batches in flight, but the last, over their size."""
    context: Bytes = 0.9 * 2**30
    """Device context, libraries and workspaces outside the allocator."""
    communication_buffers: Bytes = 1.0 * 2**30
    """Buffers of the collectives library for a typical set of groups."""
    shardings: Names = SHARDINGS
    replicated_shardings: Names = SHARDINGS
    """Shardings whose group may have replicas (HSDP; plain DDP is `none`)."""
    pipeline_shardings: Names = SHARDINGS
    """Shardings that go with a pipeline."""
    tensor_shardings: Names = SHARDINGS
    """Shardings that go with tensor parallelism, where there are data-parallel ranks."""
    unsharded_groups: bool = True
    """Whether plain replicas may see parts of one sequence (CP) or be grouped for their experts (dp_shard above 1)."""
    offloads: Names = OFFLOADS
    offload_shardings: Names = SHARDINGS
    """Shardings whose states can rest in host memory."""
    schedules: Names = SCHEDULES
    """Pipeline schedules; with no other than `none` there are no pipelines."""
    short_pipelines: bool = True
    """Whether 1F1B runs with fewer micro-batches than stages."""
    tied_pipelines: bool = True
    """Whether a model whose embedding and head are one matrix is divided into stages."""
    stage_splits: Names = STAGE_SPLITS
    """Layers of the pipeline ranks: all the same, or all but the first and last, or whatever is left over."""
    context_kinds: Names = CONTEXT_KINDS
    """Forms of context parallelism; with no other than `none` there is none."""
    axes: Names = AXES
    """Which of these degrees may be above 1."""
    adapter_axes: Names = ADAPTER_AXES
    """Which degrees may be above 1 where adapters are trained (LoRA, QLoRA)."""
    copied_kv_heads: bool = True
    """Whether key-value heads are copied where TP exceeds their number."""
    free_experts: bool = True
    """Whether experts may be divided by EP and TP at once, or under TP by neither."""
    unscattered_experts: bool = True
    """Whether experts go with TP without sequence parallelism (divided by it, where they are not dealt out)."""
    sequence_parallel: bool = True
    async_tp: bool = True
    gathered_chunks: int = 0
    """Chunks of layers on a rank that a pipeline keeps gathered (ZeRO-3 kept, interleaved); 0 where it keeps any."""
    gradient_syncs: Names = GRADIENT_SYNCS
    replica_syncs: Names = GRADIENT_SYNCS
    """How often plain replicas reduce gradients of several micro-batches without a pipeline."""
    pipeline_syncs: Names = GRADIENT_SYNCS
    """How often gradients can be reduced in a pipeline."""
    recomputations: Names = RECOMPUTATIONS
    rank_orders: Names = RANK_ORDERS
    free_orders: bool = True
    """Whether stages may stand inside the replicas whatever the groups of experts."""
    methods: Names = METHODS
    optimizers: Names = OPTIMIZERS
    precisions: Names = PRECISIONS
    states: Names = STATES
    attentions: Names = ATTENTION_BACKENDS
    source: str = ""


WORKLOAD_LIMITS: Mapping[str, str] = {
    "method": "methods",
    "optimizer": "optimizers",
    "precision": "precisions",
    "state": "states",
    "attention": "attentions",
}
"""Field of a workload -> the limit of a stack that it is held against."""
_WORDS = {"optimizer": "optimizer {}", "precision": "precision {}", "state": "{} states", "attention": "{} attention"}
LIMITS = (
    *("shardings", "replicated_shardings", "pipeline_shardings", "tensor_shardings", "unsharded_groups"),
    *("offloads", "offload_shardings", "schedules", "short_pipelines", "tied_pipelines", "stage_splits"),
    *("context_kinds", "axes", "adapter_axes", "copied_kv_heads", "free_experts", "unscattered_experts"),
    *("sequence_parallel", "async_tp", "free_orders"),
    *("gathered_chunks", "gradient_syncs", "replica_syncs", "pipeline_syncs", "recomputations", "rank_orders"),
    *WORKLOAD_LIMITS.values(),
)
"""The fields of a Stack that say what it can express."""


def unsupported(stack: Stack, workload: Workload) -> dict[str, str]:
    """What a stack cannot do of a job, whatever the plan: field of the workload -> the reason; empty if it can all.

    >>> unsupported(Stack("torchtitan", methods=("full",)), Workload(8, 4096, method="lora"))
    {'method': 'torchtitan has no lora; it has: full'}
    """
    missing: dict[str, str] = {}
    for field, limit in WORKLOAD_LIMITS.items():
        asked, known = getattr(workload, field), getattr(stack, limit)
        if asked not in known:
            what = _WORDS.get(field, "{}").format(asked)
            missing[field] = f"{stack.name} has no {what}; it has: {', '.join(known)}"
    return missing
