"""Collectives on the groups of a plan: links from the topology, efficiencies from the profile, formulas from cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from planner.cost import collectives as cost
from planner.quantities import Bytes, BytesPerSecond, Count, Scalar, Seconds
from planner.spec.cluster import Cluster, Wiring
from planner.spec.profile import COLLECTIVES, CollectiveFit, Profile
from planner.topology.links import GroupLinks, Links

IN_SWITCH_RANKS = 5
"""Ranks on a reducing switch from which the library lets it reduce (measured: from 5 or 6 up)."""


@dataclass(frozen=True)
class Message:
    """A collective in every group of an axis; `group` is the field of Links.

    `size` is that of the full tensor, as nccl-tests counts it (of an all-to-all and a send what one rank sends), and 0
    in rows without it. `part_of` names the collective that it is a half of.
    """

    collective: str
    group: str
    size: Bytes
    calls: Count = 1
    part_of: str = ""


@dataclass(frozen=True)
class Network:
    """The efficiencies of a cluster's two kinds of links: inside a link domain, and between domains.

    `in_switch` is the all-reduce of a switch that reduces itself (NVLS), None where there is none. `through_host` is
    one slot's bandwidth where all bytes pass through host memory, else 0: the efficiencies measured there are shares
    of the slot with the contention in the host included, so that it must not be counted again.
    """

    local: Mapping[str, CollectiveFit]
    remote: Mapping[str, CollectiveFit]
    in_switch: CollectiveFit | None = None
    through_host: BytesPerSecond = 0.0

    @classmethod
    def of(cls, cluster: Cluster, profile: Profile) -> Network:
        """Fits of every collective for the cluster's link and fabric."""
        node = cluster.node
        link = f"{node.link}-host" if node.wiring is Wiring.HOST else node.link
        in_switch = profile.collectives.get((f"{link}-nvls", "all_reduce")) if node.in_network_reduction else None
        through_host = node.link_bandwidth if node.wiring is Wiring.HOST else 0.0
        return cls(_fits(profile, link), _fits(profile, node.fabric.kind), in_switch, through_host)

    def all_reduce(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of an all-reduce of `size` bytes in every group."""
        return cost.all_reduce_time(size, links.size, **self._ring("all_reduce", links))

    def all_gather(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of an all-gather to `size` bytes."""
        return cost.all_gather_time(size, links.size, **self._ring("all_gather", links))

    def reduce_scatter(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of a reduce-scatter from `size` bytes."""
        return cost.reduce_scatter_time(size, links.size, **self._ring("reduce_scatter", links))

    def all_to_all(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of an all-to-all in which each rank sends `size` bytes in all."""
        local, remote = self.local["all_to_all"], self.remote["all_to_all"]
        return cost.all_to_all_time(
            size,
            links.size,
            local=links.local,
            local_bandwidth=self._inside(links) * local.efficiency,
            remote_bandwidth=links.remote_bandwidth * remote.efficiency,
            start=_where_remote(links, remote.start, local.start),
            step_latency=_where_remote(links, remote.step_latency, local.step_latency),
        )

    def send(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time to send `size` bytes to the neighbour; 0 in a group of one."""
        local, remote = self.local["send_recv"], self.remote["send_recv"]
        bandwidth = _where_remote(
            links, links.remote_bandwidth * remote.efficiency, self._inside(links) * local.efficiency
        )
        latency = _where_remote(links, remote.start + remote.step_latency, local.start + local.step_latency)
        return cost.send_time(size * np.greater(links.size, 1), bandwidth=bandwidth, latency=latency)

    def time(self, messages: Iterable[Message], links: Links) -> Seconds:
        """Time of messages one after the other, each over the groups of its axis."""
        return sum(
            (each.calls * self._collective(each)(each.size, getattr(links, each.group)) for each in messages), 0.0
        )

    def _collective(self, message: Message) -> Callable[[Bytes, GroupLinks], Seconds]:
        by_name = {
            "all_reduce": self.all_reduce,
            "all_gather": self.all_gather,
            "reduce_scatter": self.reduce_scatter,
            "all_to_all": self.all_to_all,
            "send": self.send,
        }
        return by_name[message.collective]

    def _ring(self, collective: str, links: GroupLinks) -> dict[str, Scalar | Seconds]:
        """Arguments of a ring collective: the slower kind of link sets the pace, the longer way the latency."""
        local, remote = self._local_fit(collective, links), self.remote[collective]
        effective = cost.bus_bandwidth(
            group=links.size,
            local=links.local,
            local_bandwidth=self._inside(links) * local.efficiency,
            remote_bandwidth=links.remote_bandwidth * remote.efficiency,
        )
        nominal = cost.bus_bandwidth(
            group=links.size,
            local=links.local,
            local_bandwidth=self._inside(links),
            remote_bandwidth=links.remote_bandwidth,
        )
        share = _where_remote(links, remote.low_latency_share, local.low_latency_share)
        return {
            "domains": links.size / links.local,
            "bandwidth": effective,
            "start": _where_remote(links, remote.start, local.start),
            "step_latency": _where_remote(links, remote.step_latency, local.step_latency),
            "hop_latency": _where_remote(links, remote.hop_latency, local.hop_latency),
            "low_latency_bandwidth": np.where(np.isfinite(nominal), nominal, 0.0) * share,
        }

    def _inside(self, links: GroupLinks) -> BytesPerSecond:
        """Bandwidth inside a domain that efficiencies are shares of; infinite in a group of one."""
        return np.maximum(links.local_bandwidth, self.through_host)

    def _local_fit(self, collective: str, links: GroupLinks) -> CollectiveFit:
        """The fit inside a domain, row by row that of the switch where it reduces."""
        fit = self.local[collective]
        if self.in_switch is None or collective != "all_reduce":
            return fit
        reduces = np.asarray(links.local) >= IN_SWITCH_RANKS
        names = [field.name for field in fields(fit) if field.name != "source"]
        return CollectiveFit(
            **{name: np.where(reduces, getattr(self.in_switch, name), getattr(fit, name)) for name in names}
        )


def _fits(profile: Profile, link: str) -> dict[str, CollectiveFit]:
    return {name: profile.collectives[link, name] for name in COLLECTIVES if (link, name) in profile.collectives}


def _where_remote(links: GroupLinks, remote: Scalar, local: Scalar) -> Scalar:
    return np.where(np.greater(links.size, links.local), remote, local)
