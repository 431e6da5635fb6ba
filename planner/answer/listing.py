"""The catalogue as tables, one a kind: values for programs, and how people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.answer.choices import OBJECTIVES, OFFLOADS
from planner.catalogue import hardware
from planner.catalogue.models import model, model_names
from planner.catalogue.stacks import stack, stack_names
from planner.emit.targets import LAUNCHERS, TRAINER_STACKS
from planner.quantities import GB, GIB, format_count
from planner.simulate.schedules import SCHEDULES
from planner.spec.workload import ATTENTION_BACKENDS, METHODS, OPTIMIZERS, PRECISIONS, STATES


def _text(value: Any) -> str:
    """A value for people; nothing is a dash."""
    if value is None or value == "" or value == ():
        return "-"
    if isinstance(value, tuple | list):
        return ", ".join(_text(each) for each in value)
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _range(value: Sequence[float] | None) -> str:
    return f"{value[0]:.2f}-{value[1]:.2f}" if value else "-"


@dataclass(frozen=True)
class TableColumn:
    """A column: title with unit, key in JSON, how long a narrow window keeps it (1 longest), and how it is shown."""

    title: str
    key: str
    priority: int = 1
    left: bool = False
    show: Callable[[Any], str] = _text


@dataclass(frozen=True)
class Listing:
    """Rows of values under columns."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Any, ...], ...]

    def as_dicts(self) -> list[dict[str, Any]]:
        """One object a row, for JSON."""
        return [{column.key: value for column, value in self._cells(row)} for row in self.rows]

    def as_text(self) -> list[list[str]]:
        """The rows for people."""
        return [[column.show(value) for column, value in self._cells(row)] for row in self.rows]

    def _cells(self, row: tuple[Any, ...]) -> list[tuple[TableColumn, Any]]:
        return list(zip(self.columns, row, strict=True))


NAME = TableColumn("name", "name", left=True)
ALIASES = TableColumn("aliases", "aliases", 5, left=True)


def listing(kind: str) -> Listing:
    """Everything of a kind: models, gpus, nodes, networks, stacks. Raises KeyError for another."""
    return LISTINGS[kind]()


def choice_names() -> dict[str, tuple[str, ...]]:
    """What each choice that has names may be.

    Those of a question by their names in `Choices`; `trainer` and `launcher` are the parts of a target, `schedule` is
    what a simulation may play.
    """
    return {
        "precision": PRECISIONS,
        "state": STATES,
        "optimizer": OPTIMIZERS,
        "method": METHODS,
        "attention": ATTENTION_BACKENDS,
        "offload": OFFLOADS,
        "objective": OBJECTIVES,
        "trainer": tuple(TRAINER_STACKS),
        "launcher": LAUNCHERS,
        "schedule": tuple(SCHEDULES),
    }


def _models() -> Listing:
    columns = (
        NAME,
        TableColumn("parameters", "parameters", show=format_count),
        TableColumn("active", "active_parameters", 2, show=format_count),
        TableColumn("layers", "layers", 2),
        TableColumn("hidden", "hidden_size", 3),
        TableColumn("vocabulary", "vocab_size", 4),
        TableColumn("longest\nsequence", "max_seq_len", 4),
    )
    return Listing(columns, tuple(_model_row(name) for name in model_names()))


def _model_row(name: str) -> tuple[Any, ...]:
    found = model(name)
    sizes = (found.num_hidden_layers, found.hidden_size, found.vocab_size, found.max_seq_len or None)
    return name, found.parameters, found.active_parameters, *sizes


