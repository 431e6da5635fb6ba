"""Who sends to whom: the streams of all groups of an axis at once, inside link domains and between them.

A load of 1 is what one rank sends to its group in all, so that loads times bytes are bytes and nothing is lost or
counted twice: of a ring as much leaves a domain as one rank sends, of an all-to-all what goes to ranks elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np

from planner.quantities import Column, Scalar
from planner.topology.patterns import Pattern
from planner.topology.seats import Runs, Seats, runs


@dataclass(frozen=True, eq=False)
class Streams:
    """One entry per stream, from a rank to a rank."""

    source: Column
    target: Column
    load: Column

    def times(self, sent: Column) -> Self:
        """The same streams where each rank sends so much, in whatever unit."""
        loads = [field.name for field in fields(self) if field.name not in ("source", "target")]
        return replace(self, **{name: getattr(self, name) * sent[self.source] for name in loads})


@dataclass(frozen=True, eq=False)
class Outbound(Streams):
    """Streams between domains. Those to many ranks alike are one entry from a rank, and to a rank what it receives."""

    off_leaf: Column
    """The part of the load that crosses a spine."""
    off_pod: Column
    off_site: Column


class Parts(NamedTuple):
    """Of what a rank sends to its group, the part that stays in its domain and the part that leaves by its own links.

    They are those of the rank by which an axis is judged: it has the most to send there.
    """

    inside: Scalar
    across: Scalar


def parts_of(pattern: Pattern, where: Runs) -> Parts:
    """The parts of the groups of an axis, all of one size; of an all-to-all where the fewest sit in a domain."""
    size, local = where.members.shape[1], int(where.length.min())
    if pattern == Pattern.ALL_TO_ALL:
        return Parts((local - 1) / max(size - 1, 1), (size - local) / max(size - 1, 1))
    if pattern == Pattern.RING:
        return Parts(float(ring_load(where).max()), 1 / local)
    return Parts(1.0, 1.0)


def streams_inside(pattern: Pattern, where: Runs, only: Column | None = None) -> Streams:
    """The streams between ranks of one domain; of rings those of the members in the mask `only`."""
    if pattern == Pattern.ALL_TO_ALL:
        return _all_pairs(where)
    last = where.position == where.length - 1
    closed = np.zeros_like(where.spread) if pattern == Pattern.CHAIN else ~where.spread | (pattern == Pattern.RING)
    sends = ((where.length > 1) if only is None else only) & (closed[:, None] | ~last)
    place = np.arange(where.members.size).reshape(where.members.shape)
    target = where.members.ravel()[(place + np.where(last, 1 - where.length, 1))[sends]]
    load = ring_load(where) if pattern == Pattern.RING else np.ones(where.members.shape)
    return Streams(where.members[sends], target, load[sends])


def ring_load(where: Runs) -> Column:
    """What a rank passes on inside its domain; of rotated rings each member in turn sends its last part outside."""
    return np.where(where.spread[:, None], 1 - 1 / where.length, 1.0)


def streams_across(pattern: Pattern, where: Runs, seat: Seats) -> Outbound:
    """The streams between ranks of different domains."""
    if pattern == Pattern.RING:
        return _rotated_rings(where, seat)
    if pattern == Pattern.ALL_TO_ALL:
        return _to_all_elsewhere(where, seat)
    source, target = where.members, np.roll(where.members, -1, axis=1)
    if pattern == Pattern.CHAIN:
        source, target = source[:, :-1], target[:, :-1]
    return outbound(Streams(source.ravel(), target.ravel(), np.ones(source.size)), seat)


def outbound(streams: Streams, seat: Seats) -> Outbound:
    """Those of some streams that leave a domain."""
    leaves = seat.domain[streams.source] != seat.domain[streams.target]
    source, target, load = streams.source[leaves], streams.target[leaves], streams.load[leaves]
    off = (load * (place[source] != place[target]) for place in (seat.leaf, seat.pod, seat.site))
    return Outbound(source, target, load, *off)


def inbound(streams: Streams, seat: Seats) -> Streams:
    """Those of some streams that stay in a domain."""
    stays = seat.domain[streams.source] == seat.domain[streams.target]
    return Streams(streams.source[stays], streams.target[stays], streams.load[stays])


def _all_pairs(where: Runs) -> Streams:
    size, run = where.members.shape[1], np.cumsum(where.position == 0).reshape(where.members.shape)
    pairs = [(np.zeros(0, dtype=np.int64),) * 2]
    for apart in range(1, int(where.length.max())):
        together = run[:, apart:] == run[:, :-apart]
        one, other = where.members[:, :-apart][together], where.members[:, apart:][together]
        pairs += [(one, other), (other, one)]
    source, target = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    return Streams(source, target, np.full(source.size, 1 / max(size - 1, 1)))


def _rotated_rings(where: Runs, seat: Seats) -> Outbound:
    """As many rotated rings as the domain with the fewest members has: each leaves and enters by another member."""
    members, position = where.members[where.spread], where.position[where.spread]
    rings = where.length[where.spread].min(axis=1, initial=members.shape[1])
    chosen = position < rings[:, None]
    source, count = members[chosen], chosen.sum(axis=1)
    row = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    offset = np.arange(source.size) - begin[row]
    target = source[begin[row] + (offset + rings[row]) % count[row]]
    return outbound(Streams(source, target, 1 / rings[row]), seat)


def _to_all_elsewhere(where: Runs, seat: Seats) -> Outbound:
    """Every rank sends to all ranks outside its domain alike, and receives as much.

    Within a rail-optimised pool or pod nothing crosses a spine, since a message first moves inside its node to the
    accelerator on the receiver's rail (NCCL's PXN).
    """
    members, near = where.members[where.spread], where.length[where.spread]
    source, site = members.ravel(), seat.site[members]
    off_domain = members.shape[1] - near
    off_leaf, off_pod = (_peers_beyond(members, near, place, seat) for place in (seat.unit, seat.pod))
    off_site = (site[:, :, None] != site[:, None, :]).sum(axis=2) if site.any() else np.zeros(site.shape)
    share = 1 / max(members.shape[1] - 1, 1)
    return Outbound(source, source, *((peers * share).ravel() for peers in (off_domain, off_leaf, off_pod, off_site)))


def _peers_beyond(members: Column, near: Column, place: Column, seat: Seats) -> Column:
    """How many of a member's group are neither in its domain, where it has `near`, nor at the same place."""
    there = runs(members, place).length
    both = runs(members, seat.domain * len(place) + place).length
    return members.shape[1] - (near + there - both)
