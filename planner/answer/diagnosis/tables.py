"""Tables of nccl-tests beside what the collective model predicts for the machine, and which fault would give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.answer.diagnosis.records import Comparison, Standing, Taken
from planner.catalogue.collective_errors import DATASHEET, RANGES, spread
from planner.catalogue.hardware import accelerator, node, node_names, standard_node
from planner.dumps.records import CollectiveTable, NcclLog, Sample
from planner.errors import SpecError
from planner.quantities import GB, Column, counted, format_bandwidth, format_seconds
from planner.spec.cluster import Cluster, Node
from planner.validate.collectives import Calls, class_times, kind_of_row, level_of
from planner.validate.collectives_columns import StatedCall, collective_name
from planner.validate.collectives_machines import Machine

LAYERS = {"IB": "infiniband", "RoCE": "roce"}
"""How NCCL names the layer of an adapter -> kind of fabric."""
WORST_OF_FAULT = 0.4
"""Share of what a fault would leave from which the fault may still explain what was measured."""
FEWEST_IN_RANGE = 2
"""Sizes that a range has to have before it is judged by; a table of few sizes is judged by all."""


@dataclass(frozen=True, eq=False)
class TableCheck:
    """One table of a log: the calls that it states, predicted, and how the measured ones compare.

    `stated` are the rows of the largest sizes, which bandwidth decides; `samples` what was measured of them.
    """

    path: Path
    table: CollectiveTable
    stated: tuple[StatedCall, ...]
    samples: tuple[Sample, ...]
    comparison: Comparison
    machine: Machine
    nic_count: int
    """NICs of a node, as the cluster or the usual node has them; 0 where that is not known."""

    @property
    def across(self) -> bool:
        """Whether the ranks are spread over several link domains."""
        return self.machine.domains > 1

    @property
    def taken(self) -> str:
        """What had to be taken for granted of the network, empty where it is told or not used."""
        return self.stated[0].notes

    @property
    def slow(self) -> bool:
        """Whether the table is slower than expected."""
        return self.comparison.standing is Standing.WORSE

    def where(self) -> str:
        """The table's place in its file."""
        return f"{self.path}, line {self.table.line}"

    def would_be(self, **machine: str | float) -> tuple[float, float]:
        """Bus bandwidth of the judged row on another machine, and half its interval in the logarithm."""
        fault = self.stated[0].notes or "a fault"
        stated = [replace(row, notes=fault, **machine) for row in self.stated]  # type: ignore[arg-type]
        times, widths = _predicted(stated)
        row = _middle(np.array([sample.time for sample in self.samples]), _predicted(self.stated)[0])
        sample = self.samples[row]
        return sample.busbw * sample.time / float(times[row]), float(widths[row])

    def small_messages(self) -> str | None:
        """How far messages below 1 MiB are above their expected times, where they are; None where they are not."""
        top = RANGES[0][2]
        small = [sample for sample in self.table.samples if 0 < sample.size < top and sample.time]
        if len(small) < FEWEST_IN_RANGE:
            return None
        times, widths = _predicted([replace(self.stated[0], size=float(sample.size)) for sample in small])
        measured = np.array([sample.time for sample in small])
        row = _middle(measured, times)
        if np.log(measured[row] / times[row]) <= widths[row]:
            return None
        high = float(times[row] * np.exp(widths[row]))
        return (
            f"{_size_words(small[row].size)} take {format_seconds(float(measured[row]))}, "
            f"{format_seconds(float(times[row]))} (at most {format_seconds(high)}) expected"
        )

    def is_like(self, **machine: str | float) -> bool:
        """Whether the measured bandwidth is what another machine would give, and not what this one should.

        Below it may be by more than the interval: a fault as a rule costs more than its own share.
        """
        busbw, width = self.would_be(**machine)
        measured = self.comparison.measured * GB
        return WORST_OF_FAULT * busbw <= measured <= busbw * float(np.exp(width)) and busbw < self.comparison.low * GB


