"""A mixture of experts: a router, and experts that may be dealt to the ranks of a group (dropless).

Tokens have shape (tokens, hidden). With `group` each rank holds some experts, and tokens travel to them and back.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .attention import local_part
from .exchange import all_to_all
from .settings import Layer


class Experts(nn.Module):
    """Top-k routing by softmax over all experts, the weights of the chosen ones normalised (Mixtral's form)."""

    def __init__(self, layer: Layer, hidden_size: int) -> None:
        super().__init__()
        self.experts_per_token, self.num_experts = layer.experts_per_token, layer.num_experts
        self.group: dist.ProcessGroup | None = None
        self.router = nn.Parameter(torch.empty(layer.num_experts, hidden_size))
        self.banks = Banks(layer, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        tokens = local_part(x).flatten(0, 1)
        probabilities = F.linear(tokens, local_part(self.router)).float().softmax(dim=-1)
        weights, chosen = probabilities.topk(self.experts_per_token, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.num_experts)
        sent = tokens[order // self.experts_per_token]
        out = self.banks(sent, counts) if self.group is None else self._away(sent, counts, self.group)
        scaled = out * weights.flatten()[order, None].to(out.dtype)
        summed = torch.zeros_like(tokens).index_add(0, order // self.experts_per_token, scaled)
        return summed.view(local_part(x).shape)

    def _away(self, tokens: Tensor, counts: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Tokens to the ranks of their experts and back, in the order given (that of the experts)."""
        ranks = group.size()
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=group)
        by_source = arriving.view(ranks, -1)
        sent, received = counts.view(ranks, -1).sum(1).tolist(), by_source.sum(1).tolist()
        tokens = all_to_all(tokens, received, sent, group)
        by_expert = _grouped_by_expert(by_source)
        out = self.banks(tokens[by_expert], by_source.sum(0))
        return all_to_all(out[by_expert.argsort()], sent, received, group)


class Banks(nn.Module):
    """The weights of this rank's experts, each of shape (experts, outputs, inputs).

    Data parallelism averages their gradients over the ranks that hold the same experts, fewer (or, with the ranks of
    tp, more) than those that averaged their losses: `gradient_scale` makes up for it.
    """

    def __init__(self, layer: Layer, hidden_size: int) -> None:
        super().__init__()
        inward, outward = (
            (layer.num_experts, layer.expert_size, hidden_size),
            (layer.num_experts, hidden_size, layer.expert_size),
        )
        self.up = nn.Parameter(torch.empty(inward))
        self.gate = nn.Parameter(torch.empty(inward)) if layer.expert_gated else None
        self.down = nn.Parameter(torch.empty(outward))
        self.gradient_scale = 1.0

    def forward(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """Each expert's output for its tokens, which stand together in the order of the experts."""
        up = _by_expert(tokens, self.up, counts)
        hidden = F.gelu(up) if self.gate is None else F.silu(_by_expert(tokens, self.gate, counts)) * up
        return _by_expert(hidden, self.down, counts)


def scale_expert_gradients(part: nn.Module) -> None:
    """Multiply the gradients of all experts by their `gradient_scale`, once a step."""
    for banks in part.modules():
        if isinstance(banks, Banks) and banks.gradient_scale != 1.0:
            for parameter in banks.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(banks.gradient_scale)


def _by_expert(tokens: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    matrices = weights.to_local() if isinstance(weights, DTensor) else weights
    parts = tokens.split(counts.tolist())
    return torch.cat([F.linear(part, matrix) for part, matrix in zip(parts, matrices, strict=True)])


def _grouped_by_expert(by_source: Tensor) -> Tensor:
    """Indices that put tokens, received source by source and expert by expert, in the order of the experts."""
    experts = torch.arange(by_source.shape[1], device=by_source.device).repeat(by_source.shape[0])
    return experts.repeat_interleave(by_source.flatten()).argsort(stable=True)
