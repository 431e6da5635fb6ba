"""Collectives on the groups of a plan: links from the topology, efficiencies from the profile, formulas from cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cost import bandwidths
from planner.cost import collectives as cost
from planner.quantities import Bytes, BytesPerSecond, Count, Scalar, Seconds
from planner.spec.cluster import Cluster, Wiring
from planner.spec.profile import COLLECTIVES, TREES, TWO_DOMAINS, CollectiveFit, Profile
from planner.topology.links import GroupLinks, Links

IN_SWITCH_RANKS = 5
"""Ranks on a reducing switch from which the library lets it reduce (measured: from 5 or 6 up)."""


COPYING = ("all_gather", "reduce_scatter")
"""Collectives of a ring in which every rank copies its own part."""


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

    `in_switch` is the all-reduce of a switch that reduces itself (NVLS), None where there is none. `two_domains` is,
    inside and across, the share of the links that the trees of an all-reduce between two domains reach (0: no trees);
    `trees` is what they are between more, and `trees_inside` their share of the links inside then (0: as between two).
    `through_host` is one slot's bandwidth where all bytes pass through host memory, else 0: the efficiencies measured
    there are shares of the slot with the contention in the host included, so that it must not be counted again.
    """

    local: Mapping[str, CollectiveFit]
    remote: Mapping[str, CollectiveFit]
    in_switch: CollectiveFit | None = None
    through_host: BytesPerSecond = 0.0
    two_domains: tuple[Scalar, Scalar] = (0.0, 0.0)
    trees: CollectiveFit | None = None
    trees_inside: Scalar = 0.0

    @classmethod
    def of(cls, cluster: Cluster, profile: Profile) -> Network:
        """Fits of every collective for the cluster's link and fabric."""
        # Every collective waits for the slowest pool.
        node = min((pool.node for pool in cluster.pools), key=lambda each: each.link_bandwidth)
        link = f"{node.link}-host" if node.wiring is Wiring.HOST else node.link
        through_host = node.link_bandwidth if node.wiring is Wiring.HOST else 0.0
        found = cls.of_kinds(profile.collectives, link=link, fabric=node.fabric.kind, reduces=node.in_network_reduction)
        return replace(found, through_host=through_host)

    @classmethod
    def of_kinds(
        cls, known: Mapping[tuple[str, str], CollectiveFit], *, link: str, fabric: str, reduces: bool
    ) -> Network:
        """Fits of a kind of link and of the fabric between domains of such links, or of the fabric between any."""
        between = next(kind for kind in (f"{fabric}-{link}", fabric, link) if (kind, "all_reduce") in known)
        shares = (known[kind, TWO_DOMAINS].efficiency for kind in (link, between) if (kind, TWO_DOMAINS) in known)
        inside, across = (*shares, 0.0, 0.0)[:2]
        return cls(
            local=_fits(known, link),
            remote=_fits(known, between),
            in_switch=known.get((f"{link}-nvls", "all_reduce")) if reduces else None,
            two_domains=(inside, across),
            trees=known.get((between, TREES)),
            trees_inside=known[link, TREES].efficiency if (link, TREES) in known else 0.0,
        )

    def all_reduce(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of an all-reduce of `size` bytes in every group."""
        ring = self.ring("all_reduce", links)
        bandwidth = np.maximum(ring["bandwidth"], self._two_domain_bandwidth(links))
        return cost.all_reduce_time(
            size,
            links.size,
            domains=links.size / links.local,
            **(ring | {"bandwidth": bandwidth}),
            tree_hop_latency=self.trees.hop_latency if self.trees else 0.0,
            tree_bandwidth=self._tree_bandwidth(links),
        )

    def all_gather(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of an all-gather to `size` bytes."""
        return cost.all_gather_time(size, links.size, **self.ring("all_gather", links))

    def reduce_scatter(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of a reduce-scatter from `size` bytes."""
        return cost.reduce_scatter_time(size, links.size, **self.ring("reduce_scatter", links))

    def all_to_all(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time of an all-to-all in which each rank sends `size` bytes in all."""
        local, remote = self.local["all_to_all"], self.remote["all_to_all"]
        efficiency = _where_remote(links, remote.efficiency, local.efficiency)
        share = _where_remote(links, remote.low_latency_share, local.low_latency_share)
        return cost.all_to_all_time(
            size,
            links.size,
            local=links.local,
            local_bandwidth=bandwidths.copying_bandwidth(self._inside(links) * local.efficiency, links.local),
            remote_bandwidth=links.remote_bandwidth * remote.efficiency,
            start=_where_remote(links, remote.start, local.start),
            step_latency=_where_remote(links, remote.step_latency, local.step_latency),
            hop_latency=_where_remote(links, remote.hop_latency, local.hop_latency),
            low_latency_share=share / efficiency,
        )

    def send(self, size: Bytes, links: GroupLinks) -> Seconds:
        """Time to send `size` bytes to the neighbour; 0 in a group of one."""
        local, remote = self.local["send_recv"], self.remote["send_recv"]
        nominal = _where_remote(links, links.remote_bandwidth, self._inside(links))
        start = _where_remote(links, remote.start, local.start)
        share = _where_remote(links, remote.low_latency_share, local.low_latency_share)
        return cost.send_time(
            size * np.greater(links.size, 1),
            bandwidth=nominal * _where_remote(links, remote.efficiency, local.efficiency),
            latency=start + _where_remote(links, remote.step_latency, local.step_latency),
            hop_latency=start + _where_remote(links, remote.hop_latency, local.hop_latency),
            low_latency_bandwidth=np.where(np.isfinite(nominal), nominal, 0.0) * share,
        )

    def times(self, collective: str) -> Callable[[Bytes, GroupLinks], Seconds]:
        """The method of a collective by its name."""
        by_name = {
            "all_reduce": self.all_reduce,
            "all_gather": self.all_gather,
            "reduce_scatter": self.reduce_scatter,
            "all_to_all": self.all_to_all,
            "send_recv": self.send,
            "send": self.send,
        }
        return by_name[collective]

    def time(self, messages: Iterable[Message], links: Links) -> Seconds:
        """Time of messages one after the other, each over the groups of its axis."""
        return sum(
            (each.calls * self.times(each.collective)(each.size, getattr(links, each.group)) for each in messages), 0.0
        )

    def ring(self, collective: str, links: GroupLinks) -> dict[str, Scalar | Seconds]:
        """Arguments of a ring collective: the slower kind of link sets the pace, the longer way the latency."""
        local, remote = self._local_fit(collective, links), self.remote[collective]
        inside = self._inside(links) * local.efficiency
        effective = cost.bus_bandwidth(
            group=links.size,
            local=links.local,
            local_bandwidth=bandwidths.copying_bandwidth(inside, links.local) if collective in COPYING else inside,
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
            "bandwidth": effective,
            "start": _where_remote(links, remote.start, local.start),
            "step_latency": _where_remote(links, remote.step_latency, local.step_latency),
            "hop_latency": _where_remote(links, remote.hop_latency, local.hop_latency),
            "low_latency_bandwidth": np.where(np.isfinite(nominal), nominal, 0.0) * share,
        }

    def _two_domain_bandwidth(self, links: GroupLinks) -> BytesPerSecond:
        """Bus bandwidth of an all-reduce over trees where a group lies in two domains, else 0."""
        inside, across = self.two_domains
        if not across:
            return 0.0
        two = np.equal(links.size, 2 * np.asarray(links.local))
        way_out = np.where(two, links.remote_bandwidth, 0.0) * across
        out = bandwidths.two_domain_bandwidth(group=links.size, local=links.local, remote_bandwidth=way_out)
        return np.minimum(self._trees_inside(links, inside), out)

    def _tree_bandwidth(self, links: GroupLinks) -> BytesPerSecond:
        """Bus bandwidth of trees where a group lies in more domains, else 0."""
        if self.trees is None:
            return 0.0
        inside = self._trees_inside(links, self.trees_inside or self.two_domains[0] or self.trees.efficiency)
        out = links.local * links.remote_bandwidth * self.trees.efficiency
        return np.where(np.greater(links.size, 2 * np.asarray(links.local)), np.minimum(inside, out), 0.0)

    def _trees_inside(self, links: GroupLinks, share: Scalar) -> BytesPerSecond:
        return np.where(np.greater(links.local, 1), self._inside(links) * share, np.inf)

    def _inside(self, links: GroupLinks) -> BytesPerSecond:
        """Bandwidth inside a domain that efficiencies are shares of; infinite in a group of one."""
        return np.maximum(links.local_bandwidth, self.through_host)

    def _local_fit(self, collective: str, links: GroupLinks) -> CollectiveFit:
        """The fit inside a domain, row by row that of the switch where it reduces; a ring goes on to other domains."""
        fit = self.local[collective]
        if self.in_switch is None or collective != "all_reduce":
            return fit
        reduces = (np.asarray(links.local) >= IN_SWITCH_RANKS) & np.equal(links.local, links.size)
        names = [field.name for field in fields(fit) if field.name != "source"]
        return CollectiveFit(
            **{name: np.where(reduces, getattr(self.in_switch, name), getattr(fit, name)) for name in names}
        )


def _fits(known: Mapping[tuple[str, str], CollectiveFit], kind: str) -> dict[str, CollectiveFit]:
    return {name: known[kind, name] for name in COLLECTIVES if (kind, name) in known}


def _where_remote(links: GroupLinks, remote: Scalar, local: Scalar) -> Scalar:
    return np.where(np.greater(links.size, links.local), remote, local)