def check_tables(
    files: Iterable[Taken], *, cluster: Cluster | None, gpu: str | None
) -> tuple[list[TableCheck], list[str]]:
    """Every table that can be predicted, checked; and why others cannot."""
    checks, notes = [], []
    for file in files:
        for table in file.dump.tables if file.dump else ():
            nccl = file.dump.nccl if file.dump else None
            made = _check(file.path, table, _Machines(cluster, gpu or _named(table, file.path), nccl))
            if isinstance(made, str):
                notes.append(f"{file.path}, line {table.line}: {made}")
            else:
                checks.append(made)
                largest = max(sample.size for sample in made.samples)
                if largest < RANGES[0][2]:
                    notes.append(f"{made.where()}: sizes up to {_size_words(largest)} show latency, not bandwidth")
    return checks, list(dict.fromkeys(notes))


def _named(table: CollectiveTable, path: Path) -> str:
    """The accelerator that the table or its file's name speaks of; empty where neither does."""
    for text in filter(None, (table.gpu, *_beginnings(table.gpu), *path.stem.replace("_", " ").split())):
        try:
            return accelerator(text).name
        except SpecError:
            continue
    return ""


def _beginnings(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[:count]) for count in range(len(words) - 1, 0, -1)]


@dataclass(frozen=True)
class _Machines:
    """What is known of the machines of a table."""

    cluster: Cluster | None
    gpu: str
    nccl: NcclLog | None

    def fields(self, table: CollectiveTable) -> dict[str, str | float | int] | str:
        """What the rows of a table state of the machines; or why that is not known."""
        part = self.cluster.accelerator.name if self.cluster else self.gpu
        if not part:
            return "which accelerator it was is not told: --gpu h100-sxm, or --cluster 2xdgx-h100"
        try:
            usual = self.cluster.node if self.cluster else usual_node(part, self._layer())
        except SpecError as error:
            return str(error)
        ranks = table.ranks or 0
        per_node = usual.gpus_per_node * (usual.domain_nodes if usual.domain_nodes > 1 else 1)
        nodes = table.nodes or (self.nccl.nodes if self.nccl else None) or -(-ranks // per_node)
        fabric = usual.fabric
        told = self.cluster is not None and fabric.kind != "none"
        taken = f"network taken to be that of {usual.name}, {fabric.node_bandwidth * 8e-9:g} Gb/s a node"
        return {
            "gpu": part,
            "n_ranks": ranks,
            "n_nodes": max(nodes, 1),
            "inter": fabric.kind if told else self._layer() or usual.fabric.kind,
            "nic_gbps_per_node": fabric.node_bandwidth * 8e-9,
            "nics": fabric.nics_per_node,
            "taken": "" if told else taken,
        }

    def _layer(self) -> str:
        """The kind of network as NCCL names it; empty where it does not, or sends over sockets for want of one."""
        if self.nccl is None:
            return ""
        if any("Libfabric" in name for name in (self.nccl.network, *self.nccl.transports)):
            return "efa"
        layers = Counter(device.rpartition("/")[2] for device in self.nccl.devices)
        return LAYERS.get(max(layers, key=lambda name: layers[name], default=""), "")


def usual_node(part: str, layer: str) -> Node:
    """The accelerator's usual node, or the first of the catalogue with it whose network is of a kind.

    Raises SpecError for an accelerator without a node.
    """
    name = accelerator(part, where="--gpu").name
    usual = node(standard_node(name) or "")
    if layer in ("", usual.fabric.kind) or usual.fabric.kind == "slingshot":  # which libfabric drives as well
        return usual
    others = (node(each) for each in node_names())
    return next((each for each in others if (each.accelerator.name, each.fabric.kind) == (name, layer)), usual)


def _check(path: Path, table: CollectiveTable, machines: _Machines) -> TableCheck | str:
    name = collective_name(table.collective)
    if not name or not table.ranks or table.ranks < 2:
        return f"no prediction for {table.collective or 'an unknown collective'} of {table.ranks or '?'} ranks"
    fields = machines.fields(table)
    if isinstance(fields, str):
        return fields
    nics, taken = int(fields.pop("nics")), str(fields.pop("taken"))
    samples = bulk(table.samples)
    stated = tuple(
        StatedCall(
            source_id=path.stem,
            source=str(path),
            collective=table.collective,
            name=name,
            intra="",
            size=float(sample.size),
            notes=taken if int(fields["n_nodes"]) > 1 else "",
            **fields,  # type: ignore[arg-type]
        )
        for sample in samples
    )
    comparison, machine = _compared(path, table, stated, samples)
    return TableCheck(path, table, stated, samples, comparison, machine, nics)


def bulk(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The samples of the largest range of sizes that has a few; all where none has."""
    for _, low, high in reversed(RANGES):
        found = tuple(sample for sample in samples if low <= sample.size < high and sample.time and sample.busbw)
        if len(found) >= FEWEST_IN_RANGE:
            return found
    return tuple(sample for sample in samples if sample.time and sample.busbw) or samples


def _predicted(stated: Iterable[StatedCall]) -> tuple[Column, Column]:
    """Times of calls, and half the width of their intervals in the logarithm: a row's notes say what was guessed."""
    rows = list(stated)
    calls = Calls.of(rows)
    pairs = zip(rows, calls.machines, strict=True)
    widths = [
        spread(DATASHEET if row.notes else level_of(row, wires), kind_of_row(row), row.size) for row, wires in pairs
    ]
    return class_times(calls), np.array(widths)


def _middle(measured: Column, predicted: Column) -> int:
    """The row whose ratio of measured to predicted time is the median."""
    order = np.argsort(measured / predicted, kind="stable")
    return int(order[len(order) // 2])


def _compared(
    path: Path, table: CollectiveTable, stated: tuple[StatedCall, ...], samples: tuple[Sample, ...]
) -> tuple[Comparison, Machine]:
    times, widths = _predicted(stated)
    row = _middle(np.array([sample.time for sample in samples]), times)
    sample, width = samples[row], float(widths[row])
    expected = sample.busbw * sample.time / float(times[row])
    calls = Calls.of(stated[row : row + 1])
    machine = calls.machines[0]
    assert machine is not None
    taken = stated[row].notes
    level = DATASHEET if taken else level_of(stated[row], machine)
    guess = "".join(f"; {each}" for each in (machine.guessed, taken) if each)
    over = f" on {counted(stated[0].n_nodes, 'node')}" if stated[0].n_nodes > 1 else ""
    return (
        Comparison(
            what=f"{table.collective} of {table.ranks} ranks{over}, {_size_words(sample.size)}",
            unit="GB/s bus bandwidth",
            measured=sample.busbw / GB,
            expected=expected / GB,
            low=expected / GB * float(np.exp(-width)),
            high=expected / GB * float(np.exp(width)),
            basis=f"{machine.name}, {level}{guess}",
            source=f"{path}, line {table.line}",
        ),
        machine,
    )


def _size_words(size: int) -> str:
    """A size in the largest unit that is whole enough, as nccl-tests is called with it: 128 MiB, 1 GiB, 13 GiB.

    >>> _size_words(2**27), _size_words(13958643712), _size_words(96)
    ('128 MiB', '13 GiB', '96 B')
    """
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"


def bandwidth_words(check: TableCheck) -> str:
    """What was measured beside what was expected, in a sentence's part."""
    each = check.comparison
    return (
        f"{each.what}: {format_bandwidth(each.measured * GB)} measured, {format_bandwidth(each.expected * GB)} "
        f"({format_bandwidth(each.low * GB)} to {format_bandwidth(each.high * GB)}) expected of {check.machine.name}"
    )
