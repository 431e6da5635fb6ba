"""Which activations are computed again in backward."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import SAC_IGNORED_OPS, CheckpointPolicy, create_selective_checkpoint_contexts

aten = torch.ops.aten
# FSDP inside a block (of experts) marks other ranges in backward than in forward: they are nobody's results.
SAC_IGNORED_OPS |= {
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
}
KEPT = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
"""Operators whose results selective recomputation keeps, beside every second matrix product."""


def checkpoint_options(recompute: str) -> dict[str, Any] | None:
    """Options of torch.utils.checkpoint for a block; None: nothing is computed again."""
    if recompute == "none":
        return None
    options: dict[str, Any] = {"preserve_rng_state": False}
    return options if recompute == "full" else options | {"context_fn": _selective_contexts}


def _selective_contexts() -> Any:
    return create_selective_checkpoint_contexts(_EverySecondProduct())


class _EverySecondProduct:
    """Keeps the first, third, ... matrix product of a pass, and what is in KEPT."""

    def __init__(self) -> None:
        self.products = {False: 0, True: 0}

    def __call__(self, context: Any, operator: Any, *_args: Any, **_named: Any) -> CheckpointPolicy:
        if operator == aten.mm.default:
            self.products[context.is_recompute] += 1
            kept = self.products[context.is_recompute] % 2 == 1
        else:
            kept = operator in KEPT
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
