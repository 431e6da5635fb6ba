"""Every measurement by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calibration.measure import (
    attention,
    collectives_run,
    device_memory,
    launch,
    matmul,
    memory_bound,
    optimizer_step,
    overlap,
    training_step,
)
from calibration.measure.timing import Bench
from calibration.measurements import Measured, Measurement

MEASURES: Mapping[str, Callable[..., Measured]] = {
    "copy": memory_bound.copy,
    "triad": memory_bound.triad,
    "elementwise": memory_bound.elementwise,
    "gemm": matmul.gemm,
    "attention": attention.attention,
    "adamw": optimizer_step.adamw,
    "tiny_layer": launch.tiny_layer,
    "dispatch": launch.dispatch,
    "graph_operator": launch.graph_operator,
    "context": device_memory.context,
    "allocator": device_memory.allocator,
    "all_reduce": collectives_run.collective("all_reduce"),
    "all_gather": collectives_run.collective("all_gather"),
    "reduce_scatter": collectives_run.collective("reduce_scatter"),
    "all_to_all": collectives_run.collective("all_to_all"),
    "send_recv": collectives_run.send_recv,
    "overlap": overlap.overlap,
    "training_step": training_step.training_step,
}
"""Name -> function of a bench and the measurement's parameters."""


def measure(bench: Bench, measurement: Measurement) -> Measured:
    """Carry out one measurement; every rank has to."""
    return MEASURES[measurement.name](bench, **measurement.parameters)
