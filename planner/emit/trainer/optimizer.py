"""The optimizer, the learning rate, and gradients scaled: clipped to a norm, and freed of the loss scale of fp16."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, sqrt

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .settings import Settings

LR_RULES = {
    "fixed": lambda _ratio: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": sqrt,
}
"""How the learning rate follows the global batch, by the ratio to the batch that it was chosen for.

linear: SGD below its critical batch (Goyal et al. 2017, arXiv 1706.02677); sqrt: Adam, whose steps are normalised by
the gradient's noise (Malladi et al. 2022, arXiv 2205.10287); fixed: leave it.
"""
FIRST_LOSS_SCALE = 2.0**16
GROWTH_STEPS = 1000
"""Steps without overflow after which the loss scale doubles."""


def build_optimizer(part: nn.Module, settings: Settings, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """The plan's optimizer over one part of the model; parameters of different meshes are groups of their own."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in part.parameters():
        if parameter.requires_grad:
            mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
            groups.setdefault(mesh, []).append(parameter)
    parameters = [{"params": group} for group in groups.values()]
    if settings.optimizer.startswith("sgd"):
        momentum = 0.9 if settings.optimizer == "sgd-momentum" else 0.0
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, foreach=False)
    fused = settings.plan.offload == "none"
    return torch.optim.AdamW(
        parameters, lr=lr, betas=(0.9, 0.95), weight_decay=weight_decay, foreach=False, fused=fused
    )


def learning_rate(step: int, *, base: float, warmup: int, rule: str, batch_ratio: float) -> float:
    """The rate of a step, counted from 0: `base` under the rule, reached linearly over `warmup` steps."""
    return base * LR_RULES[rule](batch_ratio) * min(1.0, (step + 1) / max(1, warmup))


class LossScale:
    """Dynamic loss scaling for fp16 (Micikevicius et al. 2018, arXiv 1710.03740); 1 under every other precision."""

    def __init__(self, precision: str) -> None:
        self.value = FIRST_LOSS_SCALE if precision == "fp16" else 1.0
        self.dynamic = precision == "fp16"
        self.steps_without_overflow = 0

    def update(self, *, overflow: bool) -> None:
        """Halve after an overflow, double after many steps without one."""
        if not self.dynamic:
            return
        self.steps_without_overflow = 0 if overflow else self.steps_without_overflow + 1
        if overflow:
            self.value /= 2
        elif self.steps_without_overflow == GROWTH_STEPS:
            self.value, self.steps_without_overflow = self.value * 2, 0


def gradient_norm(parts: Iterable[nn.Module], *, pp: int, tied: bool) -> float:
    """Norm of all gradients of the model, each counted once wherever it is held; the same on every rank.

    `tied`: head and embedding are one parameter held on two pipeline ranks.
    """
    holders = (dist.get_world_size() if dist.is_initialized() else 1) // pp
    gradients = [
        parameter.grad
        for part in parts
        for name, parameter in part.named_parameters()
        if parameter.grad is not None and not (tied and pp > 1 and name.endswith("head.weight"))
    ]
    norms = torch.stack(torch._foreach_norm([local(each) for each in gradients], 2, torch.float32))
    copies = torch.tensor([holders // _shards(each) for each in gradients], device=norms.device)
    total = (norms.square() / copies).sum().to(_collective_device())
    if dist.is_initialized():
        dist.all_reduce(total)
    return sqrt(float(total)) if isfinite(float(total)) else float("inf")


def scale_gradients(parts: Iterable[nn.Module], factor: float) -> None:
    """Multiply all gradients, in place."""
    if factor != 1.0:
        gradients = [local(p.grad) for part in parts for p in part.parameters() if p.grad is not None]
        torch._foreach_mul_([each for each in gradients if each.numel()], factor)


def local(tensor: Tensor) -> Tensor:
    """This rank's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _shards(gradient: Tensor) -> int:
    """In how many different parts a gradient is held."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes = zip(gradient.device_mesh.shape, gradient.placements, strict=True)
    count = 1
    for size, placement in sizes:
        count *= 1 if placement.is_replicate() else size
    return count


def _collective_device() -> torch.device:
    cuda = dist.is_initialized() and dist.get_backend() != "gloo"
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
