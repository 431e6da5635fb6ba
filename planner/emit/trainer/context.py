"""Context parallelism: each rank holds some tokens of every sequence.

all_gather: a rank gathers the keys and values of the whole sequence and computes its own queries (Llama 3,
arXiv 2407.21783, section 3.3.2). Under a causal mask it holds one part from the front and one from the back, so that
all ranks have as much to do. ulysses: heads and tokens are exchanged, so that a rank has all tokens of some heads
(DeepSpeed-Ulysses, arXiv 2309.14509).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import CausalBias, causal_lower_right

from .attention import CoreAttention, LocalAttention
from .exchange import all_to_all, gather


def positions(seq_len: int, *, rank: int, ranks: int, kind: str, causal: bool) -> Tensor:
    """Positions of this rank's tokens in the sequence, shape (seq_len / ranks,)."""
    if kind == "all_gather" and causal:
        parts = torch.arange(seq_len).chunk(2 * ranks)
        return torch.cat((parts[rank], parts[2 * ranks - 1 - rank]))
    return torch.arange(seq_len).chunk(ranks)[rank]


class AllGatherAttention:
    """Own queries against the gathered keys and values of all ranks of the group; `tokens` of them on each rank."""

    def __init__(self, group: dist.ProcessGroup, *, tokens: int, causal: bool) -> None:
        self.group, self.causal = group, causal
        rank, part = group.rank(), tokens // 2
        self.masks = [causal_lower_right(part, end * part) for end in (rank + 1, 2 * group.size() - rank)]
        """What the queries from the front and from the back see: everything up to themselves."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The output for this rank's queries, shape (batch, heads, tokens, head_dim)."""
        key, value = self._whole(key), self._whole(value)
        if not self.causal:
            return _attention(query, key, value, None)
        halves = zip(query.chunk(2, dim=2), self.masks, strict=True)
        return torch.cat([_attention(half, key, value, mask) for half, mask in halves], dim=2)

    def _whole(self, part: Tensor) -> Tensor:
        """All tokens in the order of the sequence: front parts ascend with the ranks, back parts descend."""
        parts = gather(part, self.group).unbind(0)
        if not self.causal:
            return torch.cat(parts, dim=2)
        fronts, backs = zip(*(each.chunk(2, dim=2) for each in parts), strict=True)
        return torch.cat((*fronts, *reversed(backs)), dim=2)


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: CausalBias | None) -> Tensor:
    """Attention to the keys that the mask reaches."""
    reached = slice(None) if mask is None else slice(mask.seq_len_kv)
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key[:, :, reached], value[:, :, reached], attn_mask=mask, enable_gqa=grouped
    )


class UlyssesAttention:
    """All tokens of this rank's share of the heads."""

    def __init__(self, group: dist.ProcessGroup, *, causal: bool) -> None:
        self.group, self.local = group, LocalAttention(causal=causal)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The output for this rank's tokens, all heads."""
        out = self.local(*(self._tokens_for_heads(each) for each in (query, key, value)))
        return self._heads_for_tokens(out)

    def _tokens_for_heads(self, heads: Tensor) -> Tensor:
        """(batch, heads, tokens / ranks, d) to (batch, heads / ranks, tokens, d)."""
        parts = torch.stack(heads.chunk(self.group.size(), dim=1))
        return torch.cat(self._exchanged(parts).unbind(0), dim=2)

    def _heads_for_tokens(self, heads: Tensor) -> Tensor:
        """The inverse."""
        parts = torch.stack(heads.chunk(self.group.size(), dim=2))
        return torch.cat(self._exchanged(parts).unbind(0), dim=1)

    def _exchanged(self, parts: Tensor) -> Tensor:
        ones = [1] * self.group.size()
        return all_to_all(parts, ones, ones, self.group)


def core(kind: str, group: dist.ProcessGroup, *, tokens: int, causal: bool) -> CoreAttention:
    """The attention of a kind of context parallelism, `tokens` of a sequence on each rank."""
    if kind == "ulysses":
        return UlyssesAttention(group, causal=causal)
    return AllGatherAttention(group, tokens=tokens, causal=causal)
