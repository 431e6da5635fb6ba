"""A plan: how one training step is laid out on the ranks. One plan or a column of a million."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from planner.quantities import Column
from planner.rows import Rows

Int = int | Column
"""A count or degree: an int, or a column of ints."""


class Sharding(IntEnum):
    """What the `dp_shard` group divides among its ranks."""

    NONE = 0
    """Nothing: plain replicas (DDP)."""
    ZERO1 = 1
    """Optimizer states (Megatron's distributed optimizer)."""
    ZERO2 = 2
    """Optimizer states and gradients."""
    ZERO3 = 3
    """Parameters too, gathered again for backward (FSDP, reshard_after_forward=True)."""
    ZERO3_KEEP = 4
    """Parameters too, but kept gathered from forward to backward (reshard_after_forward=False)."""


class Recompute(IntEnum):
    """Which activations are computed again in backward."""

    NONE = 0
    SELECTIVE = 1
    """The cheap-to-recompute part of each layer (attention scores; norms and activations under flash attention)."""
    FULL = 2
    """Whole layers: only each layer's input is kept."""


class Schedule(IntEnum):
    """Order of a pipeline's forwards and backwards."""

    NONE = 0
    """One stage."""
    GPIPE = 1
    ONE_F_ONE_B = 2
    INTERLEAVED = 3
    ZB_H1 = 4


class ContextKind(IntEnum):
    """How context parallelism exchanges keys and values."""

    NONE = 0
    RING = 1
    """From neighbour to neighbour, beside attention on the part that is there."""
    ULYSSES = 2
    """All tokens of some heads instead of some tokens of all heads."""
    ALL_GATHER = 3
    """Gathered from all ranks before attention (Llama 3)."""


class Offload(IntEnum):
    """What rests in host memory."""

    NONE = 0
    OPTIMIZER = 1
    """Optimizer states, and the optimizer step runs on the host."""
    ALL = 2
    """Parameters too, streamed in layer by layer."""


class GradientSync(IntEnum):
    """How often data-parallel ranks reduce gradients when micro-batches are accumulated."""

    USUAL = 0
    """As the sharding does by itself: what divides gradients (ZeRO-2, ZeRO-3) with every micro-batch, but in a pipeline
    that keeps its weights; all others once per step."""
    EVERY = 1
    """With every micro-batch (accumulation without no_sync)."""
    ONCE = 2
    """Once per step; ZeRO-2 and ZeRO-3 then sum gradients unsharded (set_requires_gradient_sync(False))."""


class RankOrder(IntEnum):
    """Axes from the innermost (neighbouring ranks) to the outermost."""

    TP_CP_DP_PP = 0
    """Pipeline stages far apart (Megatron's and torch's default)."""
    TP_CP_PP_DP = 1
    """Stages close together, replicas far apart."""
    TP_PP_CP_DP = 2
    DP_TP_CP_PP = 3
    """Replicas close together: tensor groups cross nodes where they must."""


AXES_OF_ORDER: dict[RankOrder, tuple[str, ...]] = {order: tuple(order.name.lower().split("_")) for order in RankOrder}
"""Axis names by rank order, innermost first; within `dp` the shard group is inside the replicas."""

PLAN_KINDS: Mapping[str, type[IntEnum]] = {
    "sharding": Sharding,
    "recompute": Recompute,
    "schedule": Schedule,
    "context_kind": ContextKind,
    "offload": Offload,
    "gradient_sync": GradientSync,
    "rank_order": RankOrder,
}
"""Fields of a Plan that hold codes; written by their lower-case names."""

PLAN_SWITCHES = ("sequence_parallel", "async_tp", "compiled")
"""Fields of a Plan that are 0 or 1; written as false or true."""


@dataclass(frozen=True, eq=False)
class Plan(Rows):
    """Degrees, schedule and switches. Fields are scalars or equal-length columns.

    tp x pp x cp x dp_shard x dp_replicate is the number of ranks. Experts lie inside dp_shard x cp x tp: `ep` groups
    of experts, each expert divided by `expert_tp`. The first and last pipeline rank may hold fewer layers
    (`first_stage_layers`, `last_stage_layers`); the others share the rest evenly, the longest first.
    Kinds are IntEnum codes.
    """

    tp: Int = 1
    pp: Int = 1
    cp: Int = 1
    ep: Int = 1
    expert_tp: Int = 1
    dp_shard: Int = 1
    dp_replicate: Int = 1
    micro_batch_size: Int = 1
    num_microbatches: Int = 1
    virtual_stages: Int = 1
    first_stage_layers: Int = 0
    last_stage_layers: Int = 0
    sharding: Int = Sharding.NONE
    recompute: Int = Recompute.NONE
    schedule: Int = Schedule.NONE
    context_kind: Int = ContextKind.NONE
    offload: Int = Offload.NONE
    gradient_sync: Int = GradientSync.USUAL
    rank_order: Int = RankOrder.TP_CP_DP_PP
    sequence_parallel: Int = 0
    async_tp: Int = 0
    compiled: Int = 1

    @property
    def dp(self) -> Int:
        """Data-parallel degree: replicas of the model that see different sequences."""
        return self.dp_shard * self.dp_replicate

    @property
    def world_size(self) -> Int:
        """Number of ranks."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def shard_group(self) -> Int:
        """Ranks among which dense parameters or states are divided: dp_shard x cp."""
        return self.dp_shard * self.cp

    @property
    def expert_shard_group(self) -> Int:
        """Ranks among which one expert's parameters or states are divided: dp_shard x cp x tp / (ep x expert_tp)."""
        return self.dp_shard * self.cp * self.tp // (self.ep * self.expert_tp)

    @property
    def global_batch_size(self) -> Int:
        """Sequences per optimizer step."""
        return self.micro_batch_size * self.num_microbatches * self.dp
