"""What to measure, the most valuable first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from calibration.measurements import Machine, Measurement, Parameter
from calibration.steps_plan import host_steps, training_steps

TINY_GEMM = (16, 16, 16)
"""A product whose time is the kernel's fixed part."""
TINY_SEQUENCE = 16
"""A length at which attention's time is the kernel's fixed part."""
OPERATORS = ("norm", "residual", "activation", "rotary")
"""What a layer does beside products and attention."""
KIB, MIB = 2**10, 2**20


@dataclass(frozen=True)
class Sizes:
    """How large measurements are on a kind of device: such that no cache holds them, and none takes a second.

    `precisions` are those of matrix products; the first is also that of attention. `rows` are tokens of a micro-batch,
    `widths` those of layers of small and large models.
    """

    precisions: tuple[str, ...]
    stream: int
    rows: tuple[int, int, int]
    widths: tuple[int, int, int]
    head_dims: tuple[int, ...]
    lengths: tuple[int, int, int]
    heads: int
    backends: tuple[str, ...]
    tokens: int
    width: int
    parameters: int
    messages: tuple[int, ...]
    """Bytes of collectives; the first, the middle and the last come first."""
    overlapped: int
    overlapping: int
    most_flops: float
    """Of one matrix product."""


SIZES = {
    "cpu": Sizes(
        precisions=("fp32", "bf16"), stream=256 * MIB, rows=(32, 256, 2048), widths=(64, 512, 2048),
        head_dims=(64, 128), lengths=(128, 512, 2048), heads=4, backends=("sdpa", "math"), tokens=2048, width=1024,
        parameters=8_000_000, messages=(KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB), overlapped=4 * MIB,
        overlapping=256, most_flops=2e10,
    ),
    "cuda": Sizes(
        precisions=("bf16", "tf32"), stream=1024 * MIB, rows=(128, 1024, 8192), widths=(1024, 4096, 16384),
        head_dims=(64, 128), lengths=(1024, 4096, 16384), heads=32, backends=("flash", "sdpa", "math"), tokens=16384,
        width=8192, parameters=500_000_000,
        messages=(4 * KIB, 64 * KIB, MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB), overlapped=256 * MIB,
        overlapping=4096, most_flops=2e13,
    ),
}  # fmt: skip
MATH_LENGTH = 2048
"""Beyond which scores in memory are not measured: they grow with the square."""


def sizes_of(machine: Machine) -> Sizes:
    """Sizes for a machine, in the 16-bit precision that it has."""
    sizes = SIZES[machine.device]
    own = tuple(machine.half if precision == "bf16" else precision for precision in sizes.precisions)
    return replace(sizes, precisions=own)


def usual_plan(machine: Machine) -> list[Measurement]:
    """All measurements without a decision in view: a few of every kind first, then what fills the gaps."""
    sizes = sizes_of(machine)
    steps = list(training_steps(machine))
    host = list(host_steps(machine))
    first, second, third = (list(make(machine, sizes)) for make in (_first, _second, _third))
    return distinct([*first, *steps[:2], *host, *second, *steps, *third])


