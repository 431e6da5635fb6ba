"""From timed collectives to the fits of a profile, through the planner's own network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.bounded_fit import Figure, Found, fit
from calibration.grids import Array
from calibration.record import Record
from planner.catalogue.collectives import is_measured, kind_of
from planner.estimate.communication import IN_SWITCH_RANKS, Network
from planner.quantities import Bytes, Count, Seconds
from planner.spec.cluster import Cluster, Node, Wiring
from planner.spec.profile import CollectiveFit
from planner.topology.links import GroupLinks

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
FEWEST = 3
"""Sizes of messages below which a collective keeps the figures that it had."""
EFFICIENCY = (0.5, 0.01, 2.0)
"""Spread of the logarithm, and bounds. Above 1 where a link's figure was that of one message at a time."""
TIME = (1.5, 1e-7, 1.0)
SHARE = (1.0, 0.001, 1.0)

Key = tuple[str, str]
Fits = Mapping[Key, CollectiveFit]


@dataclass(frozen=True)
class Call:
    """A timed collective: `local` ranks of each group share a host."""

    name: str
    size: Bytes
    ranks: Count
    local: Count
    seconds: Seconds


@dataclass(frozen=True)
class Fitted:
    """A collective on a kind of link, with what the times told of it."""

    key: Key
    fit: CollectiveFit
    found: Found

    @property
    def untold(self) -> tuple[str, ...]:
        """Figures that the times do not decide each by itself."""
        return self.found.untold


def calls_of(record: Record) -> list[Call]:
    """All timed collectives."""
    here = record.machine
    on_host = int(here.processes // here.nodes)
    return [
        Call(name, row["bytes"], row["ranks"], _local(row["ranks"], row.get("stride", 1), on_host), measured.value)
        for name in NAMES
        for row, measured in record.results(name)
    ]


def _local(ranks: int, stride: int, on_host: int) -> int:
    """Ranks of a group on one host, where neighbours in the group are `stride` apart."""
    return max(1, min(ranks, on_host // stride))


def fitted_collectives(calls: Sequence[Call], cluster: Cluster, known: Fits) -> list[Fitted]:
    """Fits of the kinds of links that calls went over, starting from what is known; links inside a host first."""
    done: list[Fitted] = []
    found = dict(known)
    for name in NAMES:
        by_key: dict[Key, list[Call]] = {}
        for call in calls:
            if call.name == name:
                by_key.setdefault(_key(call, cluster.node), []).append(call)
        for key, some in sorted(by_key.items(), key=lambda item: item[1][0].local < item[1][0].ranks):
            if len({call.size for call in some}) >= FEWEST and key in found:
                done.append(_fitted(key, some, cluster, found))
                found[key] = done[-1].fit
    return done


def _key(call: Call, node: Node) -> Key:
    """Whose figures set the pace of a call."""
    link = f"{node.link}-host" if node.wiring is Wiring.HOST else node.link
    if call.local < call.ranks:
        return kind_of(node.fabric.kind, link), call.name
    in_switch = node.in_network_reduction and call.name == "all_reduce" and call.ranks >= IN_SWITCH_RANKS
    return f"{link}-nvls" if in_switch else link, call.name


def _fitted(key: Key, calls: Sequence[Call], cluster: Cluster, known: Fits) -> Fitted:
    start = known[key]
    if not is_measured(*key):
        start = replace(start, hop_latency=0.0, low_latency_share=0.0)
    times = np.array([call.seconds for call in calls])

    def predicted(values: Mapping[str, float]) -> Array:
        network = _network(cluster, {**known, key: replace(start, **values)})
        return np.array([float(network.times(call.name)(call.size, _links(call, cluster))) for call in calls])

    found = fit(_figures(start, times, key[1]), times, predicted)
    source = f"{len(calls)} calls, median error {found.error:.1%}"
    source += f"; not told by them: {', '.join(found.untold)}" if found.untold else ""
    return Fitted(key, replace(start, **found.values, source=source), found)


def _figures(start: CollectiveFit, times: Array, name: str) -> dict[str, Figure]:
    """What is fitted. A message to one other rank takes one step: its start tells all of its latency."""
    least = float(times.min())
    figures = {
        "efficiency": Figure(_within(start.efficiency, EFFICIENCY), *EFFICIENCY),
        "start": Figure(_within(max(start.start, least / 10), TIME), *TIME),
    }
    if name != "send_recv":
        figures["step_latency"] = Figure(_within(start.step_latency, TIME), *TIME)
    if start.low_latency_share > 0:
        figures["hop_latency"] = Figure(_within(start.hop_latency, TIME), *TIME)
        figures["low_latency_share"] = Figure(_within(start.low_latency_share, SHARE), *SHARE)
    return figures


def _within(value: float, limits: tuple[float, float, float]) -> float:
    _, lowest, highest = limits
    return min(max(value, 1.001 * lowest), 0.999 * highest)


def _network(cluster: Cluster, known: Fits) -> Network:
    node = cluster.node
    link = f"{node.link}-host" if node.wiring is Wiring.HOST else node.link
    found = Network.of_kinds(known, link=link, fabric=node.fabric.kind, reduces=node.in_network_reduction)
    return replace(found, through_host=node.link_bandwidth if node.wiring is Wiring.HOST else 0.0)


def _links(call: Call, cluster: Cluster) -> GroupLinks:
    """What a group has while all its sisters talk too: a rank's links, and its share of the host's way out."""
    node = cluster.node
    return GroupLinks(
        size=call.ranks,
        local=call.local,
        local_bandwidth=node.link_bandwidth if call.local > 1 else np.inf,
        remote_bandwidth=node.fabric.node_bandwidth / node.gpus_per_node if call.local < call.ranks else np.inf,
        local_latency=node.link_latency,
        remote_latency=node.fabric.latency,
    )
