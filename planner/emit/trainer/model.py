"""A Llama-like decoder with the plan's dimensions: grouped-query (or latent) attention, gated MLP, RMSNorm, experts.

Tensors of activations have shape (batch, tokens, hidden).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from .attention import Attention, rotary_table
from .experts import Experts
from .latent import LatentAttention
from .settings import Layer, Model


class Mlp(nn.Module):
    """A feed-forward block, gated (SwiGLU) or plain (GELU)."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, gated: bool) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.gate = nn.Linear(hidden_size, intermediate_size, bias=False) if gated else None
        self.down = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return cast(Tensor, self.down(hidden))


class Block(nn.Module):
    """One layer: attention, then the dense block, the experts, or both. `recompute` none, selective or full."""

    def __init__(self, layer: Layer, model: Model) -> None:
        super().__init__()
        hidden = model.hidden_size
        self.attention_norm = nn.RMSNorm(hidden)
        self.attention: Attention | LatentAttention = (
            LatentAttention(layer, layer.latent, hidden, causal=model.causal)
            if layer.latent
            else Attention(layer, hidden, causal=model.causal)
        )
        self.mlp_norm = nn.RMSNorm(hidden)
        self.mlp = Mlp(hidden, layer.intermediate_size, gated=layer.gated) if layer.intermediate_size else None
        self.experts = Experts(layer, hidden) if layer.num_experts else None
        self.checkpoint_options: dict[str, Any] | None = None

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        if self.checkpoint_options is None or not self.training:
            return self.compute(x, table)
        return cast(Tensor, checkpoint(self.compute, x, table, use_reentrant=False, **self.checkpoint_options))

    def compute(self, x: Tensor, table: Tensor) -> Tensor:
        """The layer itself, without recomputation."""
        x = x + self.attention(self.attention_norm(x), table)
        normed = self.mlp_norm(x)
        dense = self.mlp(normed) if self.mlp is not None else 0
        return x + dense + (self.experts(normed) if self.experts is not None else 0)


class Decoder(nn.Module):
    """The model, or the part of it on one pipeline stage: what is absent is None.

    `positions` are those of this rank's tokens, shape (tokens,).
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.embedding: nn.Embedding | None = nn.Embedding(model.vocab_size, model.hidden_size)
        self.blocks = nn.ModuleDict({str(i): Block(layer, model) for i, layer in enumerate(model.layers)})
        self.norm: nn.RMSNorm | None = nn.RMSNorm(model.hidden_size)
        self.head: nn.Linear | None = nn.Linear(model.hidden_size, model.vocab_size, bias=False)
        self.positions = torch.empty(0)
        self._tables: dict[int, Tensor] = {}

    def each_block(self) -> Iterator[Block]:
        """The layers that are here, in order."""
        return (cast(Block, block) for block in self.blocks.values())

    def keep(self, layers: range, *, first: bool, last: bool) -> None:
        """Drop what another pipeline stage holds."""
        for index in list(self.blocks):
            if int(index) not in layers:
                del self.blocks[index]
        if not first:
            self.embedding = None
        if not last:
            self.norm = self.head = None

    def forward(self, x: Tensor) -> Tensor:
        """Logits (or hidden states, on all but the last stage) of token ids (or hidden states)."""
        x = x if self.embedding is None else self.embedding(x)
        for block in self.each_block():
            x = block(x, self._table(block.attention.head_dim))
        x = x if self.norm is None else self.norm(x)
        return x if self.head is None else self.head(x)

    def _table(self, head_dim: int) -> Tensor:
        if head_dim not in self._tables:
            self._tables[head_dim] = rotary_table(self.positions, head_dim)
        return self._tables[head_dim]


def plain(loss: Tensor) -> Tensor:
    """A loss without its graph, and whole where the vocabulary was divided."""
    return loss.full_tensor().detach() if isinstance(loss, DTensor) else loss.detach()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean loss over the tokens of a micro-batch, in fp32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
