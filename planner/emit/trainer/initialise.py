"""Parameters get memory and the same first values under every plan."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from .model import Decoder


def initialise(decoder: Decoder, device: torch.device, *, seed: int, tied: bool, dtype: torch.dtype | None) -> None:
    """Move a model from the meta device and draw its parameters from their names: no layout changes them."""
    if dtype is not None:
        decoder.to(dtype)
    decoder.to_empty(device=device)
    if tied and decoder.embedding is not None and decoder.head is not None:
        decoder.head.weight = decoder.embedding.weight
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            drawn_as = "embedding.weight" if tied and name == "head.weight" else name
            _fill(parameter, _drawn(drawn_as, parameter.shape, device=parameter.device, seed=seed))


def _drawn(name: str, shape: torch.Size, *, device: torch.device, seed: int) -> Tensor:
    """Ones for norms, zeros for the second half of an adapter; else normal with variance 1 / inputs."""
    if "norm" in name:
        return torch.ones(shape, device=device)
    if name.endswith("lora_b"):
        return torch.zeros(shape, device=device)
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()) + seed)
    return torch.randn(shape, device=device, generator=generator) / shape[-1] ** 0.5


def _fill(parameter: Tensor, whole: Tensor) -> None:
    if isinstance(parameter, DTensor):
        parameter.copy_(distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None))
    else:
        parameter.copy_(whole)
