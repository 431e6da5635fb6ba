"""Grouped-query attention with rotary positions, and the pieces that other forms of attention share.

Tensors of activations have shape (batch, tokens, hidden); heads (batch, heads, tokens, head_dim).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial

from .settings import Layer

ROTARY_BASE = 500_000.0
CoreAttention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From queries, keys and values of this rank's tokens to the attention's output."""


def rotary_table(positions: Tensor, head_dim: int) -> Tensor:
    """Cosines and sines of shape (2, tokens, head_dim / 2) for token positions."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    angles = torch.outer(positions.float(), frequencies)
    return torch.stack((angles.cos(), angles.sin()))


def rotated(heads: Tensor, table: Tensor) -> Tensor:
    """Heads turned by their positions (Su et al. 2021, arXiv 2104.09864, in halves as Llama does)."""
    cos, sin = table.to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class LocalAttention:
    """Attention over tokens that are all on this rank."""

    def __init__(self, *, causal: bool) -> None:
        self.causal = causal

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The output for every query."""
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, enable_gqa=grouped)


class Attention(nn.Module):
    """Projections around the core of attention. `core` is replaced under context parallelism."""

    def __init__(self, layer: Layer, hidden_size: int, *, causal: bool) -> None:
        super().__init__()
        self.head_dim = layer.head_dim
        self.core: CoreAttention = LocalAttention(causal=causal)
        self.wq = nn.Linear(hidden_size, layer.num_attention_heads * layer.head_dim, bias=False)
        self.wk = nn.Linear(hidden_size, layer.num_key_value_heads * layer.head_dim, bias=False)
        self.wv = nn.Linear(hidden_size, layer.num_key_value_heads * layer.head_dim, bias=False)
        self.wo = nn.Linear(layer.num_attention_heads * layer.head_dim, hidden_size, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        query, key, value = (self._heads(projection(x)) for projection in (self.wq, self.wk, self.wv))
        out = self.core(rotated(query, table), rotated(key, table), value)
        return cast(Tensor, self.wo(out.transpose(1, 2).flatten(2)))

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


def local_part(tensor: Tensor) -> Tensor:
    """A tensor as this rank computes with it; gradients of what is whole on every rank are parts of a sum."""
    if not isinstance(tensor, DTensor):
        return tensor
    return tensor.to_local(grad_placements=[Partial() if each.is_replicate() else each for each in tensor.placements])
