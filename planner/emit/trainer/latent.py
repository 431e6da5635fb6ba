"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values from a thin projection."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from .attention import CoreAttention, LocalAttention, local_part, rotated
from .settings import Latent, Layer


class LatentAttention(nn.Module):
    """Queries, and keys and values, go through a low rank; positions are in extra columns that all heads share."""

    def __init__(self, layer: Layer, latent: Latent, hidden_size: int, *, causal: bool) -> None:
        super().__init__()
        heads, self.latent, self.head_dim = layer.num_attention_heads, latent, latent.qk_rope_head_dim
        query_width = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
        self.core: CoreAttention = LocalAttention(causal=causal)
        rank = latent.q_lora_rank
        self.wq_down = nn.Linear(hidden_size, rank, bias=False) if rank else None
        self.q_norm = nn.RMSNorm(rank) if rank else None
        self.wq = nn.Linear(rank or hidden_size, query_width, bias=False)
        self.wkv_down = nn.Linear(hidden_size, latent.kv_lora_rank + latent.qk_rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(latent.kv_lora_rank)
        self.wkv = nn.Linear(latent.kv_lora_rank, heads * (latent.qk_nope_head_dim + latent.v_head_dim), bias=False)
        self.wo = nn.Linear(heads * latent.v_head_dim, hidden_size, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        latent = self.latent
        thin = x if self.wq_down is None or self.q_norm is None else self.q_norm(self.wq_down(x))
        plain, turned = _heads(self.wq(thin), (latent.qk_nope_head_dim, latent.qk_rope_head_dim))
        query = torch.cat((plain, rotated(turned, table)), dim=-1)
        compressed, shared = self.wkv_down(x).split((latent.kv_lora_rank, latent.qk_rope_head_dim), dim=-1)
        plain, value = _heads(self.wkv(self.kv_norm(compressed)), (latent.qk_nope_head_dim, latent.v_head_dim))
        turned = rotated(local_part(shared).unsqueeze(1), table).expand(-1, plain.shape[1], -1, -1)
        out = self.core(query, torch.cat((plain, turned), dim=-1), value)
        return cast(Tensor, self.wo(out.transpose(1, 2).flatten(2)))


def _heads(projected: Tensor, widths: tuple[int, int]) -> tuple[Tensor, ...]:
    """(batch, tokens, heads x both widths) to two of (batch, heads, tokens, width)."""
    return projected.unflatten(-1, (-1, sum(widths))).transpose(1, 2).split(widths, dim=-1)
