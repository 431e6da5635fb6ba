"""Fits of collectives on a kind of link to measured calls: few values near a starting point, far rows counting less."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.estimate.communication import Network
from planner.quantities import Column
from planner.spec.profile import CollectiveFit
from planner.validate.collectives import Calls, call_times, kind_of_row, machine_of, site_of, table_of
from planner.validate.collectives_columns import StatedCall, read_collectives

FIELDS = ("start", "step_latency", "hop_latency", "efficiency", "low_latency_share", "two_domains", "trees", "tree_hop")
"""What is fitted, all in the logarithm."""
PLAIN_FIELDS = FIELDS[:5]
"""Those of a CollectiveFit."""
SPREAD = np.array([1.0, 1.0, 1.0, 0.25, 1.0, 0.25, 0.15, 1.0])
"""Standard deviations of the values about their starting points: latencies and shares of protocols differ by factors,
efficiencies by a third."""
NOISE = 0.15
"""Relative errors beyond this count like their size, not its square: protocol switches make outliers of a factor."""
TRUST = 5.0
"""What one site with one table weighs against the starting point."""
MOST_EFFICIENCY = 0.99
"""A ring carries no more than its links, unless its starting point says so (a switch that reduces)."""
LEAST_START = 1e-6
FEWEST = 5
"""Calls below which a class keeps its starting values."""
ROUNDS = 30
STEP = 1e-3
LEFT_OUT = ("moc_", "l40s_")
"""Tables of misconfigured or unknown fabrics."""
FORCED = re.compile(r"NCCL_ALGO=(tree|nvls)", re.IGNORECASE)
RING = re.compile(r"NCCL_ALGO=ring|^ring\b", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured calls as columns: row i is `calls.stated[i]`."""

    calls: Calls
    times: Column
    kinds: Column
    """Kind of the links that set the pace, as in the catalogue."""
    links: Column
    collectives: Column
    sites: Column
    tables: Column
    ring: Column
    """Whether a ring was forced, so that two domains say nothing of trees."""

    def rows(self, kinds: Sequence[str], collective: str, chosen: Column) -> Column:
        """Indices of the chosen rows of some kinds and a collective; all-gather and reduce-scatter are one."""
        names = {"all_gather": ("all_gather", "reduce_scatter"), "broadcast": ("broadcast", "reduce")}
        of_name = np.isin(self.collectives, names.get(collective, (collective,)))
        return np.flatnonzero(np.isin(self.kinds, kinds) & of_name & chosen)


def read_measured(path: Path) -> Measured:
    """The rows of a table that can be fitted."""
    table = read_collectives(path)
    kept = [(row, time) for row, time in zip(table.stated, table.times, strict=True) if time > 0 and _fits_in(row)]
    stated, times = [row for row, _ in kept], np.array([time for _, time in kept])
    calls = Calls.of(stated)
    names = {table_of(row): number for number, row in enumerate(stated)}
    return Measured(
        calls=calls,
        times=times,
        kinds=np.array([kind_of_row(row) for row in stated]),
        links=np.array([machine.link if machine else "" for machine in calls.machines]),
        collectives=np.array([row.name for row in stated]),
        sites=np.array([site_of(row) for row in stated]),
        tables=np.array([names[table_of(row)] for row in stated]),
        ring=np.array([bool(RING.search(row.notes)) for row in stated]),
    )


def _fits_in(row: StatedCall) -> bool:
    odd = row.name == "all_to_all" and row.n_nodes == 1 and row.n_ranks in (5, 7)  # parts that are not aligned
    old = row.source_id.startswith("dgx2") and row.name in ("all_gather", "reduce_scatter")  # size of one part
    if row.reason or odd or old or row.source_id.startswith(LEFT_OUT) or FORCED.search(row.notes):
        return False
    two_fabrics = re.search(r"\bib ?/ ?roce", row.inter, re.IGNORECASE)
    return not (two_fabrics or machine_of(row).guessed)


