"""Every measurement by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calibration.measure import launch, matmul, memory_bound
from calibration.measure.timing import Bench
from calibration.measurements import Measured, Measurement

MEASURES: Mapping[str, Callable[..., Measured]] = {
    "copy": memory_bound.copy,
    "triad": memory_bound.triad,
    "gemm": matmul.gemm,
    "tiny_layer": launch.tiny_layer,
}
"""Name -> function of a bench and the measurement's parameters."""


def measure(bench: Bench, measurement: Measurement) -> Measured:
    """Carry out one measurement; every rank has to."""
    return MEASURES[measurement.name](bench, **measurement.parameters)