def _first(machine: Machine, sizes: Sizes) -> Iterator[Measurement]:
    main = sizes.precisions[0]
    yield Measurement("copy", {"bytes": sizes.stream})
    for place in (1, 2, 0):
        yield gemm(main, sizes.rows[place], sizes.widths[place], sizes.widths[place])
    yield gemm(main, *TINY_GEMM)
    yield Measurement("tiny_layer")
    for direction in ("forward", "backward"):
        yield attention(sizes, sizes.backends[0], sizes.head_dims[-1], sizes.lengths[1], direction)
    for operator in OPERATORS:
        entries: dict[str, Parameter] = {
            "operator": operator,
            "dtype": main,
            "tokens": sizes.tokens,
            "width": sizes.width,
        }
        yield Measurement("elementwise", entries)
    yield Measurement("adamw", {"implementation": "fused", "parameters": sizes.parameters})
    if machine.processes > 1:
        some = sizes.messages[:: max(1, len(sizes.messages) // 2)] + sizes.messages[-1:]
        yield from _collectives(("all_reduce", "all_gather", "reduce_scatter"), some, machine.processes)
        yield from _collectives(("send_recv",), some, 2)
        yield Measurement("overlap", {"bytes": sizes.overlapped, "size": sizes.overlapping, "dtype": main})


def _second(machine: Machine, sizes: Sizes) -> Iterator[Measurement]:
    yield from (gemm(sizes.precisions[0], *shape) for shape in product(sizes.rows, sizes.widths, sizes.widths))
    for head_dim, length in product(sizes.head_dims, (sizes.lengths[0], sizes.lengths[2], sizes.lengths[1])):
        for direction in ("forward", "backward"):
            yield attention(sizes, sizes.backends[0], head_dim, length, direction)
    yield attention(sizes, sizes.backends[0], sizes.head_dims[0], TINY_SEQUENCE, "forward")
    if machine.processes > 1:
        yield from _collectives(("all_reduce", "all_gather", "reduce_scatter"), sizes.messages, machine.processes)
        yield from _collectives(("send_recv",), sizes.messages, 2)
        yield from _collectives(("all_to_all",), sizes.messages, machine.processes)
    yield Measurement("triad", {"bytes": sizes.stream})
    yield from _dispatches(machine)
    if machine.device == "cuda":
        yield from (Measurement(name) for name in ("context", "allocator"))


def _third(machine: Machine, sizes: Sizes) -> Iterator[Measurement]:
    for precision in sizes.precisions[1:]:
        yield from (gemm(precision, *shape) for shape in product(sizes.rows, sizes.widths, sizes.widths))
    for backend, head_dim, length in product(sizes.backends[1:], sizes.head_dims, sizes.lengths):
        if backend != "math" or length <= MATH_LENGTH:
            for direction in ("forward", "backward"):
                yield attention(sizes, backend, head_dim, length, direction)
    yield Measurement("adamw", {"implementation": "foreach", "parameters": sizes.parameters})
    for ranks, stride in _smaller_groups(machine):
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            yield from _collectives((name,), sizes.messages[::2], ranks, stride)
        if ranks == 2:
            yield from _collectives(("send_recv",), sizes.messages[::2], ranks, stride)


def _dispatches(machine: Machine) -> Iterator[Measurement]:
    """What the host takes for one operator: plain, divided over ranks, and in a graph where there are any."""
    for operator in ("add", "linear"):
        yield Measurement("dispatch", {"operator": operator, "tensor": "plain"})
        if machine.processes > 1:
            yield Measurement("dispatch", {"operator": operator, "tensor": "dtensor"})
    if machine.device == "cuda":
        yield Measurement("graph_operator")


def _smaller_groups(machine: Machine) -> Iterator[tuple[int, int]]:
    """Sizes and strides of groups of a part of all ranks: neighbours, and ranks as far apart as they can be."""
    world = int(machine.processes)
    for ranks in range(2, world):
        if world % ranks == 0:
            yield ranks, 1
            yield ranks, world // ranks


def _collectives(names: Iterable[str], sizes: Iterable[int], ranks: int, stride: int = 1) -> Iterator[Measurement]:
    """Every size of every collective, sizes of one after the other so that a short run has some of each."""
    for size, name in product(dict.fromkeys(sizes), tuple(names)):
        yield Measurement(name, {"bytes": size, "ranks": ranks, "stride": stride})


def gemm(dtype: str, m: int, n: int, k: int) -> Measurement:
    """A matrix product."""
    return Measurement("gemm", {"dtype": dtype, "m": m, "n": n, "k": k})


def attention(sizes: Sizes, backend: str, head_dim: int, seq_len: int, direction: str) -> Measurement:
    """Attention of one sequence."""
    shape: dict[str, Parameter] = {"heads": sizes.heads, "head_dim": head_dim, "seq_len": seq_len}
    return Measurement("attention", shape | {"backend": backend, "dtype": sizes.precisions[0], "direction": direction})


def distinct(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Each once, where it comes first."""
    return list({one.key: one for one in measurements}.values())
