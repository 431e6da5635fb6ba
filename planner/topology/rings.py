"""The best set of rings over accelerators that are joined by direct links."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from planner.quantities import BytesPerSecond, Column

MOST_MEMBERS = 8
"""Up to here all rings are tried ((n - 1)! of them); nodes that are wired as a mesh have no more accelerators."""

_TINY = 1e-9

Rates = tuple[tuple[float, ...], ...]
"""Bandwidth from each member to each, 0 without a link, one direction."""


class RingSet(NamedTuple):
    """Rings at once: the bus bandwidth of all together, and how much of it each link bears (members x members)."""

    bandwidth: BytesPerSecond
    flows: Column


def ring_bandwidth(links: Rates) -> BytesPerSecond:
    """The bus bandwidth of the best set of directed rings through all members that the links carry at once.

    0 where no ring exists on direct links.

    Two accelerators with one 25 GB/s link have one ring; four fully meshed ones fill all three links of each:

    >>> ring_bandwidth(((0.0, 25e9), (25e9, 0.0))) / 1e9
    25.0
    >>> ring_bandwidth(tuple(tuple(100e9 * (i != j) for j in range(4)) for i in range(4))) / 1e9
    300.0
    """
    return best_rings(links).bandwidth


@lru_cache(maxsize=4096)
def best_rings(links: Rates) -> RingSet:
    """The set of directed rings through all members that has the largest bus bandwidth.

    A ring visits every member once and runs at its own rate; the rates of all rings over a link add up to at most its
    capacity. The largest total rate is a linear programme over the rings, solved exactly. It is an upper bound for a
    library that builds a limited number of equal channels.
    """
    capacity = np.array(links)
    rings = _rings_on(capacity)
    if not len(rings):
        return RingSet(0.0, np.zeros_like(capacity))
    most = float(min(capacity.sum(axis=0).min(), capacity.sum(axis=1).min()))
    flat = capacity.ravel()
    crossings = np.bincount(rings.ravel(), minlength=flat.size)
    equal_shares = len(rings) * np.min(flat[crossings > 0] / crossings[crossings > 0])
    # No ring set can carry more than a member's own links; equal shares of all rings often do (any equal full mesh).
    if np.isclose(equal_shares, most, rtol=1e-9):
        return RingSet(most, (crossings * most / len(rings)).reshape(capacity.shape))
    rates = _largest_packing(rings, flat, most)
    flows = np.bincount(rings.ravel(), np.repeat(rates, len(capacity)), minlength=flat.size)
    return RingSet(min(float(rates.sum()), most), flows.reshape(capacity.shape))


def _rings_on(capacity: Column) -> Column:
    """Every directed ring over existing links: one row of link numbers (from x members + to) each."""
    members = len(capacity)
    tours = _tours(members)
    rings = tours * members + np.roll(tours, -1, axis=1)
    return rings[(capacity.ravel()[rings] > 0).all(axis=1)]


@lru_cache(maxsize=16)
def _tours(members: int) -> Column:
    return np.array([(0, *rest) for rest in permutations(range(1, members))])


def _largest_packing(rings: Column, capacity: Column, most: BytesPerSecond) -> Column:
    """Rates that maximise sum(rate) subject to sum(rates over a link) <= capacity, by the simplex method.

    `most` bounds the sum. Links are rows; rings, then the links' slacks, are columns that are never written out. The
    steepest candidate enters; after a step that gained nothing the first one does (Bland's rule, which cannot cycle:
    equal links make the programme degenerate).
    """
    used, rows = np.unique(rings, return_inverse=True)
    rows = rows.reshape(rings.shape)
    scale = capacity.max()
    inverse, level = np.eye(len(used)), capacity[used] / scale
    basis = np.arange(len(rings), len(rings) + len(used))
    total, stuck = 0.0, False
    while True:
        price = inverse[basis < len(rings)].sum(axis=0)
        gain = np.concatenate([1 - price[rows].sum(axis=1), -price])
        entering = int(np.argmax(gain > _TINY) if stuck else np.argmax(gain))
        if total >= most / scale * (1 - _TINY) or gain[entering] <= _TINY:
            chosen = basis < len(rings)
            return np.bincount(basis[chosen], level[chosen], minlength=len(rings)) * scale
        column = _column_of(entering, rows, inverse)
        leaving = _leaving(level, basis, column)
        step = level[leaving] / column[leaving]
        pivot = inverse[leaving] / column[leaving]
        inverse -= np.outer(column, pivot)
        level -= column * step
        inverse[leaving], level[leaving], basis[leaving] = pivot, step, entering
        total, stuck = total + gain[entering] * step, step <= _TINY


def _column_of(entering: int, rows: Column, inverse: Column) -> Column:
    return inverse[:, rows[entering]].sum(axis=1) if entering < len(rows) else inverse[:, entering - len(rows)].copy()


def _leaving(level: Column, basis: Column, column: Column) -> int:
    """The row that first runs out as the entering column grows; of equal ones the lowest in the basis."""
    rising = column > _TINY
    room = np.where(rising, level / np.where(rising, column, 1.0), np.inf)
    tied = np.flatnonzero(room <= room.min() + _TINY)
    return int(tied[np.argmin(basis[tied])])
