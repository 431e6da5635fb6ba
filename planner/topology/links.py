"""What the groups of each parallel axis get from the network: the records that topology hands to estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.quantities import BytesPerSecond, Column, Seconds
from planner.rows import Rows
from planner.spec.plan import Int


@dataclass(frozen=True, eq=False)
class GroupLinks(Rows):
    """One axis' groups, all of them talking at once (contention included). Scalars or columns.

    `size` ranks per group, `local` of them inside one link domain (a node, or an NVL72 rack): size / local domains.
    `local_bandwidth` is what one rank can send to its peers inside the domain, one direction, while all sister
    groups do the same; `remote_bandwidth` what one rank's share of the node's NICs and of the switches above comes
    to, one direction. The bus bandwidth of a ring over the whole group is therefore
    min(local_bandwidth, local x remote_bandwidth). Both are nominal: efficiencies come from the profile.
    Where a kind of link is not used its bandwidth is infinite.
    """

    size: Int
    local: Int
    local_bandwidth: BytesPerSecond
    remote_bandwidth: BytesPerSecond
    local_latency: Seconds
    remote_latency: Seconds


@dataclass(frozen=True, eq=False)
class Links(Rows):
    """The groups of every axis, row for row with the plans that they were computed for.

    `dp_shard` is the group that shards dense parameters (dp_shard x cp ranks), `dp_replicate` the group across its
    replicas, `expert_shard` and `expert_replicate` the same for expert parameters. `pp` is a pair of neighbouring
    stages (size 2).
    """

    tp: GroupLinks
    cp: GroupLinks
    ep: GroupLinks
    expert_tp: GroupLinks
    pp: GroupLinks
    dp_shard: GroupLinks
    dp_replicate: GroupLinks
    expert_shard: GroupLinks
    expert_replicate: GroupLinks


@dataclass(frozen=True, eq=False)
class PlacedLinks:
    """Links of many plans, those of each distinct placement held once: rows are gathered only where they are needed.

    `row` is for each plan its placement. Indexing gives the `Links` of those plans.
    """

    placements: Links
    row: Column

    def __getitem__(self, index: Any) -> Links:
        """Links of the plans at `index`."""
        return self.placements[self.row[index]]
