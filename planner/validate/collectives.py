"""Predictions for tables of measured collectives, from the stated configuration alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.catalogue.collective_errors import DATASHEET, DEFAULT
from planner.catalogue.collectives import collective_fits, is_measured, kind_of
from planner.cost.collectives import all_reduce_bytes, broadcast_time, gather_bytes
from planner.estimate.communication import IN_SWITCH_RANKS, Network
from planner.quantities import Bytes, Column, Seconds
from planner.spec.profile import CollectiveFit
from planner.topology.links import GroupLinks
from planner.validate.collectives_columns import StatedCall
from planner.validate.collectives_machines import Machine, machine

DATASHEET_STEP: tuple[Seconds, Seconds] = (2e-6, 5e-6)
"""Latency of a step inside a domain and between domains, where nothing is known but datasheets."""

Fits = Mapping[tuple[str, str], CollectiveFit]


@dataclass(frozen=True, eq=False)
class Calls:
    """Rows of a table with the links that they mean, column by column. Row i is `stated[i]`."""

    stated: Sequence[StatedCall]
    machines: Sequence[Machine | None]
    predictable: Column
    links: GroupLinks
    size: Column

    @classmethod
    def of(cls, stated: Sequence[StatedCall]) -> Calls:
        """Rows as columns; those that cannot be predicted hold figures that nobody reads."""
        machines = [None if row.reason else machine_of(row) for row in stated]
        columns = [(1, 1.0, np.inf, np.inf) if m is None else _links(m) for m in machines]
        size, local, inside, across = (np.array(column, dtype=float) for column in zip(*columns, strict=True))
        zero = np.zeros(len(size))
        return cls(
            stated=stated,
            machines=machines,
            predictable=np.array([m is not None for m in machines]),
            links=GroupLinks(size, local, inside, across, zero, zero),
            size=np.array([row.size for row in stated]),
        )

    def groups(self) -> dict[tuple[str, str, bool, str], Column]:
        """Rows that one evaluation of one network predicts: by link, fabric, reducing switch and collective."""
        found: dict[tuple[str, str, bool, str], list[int]] = defaultdict(list)
        for row, (call, wires) in enumerate(zip(self.stated, self.machines, strict=True)):
            if wires is not None:
                found[wires.link, wires.fabric, wires.reduces, call.name].append(row)
        return {key: np.array(rows) for key, rows in found.items()}


def machine_of(row: StatedCall) -> Machine:
    """The links that a row means."""
    return machine(
        gpu=row.gpu,
        intra=row.intra,
        inter=row.inter,
        nic_gbps_per_node=row.nic_gbps_per_node,
        n_ranks=row.n_ranks,
        n_nodes=row.n_nodes,
    )


def site_of(row: StatedCall) -> str:
    """Who measured: the source's repository, or its name where it has none.

    >>> from planner.validate.collectives_columns import StatedCall
    >>> call = StatedCall("a", "github.com/NVIDIA/nccl/issues/209", "", "", 1, 1, "", "", "", 0.0, 1.0)
    >>> site_of(call)
    'github.com/NVIDIA/nccl'
    """
    place = re.split(r"\s:\s|:\s", row.source)[0].strip()
    repository = re.match(r"(?:https?://)?((?:github|gitlab)\.com/[^/\s]+/[^/\s:]+)", place)
    return repository[1] if repository else place or row.source_id


def table_of(row: StatedCall) -> Hashable:
    """What the rows of one table share: everything stated but the size."""
    return (
        row.source_id,
        row.source,
        row.collective,
        row.n_ranks,
        row.n_nodes,
        row.gpu,
        row.intra,
        row.inter,
        row.notes,
    )


def class_times(calls: Calls, fits: Fits | None = None) -> Column:
    """Times by the classes of the catalogue (or of `fits`); 0 where a row cannot be predicted."""
    known, times = fits or collective_fits(), np.zeros(len(calls.stated))
    for (link, fabric, reduces, name), rows in calls.groups().items():
        network = Network.of_kinds(known, link=link, fabric=fabric, reduces=reduces)
        times[rows] = call_times(network, name, calls.size[rows], calls.links[rows])
    return times


def call_times(network: Network, name: str, size: Bytes, links: GroupLinks) -> Seconds:
    """Times of one collective, also of those that no training step calls."""
    if name in ("broadcast", "reduce"):
        return broadcast_time(size, links.size, **network.ring("broadcast", links))
    return network.times(name)(size, links)


def datasheet_times(calls: Calls) -> Column:
    """Times by nominal bandwidths and a usual latency per step alone: what anything measured has to beat."""
    links, names = calls.links, np.array([row.name for row in calls.stated])
    both, exchange, pair = (
        names == "all_reduce",
        names == "all_to_all",
        np.isin(names, ("send_recv", "broadcast", "reduce")),
    )
    bytes_sent = np.select(
        [both, pair], [all_reduce_bytes(calls.size, links.size), calls.size], gather_bytes(calls.size, links.size)
    )
    remote = links.size > links.local
    ring = np.minimum(
        np.where(links.local > 1, links.local_bandwidth, np.inf),
        np.where(remote, links.local * links.remote_bandwidth, np.inf),
    )
    own = np.where(remote, links.remote_bandwidth, links.local_bandwidth)
    crossing = np.where(remote, (links.size - links.local) / links.size * calls.size, bytes_sent)
    steps = np.select([both, pair], [2 * (links.size - 1), 1], links.size - 1)
    transfer = np.select([exchange, names == "send_recv"], [crossing / own, calls.size / own], bytes_sent / ring)
    return calls.predictable * (steps * np.where(remote, DATASHEET_STEP[1], DATASHEET_STEP[0]) + transfer)


def kind_of_row(row: StatedCall) -> str:
    """The kind of the catalogue whose figures a row is predicted with."""
    wires = machine_of(row)
    if wires.domains > 1:
        return kind_of(wires.fabric, wires.link)
    in_switch = wires.reduces and row.name == "all_reduce" and wires.local >= IN_SWITCH_RANKS
    return f"{wires.link}-nvls" if in_switch else wires.link


def level_of(row: StatedCall, wires: Machine | None) -> str:
    """What a prediction without calibration rests on: the class' measurements, or datasheets and the nearest class."""
    if wires is None or wires.guessed or not is_measured(kind_of_row(row), row.name):
        return DATASHEET
    return DEFAULT


def _links(wires: Machine) -> tuple[float, float, float, float]:
    return wires.local * wires.domains, wires.local, wires.local_bandwidth, wires.remote_bandwidth
