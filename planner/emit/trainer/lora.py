"""Low-rank adapters beside frozen matrices (Hu et al. 2021, arXiv 2106.09685)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .model import Decoder


class Adapted(nn.Module):
    """A frozen linear map plus the product of two thin, trained ones."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight = frozen.weight
        self.lora_a = nn.Parameter(torch.empty(rank, frozen.in_features))
        self.lora_b = nn.Parameter(torch.empty(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        thin = nn.functional.linear(x, self.lora_a)
        return nn.functional.linear(x, self.weight) + nn.functional.linear(thin, self.lora_b)


def add_adapters(decoder: Decoder, rank: int, *, frozen_dtype: torch.dtype) -> None:
    """Freeze a model, in `frozen_dtype`, and put adapters beside every matrix of its blocks outside the experts."""
    for parameter in decoder.parameters():
        parameter.requires_grad_(False)
    decoder.to(frozen_dtype)
    for block in decoder.each_block():
        for module in (block.attention, block.mlp):
            for name, child in list(module.named_children()) if module is not None else []:
                if isinstance(child, nn.Linear):
                    setattr(module, name, Adapted(child, rank))
