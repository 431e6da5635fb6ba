"""What the host takes to dispatch operators, whatever they compute."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from calibration.measure.timing import Bench, Operation, launch_times
from calibration.measurements import Measured
from planner.emit.trainer.attention import rotary_table
from planner.emit.trainer.model import Block
from planner.emit.trainer.settings import Layer, Model

TINY_LAYER = Layer(num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=32)
TINY_MODEL = Model(name="tiny", hidden_size=16, vocab_size=16, layers=(TINY_LAYER,))
TINY_TOKENS = 8
IN_GRAPH = 200
"""Operators in one CUDA graph."""


def tiny_layer(bench: Bench) -> Measured:
    """The forward of one layer of the project's trainer, so small that the host alone takes time."""
    layer = Block(TINY_LAYER, TINY_MODEL).to(bench.device)
    table = rotary_table(torch.arange(TINY_TOKENS, device=bench.device), TINY_LAYER.head_dim)
    tokens = bench.random(1, TINY_TOKENS, TINY_MODEL.hidden_size, grad=True)
    return bench.time(lambda: layer(tokens, table), clock=launch_times)


def dispatch(bench: Bench, *, operator: str, tensor: str) -> Measured:
    """One tiny operator, add or linear, recorded for backward; `tensor` is plain or dtensor.

    The weights of a linear DTensor are divided by output columns over all ranks: nothing is communicated.
    """
    first, second = (bench.random(8 * bench.ranks.world, 16, grad=True) for _ in range(2))
    if tensor == "dtensor":
        first, second = _divided(bench, first, second, columns=operator == "linear")
    function = torch.nn.functional.linear if operator == "linear" else torch.add
    return bench.time(lambda: function(first, second), clock=launch_times)


def _divided(bench: Bench, first: torch.Tensor, second: torch.Tensor, *, columns: bool) -> tuple[DTensor, DTensor]:
    if not dist.is_initialized():
        raise RuntimeError("a DTensor needs several ranks")
    mesh = init_device_mesh(bench.device.type, (bench.ranks.world,))
    placement = Shard(0) if columns else Replicate()
    return distribute_tensor(first, mesh, [Replicate()]), distribute_tensor(second, mesh, [placement])


def graph_operator(bench: Bench) -> Measured:
    """One of many tiny operators that a CUDA graph replays: what is left where the host launches once for all."""
    values = bench.random(16)
    replay = _graph(lambda: [values.add_(1.0) for _ in range(IN_GRAPH)])
    whole = bench.time(replay)
    return Measured(whole.value / IN_GRAPH, whole.spread, whole.n)


def _graph(operation: Operation) -> Operation:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        operation()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        operation()
    return graph.replay