@dataclass(frozen=True)
class Fitted:
    """The figures of one collective on one kind of link.

    Of an all-reduce between domains too the shares of trees, between two and between more, and a tree's latency per
    hop; 0 where it has none.
    """

    fit: CollectiveFit
    two_domains: float = 0.0
    trees: float = 0.0
    tree_hop: float = 0.0
    held: bool = False
    """Whether the efficiency stays where it starts."""

    def values(self) -> Column:
        """The logarithms of what is fitted; what does not exist is far below everything."""
        plain = [getattr(self.fit, name) for name in PLAIN_FIELDS]
        least = [LEAST_START] * 3 + [1e-4] * 4 + [LEAST_START]
        return np.log(np.maximum([*plain, self.two_domains, self.trees, self.tree_hop], least))

    def changed(self, values: Column) -> Fitted:
        """With other values; a regime that does not exist stays so."""
        new = dict(zip(FIELDS, map(float, np.exp(values)), strict=True))
        share = min(new["low_latency_share"], new["efficiency"]) if self.fit.low_latency_share > 0 else 0.0
        most = max(self.fit.efficiency, MOST_EFFICIENCY)
        plain = {name: new[name] for name in PLAIN_FIELDS} | {
            "low_latency_share": share,
            "efficiency": self.fit.efficiency if self.held else min(new["efficiency"], most),
        }
        trees = {name: new[name] if getattr(self, name) else 0.0 for name in FIELDS[len(PLAIN_FIELDS) :]}
        return replace(self, fit=replace(self.fit, **plain), **trees)

    def tree_fit(self) -> CollectiveFit | None:
        """The trees between more than two domains as the planner holds them."""
        return CollectiveFit(self.trees, 0.0, 0.0, self.tree_hop) if self.trees else None


Predictor = Callable[[Fitted, Column], Column]
"""From figures and rows to their times."""


def predictor(measured: Measured, networks: Callable[[str, Fitted], Network], collective: str) -> Predictor:
    """Times of rows by the planner's own network, link by link; `networks` makes it from a link and figures."""

    def times(fitted: Fitted, rows: Column) -> Column:
        found = np.zeros(len(rows))
        for link, ring in _pairs(measured, rows):
            chosen = (measured.links[rows] == link) & (measured.ring[rows] == ring)
            network = networks(link, fitted)
            network = replace(network, two_domains=(0.0, 0.0), trees=None) if ring else network
            these = rows[chosen]
            names = measured.collectives[these]
            for name in np.unique(names):
                same = these[names == name]
                found[np.flatnonzero(chosen)[names == name]] = call_times(
                    network, str(name), measured.calls.size[same], measured.calls.links[same]
                )
        return found

    return times


def _pairs(measured: Measured, rows: Column) -> Iterator[tuple[str, bool]]:
    yield from sorted(
        {(str(link), bool(ring)) for link, ring in zip(measured.links[rows], measured.ring[rows], strict=True)}
    )


def fitted(start: Fitted, measured: Measured, rows: Column, times: Predictor) -> Fitted:
    """The figures that make the rows and the starting point together most likely (Gauss-Newton on a robust loss).

    A site weighs as the root of its tables, and a table as the root of its rows: rows of one table share its settings.
    """
    if len(rows) < FEWEST:
        return start
    origin, weights, target = start.values(), _weights(measured, rows), np.log(measured.times[rows])

    def errors(values: Column) -> Column:
        return np.log(times(start.changed(values), rows)) - target

    def loss(values: Column) -> float:
        far = np.sqrt(1 + (errors(values) / NOISE) ** 2) - 1
        return float((weights * far).sum() + 0.5 * (((values - origin) / SPREAD) ** 2).sum())

    values, damping = origin.copy(), 1e-2
    best = loss(values)
    for _ in range(ROUNDS):
        gradient, curvature = _derivatives(errors, values, weights, origin)
        for _attempt in range(8):
            damped = curvature + damping * np.diag(np.diag(curvature))
            tried = values - np.clip(np.linalg.solve(damped, gradient), -0.7, 0.7)
            reached = loss(tried)
            if reached < best - 1e-9:
                break
            damping *= 5
        else:
            break
        values, gained, best = tried, best - reached, reached
        damping = max(damping / 25, 1e-6)
        if gained < 1e-6:
            break
    return start.changed(values)


def _derivatives(
    errors: Callable[[Column], Column], values: Column, weights: Column, origin: Column
) -> tuple[Column, Column]:
    """Gradient and approximate curvature of the loss."""
    now = errors(values)
    columns = [
        (errors(values + STEP * unit) - errors(values - STEP * unit)) / (2 * STEP) for unit in np.eye(len(values))
    ]
    slopes, close = np.array(columns).T, weights / np.sqrt(1 + (now / NOISE) ** 2) / NOISE**2
    curvature = slopes.T @ (slopes * close[:, None]) + np.diag(1 / SPREAD**2)
    return slopes.T @ (close * now) + (values - origin) / SPREAD**2, curvature


def _weights(measured: Measured, rows: Column) -> Column:
    """TRUST over the roots of the number of rows of a row's table and of tables of its site."""
    _, table, rows_each = np.unique(measured.tables[rows], return_inverse=True, return_counts=True)
    sites = measured.sites[rows]
    tables_each = {site: len(np.unique(table[sites == site])) for site in np.unique(sites)}
    return TRUST / np.sqrt(rows_each[table]) / np.sqrt([tables_each[site] for site in sites])
