"""Which process does what: the ranks as a mesh of the plan's axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .settings import Plan


@dataclass(frozen=True)
class Meshes:
    """Three views of the same ranks, axes from the outermost to the innermost.

    `dense` (pp, replicate, shard, tp) serves FSDP and tensor parallelism, `tokens` (pp, dp, cp, tp) says who has which
    tokens, `experts` (pp, replicate, shard, ep, expert_tp) who has which experts.
    """

    dense: DeviceMesh
    tokens: DeviceMesh
    experts: DeviceMesh | None
    plan: Plan

    @classmethod
    def of(cls, plan: Plan, device_type: str) -> Meshes:
        """The meshes of a plan; every process of the default group calls this."""
        ranks = rank_table(plan)
        shape = (plan.pp, plan.replicas, plan.shard_group, plan.tp)
        dense = DeviceMesh(device_type, ranks.view(shape), mesh_dim_names=("pp", "replicate", "shard", "tp"))
        shape = (plan.pp, plan.dp, plan.cp, plan.tp)
        tokens = DeviceMesh(device_type, ranks.view(shape), mesh_dim_names=("pp", "dp", "cp", "tp"))
        return cls(dense, tokens, _expert_mesh(plan, ranks, device_type) if plan.ep > 1 or plan.tp > 1 else None, plan)

    def index(self, axis: str) -> int:
        """This process's place on an axis of `tokens`."""
        return int(self.tokens.get_local_rank(axis))

    def group(self, axis: str) -> dist.ProcessGroup:
        """The process group of this process on an axis of `tokens`."""
        return self.tokens.get_group(axis)

    @cached_property
    def data(self) -> DeviceMesh:
        """What FSDP divides parameters over: (shard), or (replicate, shard) where there are replicas."""
        return self.dense["replicate", "shard"] if self.plan.replicas > 1 else self.dense["shard"]

    @cached_property
    def expert_data(self) -> DeviceMesh:
        """The same for parameters of experts."""
        assert self.experts is not None
        return self.experts["replicate", "shard"] if self.experts["replicate"].size() > 1 else self.experts["shard"]

    def described(self) -> str:
        """The mesh in words, such as `pp 2 x dp_shard 4 x tp 2`."""
        axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
        shown = [f"{axis} {getattr(self.plan, axis)}" for axis in axes if getattr(self.plan, axis) > 1]
        experts = [f"ep {self.plan.ep} within"] if self.plan.ep > 1 else []
        return " x ".join(shown or ["one process"]) + "".join(f", {each}" for each in experts)


def rank_table(plan: Plan) -> torch.Tensor:
    """Ranks of shape (pp, dp_replicate, dp_shard, cp, tp), laid out as the plan's rank order says (innermost first)."""
    sizes = {"tp": (plan.tp,), "cp": (plan.cp,), "dp": (plan.dp_replicate, plan.dp_shard), "pp": (plan.pp,)}
    outermost_first = list(reversed(plan.rank_order.split("_")))
    names = [name for axis in outermost_first for name in ((axis,) if axis != "dp" else ("dp_replicate", "dp_shard"))]
    table = torch.arange(plan.world_size).view([size for axis in outermost_first for size in sizes[axis]])
    return table.permute([names.index(name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")]).contiguous()


def _expert_mesh(plan: Plan, ranks: torch.Tensor, device_type: str) -> DeviceMesh:
    inside = plan.dp_shard * plan.cp * plan.tp // (plan.ep * plan.expert_tp)
    replicas, shards = (plan.dp_replicate, inside) if plan.shards else (plan.dp_replicate * inside, 1)
    shape = (plan.pp, replicas, shards, plan.ep, plan.expert_tp)
    return DeviceMesh(device_type, ranks.view(shape), mesh_dim_names=("pp", "replicate", "shard", "ep", "expert_tp"))
