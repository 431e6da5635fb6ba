"""Calibration with a table's own measurements: what it measured at neighbouring sizes corrects the form at a size.

A calibrated point is interpolated between the sizes that were measured; outside them, and for group sizes of which
nothing was measured, the form goes on from the nearest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from planner.quantities import Column, Seconds
from planner.validate.collectives import Calls, site_of, table_of

FOLDS = 2
"""Parts that the sizes of a table are dealt to in turn; a row is predicted from the other part."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Times after calibration; `found` says in which rows there was anything to calibrate with.

    `roughness` is how much the correction changes between the sizes that a row lies between, in the logarithm.
    """

    times: Column
    found: Column
    roughness: Column


def calibrated(calls: Calls, times: Column, measured: list[Seconds]) -> Calibrated:
    """Predictions of the form, `times`, corrected by the other half of each row's table.

    The sizes of a table that were measured are dealt in turn to two halves: a measured row is predicted from the half
    that it is not in, a row without a measurement from all. Neither ever sees its own time.
    """
    seen = np.array(measured, dtype=float)
    usable = (seen > 0) & (times > 0) & calls.predictable
    correction, found, roughness = (np.zeros(len(times)) for _ in range(3))
    tables = _tables(calls)
    halves = _halves(calls, tables, usable)
    for rows in tables.values():
        for half in range(-1, FOLDS):
            asked = rows[halves[rows] == half]
            known = rows[usable[rows] & (halves[rows] != half)]
            if len(asked) and len(known):
                sizes, ratios = _ratios(calls.size[known], seen[known] / times[known])
                correction[asked] = np.interp(np.log(calls.size[asked]), sizes, ratios)
                roughness[asked] = _between(np.log(calls.size[asked]), sizes, ratios)
                found[asked] = 1
    _borrow(calls, tables, correction, found)
    return Calibrated(times * np.exp(correction), found > 0, roughness)


def _tables(calls: Calls) -> dict[Hashable, Column]:
    """Rows of each table; rows that cannot be predicted belong to none."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for row, stated in enumerate(calls.stated):
        if calls.predictable[row]:
            found[table_of(stated)].append(row)
    return {table: np.array(rows) for table, rows in found.items()}


def _halves(calls: Calls, tables: dict[Hashable, Column], usable: Column) -> Column:
    """The half that each measured row's size was dealt to; -1 for rows without a measurement."""
    halves = np.full(len(calls.stated), -1)
    for rows in tables.values():
        known = rows[usable[rows]]
        halves[known] = np.unique(calls.size[known], return_inverse=True)[1] % FOLDS
    return halves


def _ratios(sizes: Column, ratios: Column) -> tuple[Column, Column]:
    """Logarithms of sizes, ascending, and of measured over predicted, repeated sizes as their mean."""
    distinct, index = np.unique(sizes, return_inverse=True)
    sums = np.bincount(index, weights=np.log(ratios))
    return np.log(distinct), sums / np.bincount(index)


def _between(asked: Column, sizes: Column, ratios: Column) -> Column:
    """Difference of the ratios at the two sizes around each asked one; 0 outside."""
    above = np.clip(np.searchsorted(sizes, asked), 0, len(sizes) - 1)
    below = np.maximum(above - 1, 0)
    return np.abs(ratios[above] - ratios[below])


def _borrow(calls: Calls, tables: dict[Hashable, Column], correction: Column, found: Column) -> None:
    """Correct tables of one site in which nothing is known by those of the nearest group size, size by size.

    Only tables of the same collective on the same links serve, and only what predicts each of their own rows, so that
    the halves stay apart.
    """
    alike: dict[Hashable, list[Column]] = defaultdict(list)
    for rows in tables.values():
        alike[_links_of(calls, rows[0])].append(rows)
    for group in alike.values():
        known = [rows for rows in group if found[rows].all()]
        for rows in group:
            if known and not found[rows].any():
                ranks = np.asarray(calls.links.size)
                near = min(known, key=lambda other: abs(np.log(ranks[other[0]] / ranks[rows[0]])))
                order = np.argsort(calls.size[near])
                correction[rows] = np.interp(
                    np.log(calls.size[rows]), np.log(calls.size[near][order]), correction[near][order]
                )
                found[rows] = 1


def _links_of(calls: Calls, row: int) -> Hashable:
    """What tables must share to be calibrated by each other: who measured, the collective and the links."""
    stated, wires = calls.stated[row], calls.machines[row]
    return site_of(stated), stated.name, stated.gpu, stated.intra, stated.inter, wires is not None and wires.domains > 1
