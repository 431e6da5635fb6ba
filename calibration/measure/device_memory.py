"""Memory of a GPU that no tensor holds: the context with its libraries, and what the allocator keeps beyond tensors."""

from __future__ import annotations

import torch

from calibration.measure.timing import Bench
from calibration.measurements import Measured
from planner.emit.trainer.attention import rotary_table
from planner.emit.trainer.model import Block
from planner.emit.trainer.settings import Layer, Model

LAYER = Layer(num_attention_heads=16, num_key_value_heads=8, head_dim=128, intermediate_size=5632)
MODEL = Model(name="layer", hidden_size=2048, vocab_size=2048, layers=(LAYER,))
LENGTHS = (2048, 1536, 2048, 1024, 2048)
"""Tokens of the steps that fill the allocator's pools, of several lengths as padded batches are."""


def context(bench: Bench) -> Measured:
    """Bytes in use on the device beyond torch's own reserve: contexts of all processes and of their libraries.

    Other programs on the same GPU count too.
    """
    torch.ones(256, 256, device=bench.device) @ torch.ones(256, 256, device=bench.device)
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info(bench.device)
    (used,) = bench.ranks.most(float(total - free - torch.cuda.memory_reserved(bench.device)))
    return Measured(used, unit="bytes")


def allocator(bench: Bench) -> Measured:
    """Bytes that the allocator reserves beyond the peak of tensors, over training steps of a layer."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(bench.device)
    layer = Block(LAYER, MODEL).to(bench.device)
    for length in LENGTHS:
        table = rotary_table(torch.arange(length, device=bench.device), LAYER.head_dim)
        layer(bench.random(4, length, MODEL.hidden_size, grad=True), table).sum().backward()
    torch.cuda.synchronize()
    reserved, allocated = bench.ranks.most(
        float(torch.cuda.max_memory_reserved(bench.device)), float(torch.cuda.max_memory_allocated(bench.device))
    )
    parts = {"reserved": reserved, "allocated": allocated}
    return Measured(reserved - allocated, unit="bytes", parts=parts)
