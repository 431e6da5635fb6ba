"""What to measure, the most valuable first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from calibration.measurements import Machine, Measurement
from planner.quantities import Bytes

PRECISIONS = {"cpu": ("fp32", "bf16"), "cuda": ("bf16", "tf32")}
"""Of matrix products; the first is also that of attention."""
LARGE: dict[str, Bytes] = {"cpu": 256 * 2**20, "cuda": 2**30}
"""Bytes of a stream that no cache holds."""
GEMM_SIZES = {
    "cpu": ((32, 256, 2048), (64, 512, 2048), (64, 512, 2048)),
    "cuda": ((128, 1024, 8192), (1024, 4096, 16384), (1024, 4096, 16384)),
}
"""Rows, columns and depths of matrix products: tokens of a micro-batch, and widths of small and large models."""
TINY_GEMM = (16, 16, 16)
"""A product whose time is the kernel's fixed part."""


def usual_plan(machine: Machine) -> list[Measurement]:
    """All measurements without a decision in view: a few of every kind first, then what fills the gaps."""
    return _distinct([*_first(machine), *_second(machine)])


def _first(machine: Machine) -> Iterator[Measurement]:
    device = machine.device
    main = PRECISIONS[device][0]
    yield Measurement("copy", {"bytes": int(LARGE[device])})
    yield from (gemm(main, *shape) for shape in (*_corners(device), TINY_GEMM))
    yield Measurement("tiny_layer")


def _second(machine: Machine) -> Iterator[Measurement]:
    device = machine.device
    yield Measurement("triad", {"bytes": int(LARGE[device])})
    for precision in PRECISIONS[device]:
        yield from (gemm(precision, *shape) for shape in product(*GEMM_SIZES[device]))


def _corners(device: str) -> Iterator[tuple[int, int, int]]:
    """The middle of the sizes, and the smallest and the largest."""
    rows, columns, depths = GEMM_SIZES[device]
    yield from ((rows[place], columns[place], depths[place]) for place in (1, 2, 0))


def gemm(dtype: str, m: int, n: int, k: int) -> Measurement:
    """A matrix product."""
    return Measurement("gemm", {"dtype": dtype, "m": m, "n": n, "k": k})


def _distinct(measurements: Sequence[Measurement]) -> list[Measurement]:
    return list({one.key: one for one in measurements}.values())