def _gpus() -> Listing:
    columns = (
        NAME,
        TableColumn("memory\n(GiB)", "memory_gib"),
        TableColumn("bandwidth\n(GB/s)", "memory_bandwidth_gb_per_s", 2),
        TableColumn("16-bit dense\n(TFLOP/s)", "peak_16bit_tflops"),
        TableColumn("8-bit dense\n(TFLOP/s)", "peak_8bit_tflops", 3),
        TableColumn("USD per\nGPU-hour", "usd_per_gpu_hour_range", 3, show=_range),
        TableColumn("price of", "price_date", 4, left=True),
        ALIASES,
    )
    return Listing(columns, tuple(_gpu_row(name, aliases) for name, aliases in hardware.accelerator_names().items()))


def _gpu_row(name: str, aliases: Sequence[str]) -> tuple[Any, ...]:
    gpu = hardware.accelerator(name)
    sizes = (gpu.memory / GIB, gpu.memory_bandwidth / GB)
    peaks = (_tflops(gpu.peak, "bf16", "fp16"), _tflops(gpu.peak, "fp8", "mxfp8"))
    return name, *sizes, *peaks, gpu.usd_per_hour, gpu.price_date or None, tuple(aliases)


def _tflops(peak: Mapping[str, float], *precisions: str) -> float | None:
    return next((peak[name] / 1e12 for name in precisions if name in peak), None)


def _nodes() -> Listing:
    columns = (
        NAME,
        TableColumn("GPUs", "gpus_per_node"),
        TableColumn("GPU", "accelerator", left=True),
        TableColumn("wiring", "wiring", 3, left=True),
        TableColumn("link", "link", 3, left=True),
        TableColumn("link per GPU,\none way (GB/s)", "link_bandwidth_gb_per_s", 2),
        TableColumn("network", "network", 3, left=True),
        TableColumn("NICs", "nics_per_node", 4),
        TableColumn("network per node,\none way (GB/s)", "node_bandwidth_gb_per_s", 2),
        ALIASES,
    )
    return Listing(columns, tuple(_node_row(name, aliases) for name, aliases in hardware.node_names().items()))


def _node_row(name: str, aliases: Sequence[str]) -> tuple[Any, ...]:
    node = hardware.node(name)
    inside = (node.accelerator.name, node.wiring.name.lower(), node.link, node.link_bandwidth / GB)
    outside = (node.fabric.name, node.fabric.nics_per_node, node.fabric.node_bandwidth / GB)
    return name, node.gpus_per_node, *inside, *outside, tuple(aliases)


def _networks() -> Listing:
    columns = (
        NAME,
        TableColumn("kind", "kind", left=True),
        TableColumn("one NIC, one way\n(GB/s)", "nic_bandwidth_gb_per_s"),
        TableColumn("NICs\nper node", "nics_per_node", 2, show=lambda value: str(value or "as the node")),
        TableColumn("latency\n(us)", "latency_us", 2),
        ALIASES,
    )
    return Listing(columns, tuple(_network_row(name, aliases) for name, aliases in hardware.network_names().items()))


def _network_row(name: str, aliases: Sequence[str]) -> tuple[Any, ...]:
    fabric = hardware.network(name)
    nics = fabric.nics_per_node or None
    return name, fabric.kind, fabric.nic_bandwidth / GB, nics, fabric.latency * 1e6, tuple(aliases)


def _stacks() -> Listing:
    columns = (
        NAME,
        TableColumn("sharding", "shardings", 2, left=True),
        TableColumn("pipeline schedules", "schedules", 3, left=True),
        TableColumn("context parallelism", "context_kinds", 3, left=True),
        ALIASES,
    )
    return Listing(columns, tuple(_stack_row(name, aliases) for name, aliases in stack_names().items()))


def _stack_row(name: str, aliases: Sequence[str]) -> tuple[Any, ...]:
    found = stack(name)
    kinds = (found.shardings, found.schedules, found.context_kinds)
    return name, *(tuple(each for each in kind if each != "none") for kind in kinds), tuple(aliases)


LISTINGS: Mapping[str, Callable[[], Listing]] = {
    "models": _models,
    "gpus": _gpus,
    "nodes": _nodes,
    "networks": _networks,
    "stacks": _stacks,
}
