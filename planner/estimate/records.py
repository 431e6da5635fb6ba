"""What an estimate says of each plan: memory by item, time by term."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from planner.quantities import Bytes, Number, Seconds
from planner.rows import Rows
from planner.spec.plan import Int


class Role(IntEnum):
    """Which pipeline rank: the first holds the embedding and the most micro-batches in flight, the last the head."""

    FIRST = 0
    MIDDLE = 1
    LAST = 2


class Moment(IntEnum):
    """The events of a step at which memory can peak."""

    FORWARD_END = 0
    LOSS = 1
    BACKWARD = 2
    """First backward (or recomputation) of a layer, activations still all held."""
    REDUCE = 3
    """Reduction of the root group's gradients (embedding and head), activations gone."""
    OPTIMIZER = 4


@dataclass(frozen=True, eq=False)
class MemoryUse(Rows):
    """Device memory of the fullest rank at its fullest moment, in bytes by item.

    `peak` is their sum. `role` and `moment` are codes of the rank and event of the peak; `host` is host memory per
    rank (offload, paged states). `allocated` is the most that the framework's allocator hands out at any moment, which
    need not be that of the peak. `waiting` is reserved beyond the peak while the host runs ahead of the device, and
    given back before memory runs out.
    """

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    logits: Bytes
    gather_buffers: Bytes
    communication_buffers: Bytes
    context: Bytes
    reserve: Bytes
    """Reserved but not allocated: the allocator's slack, and blocks of freed gradients, too small for activations."""
    host: Bytes
    role: Int
    moment: Int
    allocated: Bytes = 0.0
    waiting: Bytes = 0.0

    ITEMS = (
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "logits",
        "gather_buffers",
        "communication_buffers",
        "context",
        "reserve",
    )

    @property
    def peak(self) -> Bytes:
        """All items together: what the device reports as used."""
        return sum((getattr(self, name) for name in self.ITEMS), start=0.0)

    @property
    def required(self) -> Bytes:
        """Without what the allocator could give back: a run with less than this runs out of memory."""
        return self.allocated + self.context + self.communication_buffers

    @property
    def reserved(self) -> Bytes:
        """What the framework's allocator takes of the device: all but context and communication buffers."""
        return self.peak - self.context - self.communication_buffers + self.waiting


@dataclass(frozen=True, eq=False)
class StepTime(Rows):
    """Time of one optimizer step on the slowest rank, in seconds by term; `total` is their sum.

    Communication terms are the exposed part only. Every term counts all micro-batches of the step.
    """

    matmul: Seconds
    attention: Seconds
    elementwise: Seconds
    head: Seconds
    """Output projection and loss."""
    recompute: Seconds
    tp_exposed: Seconds
    cp_exposed: Seconds
    ep_exposed: Seconds
    pp_exposed: Seconds
    dp_exposed: Seconds
    """Gathers and reductions of DDP, ZeRO, FSDP and HSDP that compute does not hide."""
    bubble: Seconds
    """Waiting for the pipeline to fill and drain, and for slower stages."""
    host: Seconds
    """Where launching kernels takes longer than running them."""
    optimizer: Seconds
    offload: Seconds
    fixed: Seconds

    @property
    def total(self) -> Seconds:
        """Step time."""
        return sum((getattr(self, field.name) for field in fields(self)), start=0.0)


@dataclass(frozen=True, eq=False)
class Throughput(Rows):
    """Speed of each plan. MFU counts the model's FLOPs (causal attention halved), HFU those recomputed as well."""

    tokens_per_s: Number
    tokens_per_s_per_gpu: Number
    samples_per_s: Number
    mfu: Number
    hfu: Number
