"""The one place where parallelism is applied to a model (or to the part of it on one pipeline stage).

The order matters: tensor and expert parallelism cut the parameters, context parallelism changes the core of attention,
recomputation and compilation wrap the computation of a block, data parallelism divides or replicates what is left.
Everything happens on the meta device; `initialise` gives the parameters memory and values.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from .context import core, positions
from .experts import Banks, Experts
from .mesh import Meshes
from .model import Block, Decoder
from .recompute import checkpoint_options
from .settings import Settings

COMPUTE_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}


def parallelize(decoder: Decoder, settings: Settings, meshes: Meshes | None) -> None:
    """Apply the plan to a model on the meta device, in place; without meshes (one process) only what one can do."""
    plan = settings.plan
    decoder.positions = positions(settings.seq_len, **_place(settings, meshes))
    if meshes is not None:
        if plan.tp > 1:
            _divide_tensors(decoder, settings, meshes)
        for block in decoder.each_block():
            _divide_experts(block, meshes)
            if plan.cp > 1:
                tokens = settings.seq_len // plan.cp
                block.attention.core = core(
                    plan.context_kind, meshes.group("cp"), tokens=tokens, causal=settings.model.causal
                )
    for block in decoder.each_block():
        block.checkpoint_options = checkpoint_options(plan.recompute)
        if plan.compiled:
            _compile(block, recompute=plan.recompute)
    if settings.model.tie_word_embeddings and decoder.embedding is not None and decoder.head is not None:
        decoder.head.weight = decoder.embedding.weight
    if meshes is not None and not plan.plain_ddp:
        _divide_data(decoder, settings, meshes)


def _compile(block: Block, *, recompute: str) -> None:
    """Compile a block; inside its recomputation where that is full (outside, torch 2.13 refuses divided tensors)."""
    if recompute == "full":
        block.compute = torch.compile(block.compute)  # type: ignore[method-assign]
    else:
        block.compile()


def replicated(decoder: Decoder, *, bucket_mb: float) -> DistributedDataParallel:
    """Plain replicas: gradients are all-reduced in buckets while backward goes on."""
    return DistributedDataParallel(decoder, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)


def _place(settings: Settings, meshes: Meshes | None) -> dict[str, Any]:
    rank = meshes.index("cp") if meshes is not None else 0
    return {
        "rank": rank,
        "ranks": settings.plan.cp,
        "kind": settings.plan.context_kind,
        "causal": settings.model.causal,
    }


def _divide_tensors(decoder: Decoder, settings: Settings, meshes: Meshes) -> None:
    """Tensor parallelism (Shoeybi et al. 2019), with or without sequence parallelism (Korthikanti et al. 2022)."""
    mesh, sequence = meshes.dense["tp"], settings.plan.sequence_parallel
    between: Placement = Shard(1) if sequence else Replicate()
    ends: dict[str, ParallelStyle] = {}
    if decoder.embedding is not None:
        ends["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if decoder.head is not None:
        ends["head"] = ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)
        ends |= {"norm": SequenceParallel()} if sequence else {}
    parallelize_module(decoder, mesh, ends)
    if decoder.embedding is not None and settings.plan.compiled:
        # A compiled block passes no gradient back to a tensor that is still on its way (torch 2.13): wait for it.
        decoder.embedding.register_forward_hook(lambda _module, _inputs, arrived: arrived.clone())
    for block in decoder.each_block():
        parallelize_module(block, mesh, _block_styles(block, settings, between))


def _block_styles(block: Block, settings: Settings, between: Placement) -> dict[str, ParallelStyle]:
    """How each module of a block is divided: into columns on the way in, into rows on the way out."""
    column, row = ColwiseParallel(), RowwiseParallel(output_layouts=between)
    gathered = partial(PrepareModuleInput, use_local_output=False)
    whole, divided = ("wq_down", "q_norm", "wkv_down", "kv_norm"), ("wq", "wk", "wv", "wkv")
    present = dict(block.attention.named_children())
    styles: dict[str, ParallelStyle] = {
        "attention": gathered(input_layouts=(between, None), desired_input_layouts=(Replicate(), None)),
        **{f"attention.{name}": _Whole() for name in whole if name in present},
        **{f"attention.{name}": column for name in divided if name in present},
        "attention.wo": row,
    }
    if settings.plan.sequence_parallel:
        styles |= {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
    if block.mlp is not None:
        styles["mlp"] = gathered(input_layouts=(between,), desired_input_layouts=(Replicate(),))
        styles |= {"mlp.up": column, "mlp.down": row}
        styles |= {"mlp.gate": column} if block.mlp.gate is not None else {}
    if block.experts is not None:
        styles["experts"] = _ExpertStyle(between, divided=settings.plan.expert_tp > 1)
    return styles


class _Whole(ParallelStyle):
    """A module that every rank of the group computes in full."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh)


