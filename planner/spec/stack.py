"""A software stack: the conventions of a training framework that change time and memory."""

from __future__ import annotations

from dataclasses import dataclass

from planner.quantities import Bytes, Count, Scalar


@dataclass(frozen=True)
class Stack:
    """Conventions under mixed precision (fp32 master weights), per parameter in bytes where it says so.

    ZeRO-3 keeps one fp32 shard of parameters (which is the master copy), gathers them in the compute precision and
    reduces gradients in `reduce_bytes`. Without it each rank holds `weight_bytes` + `gradient_bytes` per parameter,
    and the optimizer `master_bytes` + its states.
    """

    name: str
    weight_bytes: Bytes = 4.0
    """Compute weights under DDP, ZeRO-1 and ZeRO-2: 2 (16-bit copy beside a master) or 4 (torch autocast)."""
    gradient_bytes: Bytes = 4.0
    """Gradient held between micro-batches."""
    master_bytes: Bytes = 0.0
    """Master copy beside the weights: 4 where weights are 16-bit, 0 where the weights are the master."""
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
    gathered_inputs: Scalar = 2.0
    """Unsharded layer inputs (T x h) that tensor with sequence parallelism keeps at a time (DTensor: up to 6)."""
    live_parameters: Count = 0.0
    """Parameters that ZeRO-3 leaves gathered while there are so many (DeepSpeed's stage3_max_live_parameters)."""
    allocator_slack: Scalar = 1.07
    """Reserved over allocated memory."""
    context: Bytes = 0.9 * 2**30
    """Device context, libraries and workspaces outside the allocator."""
    communication_buffers: Bytes = 1.0 * 2**30
    """Buffers of the collectives library for a typical set of groups."""
    shardings: tuple[str, ...] = ("none", "zero1", "zero2", "zero3", "zero3_keep")
    schedules: tuple[str, ...] = ("none", "gpipe", "one_f_one_b", "interleaved", "zb_h1")
    context_kinds: tuple[str, ...] = ("none", "ring", "ulysses")
    sequence_parallel: bool = True
    methods: tuple[str, ...] = ("full", "lora", "qlora")
    source: str = ""
