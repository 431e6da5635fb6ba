"""What the host takes to dispatch operators, whatever they compute."""

from __future__ import annotations

import torch

from calibration.measure.timing import Bench, launch_times
from calibration.measurements import Measured
from planner.emit.trainer.attention import rotary_table
from planner.emit.trainer.model import Block
from planner.emit.trainer.settings import Layer, Model

TINY_LAYER = Layer(num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=32)
TINY_MODEL = Model(name="tiny", hidden_size=16, vocab_size=16, layers=(TINY_LAYER,))
TINY_TOKENS = 8


def tiny_layer(bench: Bench) -> Measured:
    """The forward of one layer of the project's trainer, so small that the host alone takes time."""
    layer, tokens, table = _tiny(bench)
    return bench.time(lambda: layer(tokens, table), clock=launch_times)


def _tiny(bench: Bench) -> tuple[Block, torch.Tensor, torch.Tensor]:
    layer = Block(TINY_LAYER, TINY_MODEL).to(bench.device)
    table = rotary_table(torch.arange(TINY_TOKENS, device=bench.device), TINY_LAYER.head_dim)
    return layer, bench.random(1, TINY_TOKENS, TINY_MODEL.hidden_size, grad=True), table