class _ExpertStyle(ParallelStyle):
    """Experts take their own part of the sequence, or, divided by columns, all tokens, and give parts of a sum."""

    def __init__(self, between: Placement, *, divided: bool) -> None:
        taken = Replicate() if divided else between
        given = Partial() if divided else between
        self._input = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(taken,))
        self._output = PrepareModuleOutput(output_layouts=(given,), desired_output_layouts=(between,))

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, Experts)
        module.router = nn.Parameter(distribute_tensor(module.router, device_mesh, [Replicate()], src_data_rank=None))
        return self._output._apply(self._input._apply(module, device_mesh), device_mesh)


def _divide_experts(block: Block, meshes: Meshes) -> None:
    """Experts dealt to the ranks of `ep`, each divided into columns over `expert_tp`."""
    plan = meshes.plan
    if block.experts is None or meshes.experts is None or plan.ep * plan.expert_tp == 1:
        return
    mesh = meshes.experts["ep", "expert_tp"]
    banks = block.experts.banks
    for name, columns in (("up", 1), ("gate", 1), ("down", 2)):
        whole = getattr(banks, name)
        if whole is not None:
            part = distribute_tensor(whole, mesh, [Shard(0), Shard(columns)], src_data_rank=None)
            setattr(banks, name, nn.Parameter(part))
    if plan.ep > 1:
        block.experts.group = mesh.get_group("ep")


def _divide_data(decoder: Decoder, settings: Settings, meshes: Meshes) -> None:
    """FSDP2: a unit per block, and one of embedding, norm and head. Plain replicas are shards of one rank."""
    plan = settings.plan
    options: dict[str, Any] = {"mesh": meshes.data, "mp_policy": _precision(settings)}
    if plan.offload == "all":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
    reshard = plan.sharding == "zero3"
    for block in decoder.each_block():
        if block.experts is not None and meshes.experts is not None:
            _divide_banks(block.experts.banks, meshes, options | {"reshard_after_forward": reshard})
        fully_shard(block, reshard_after_forward=reshard, **options)
    fully_shard(decoder, reshard_after_forward=False, **options)


def _divide_banks(banks: Banks, meshes: Meshes, options: dict[str, Any]) -> None:
    """A unit of its own for experts, which fewer ranks share; by columns where there are too few experts for them."""
    plan, mesh = meshes.plan, meshes.expert_data
    shards, (local, rows) = mesh.shape[-1], (banks.up.shape[0] // plan.ep, banks.up.shape[1])
    uneven = local % shards and rows // plan.expert_tp % shards == 0 and banks.down.shape[1] % shards == 0
    placement = (lambda _: Shard(1)) if uneven else None
    fully_shard(banks, **(options | {"mesh": mesh}), shard_placement_fn=placement)
    banks.gradient_scale = plan.tp / (plan.ep * plan.expert_tp)


def _precision(settings: Settings) -> MixedPrecisionPolicy:
    """Parameters in the compute precision, gradients reduced in fp32 (in 16 bits where all states are)."""
    if settings.state == "16bit":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=COMPUTE_DTYPES[settings.precision], reduce_dtype=torch.float32)
