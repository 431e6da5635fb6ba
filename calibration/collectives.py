"""Efficiencies of collectives by kind of link, from tables of measured calls.

    python -m calibration.collectives TABLE.csv planner/catalogue/collectives.toml

TABLE.csv has the columns of docs/collectives.md. Every kind starts from calibration/collectives_priors.toml and is
fitted to its rows. `--report` prints, as Markdown, what is reached by class and size with one site left out at a time,
and with plain starting values in place of those of that file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.collectives_fit import FEWEST, FIELDS, Fitted, Measured, fitted, predictor, read_measured
from planner.catalogue.collective_errors import CALIBRATED, DATASHEET, DEFAULT, RANGES
from planner.catalogue.collectives import FABRICS
from planner.estimate.communication import Network
from planner.quantities import Column
from planner.spec.profile import COLLECTIVES, TREES, TWO_DOMAINS, CollectiveFit
from planner.spec.toml_file import read_toml
from planner.validate.collectives_calibration import calibrated

PRIORS = Path(__file__).parent / "collectives_priors.toml"
FITTED = tuple(name for name in COLLECTIVES if name != "reduce_scatter")
"""Collectives that are fitted; an all-gather and a reduce-scatter are one."""
PLAIN = {
    False: Fitted(CollectiveFit(0.76, 12e-6, 4e-6, 3e-6, 0.15)),
    True: Fitted(CollectiveFit(0.88, 15e-6, 5e-6, 6e-6, 0.1), 0.9, 0.7, 20e-6),
}
"""Starting values without anything measured, inside a domain and between domains: NCCL's tuner (src/graph/tuning.cc,
2.30) with its overheads of a launch and a copy."""
TIMES = FIELDS[:3]


@dataclass
class Catalogue:
    """The fits of all kinds to some rows of a table, made as they are asked for."""

    measured: Measured
    chosen: Column
    priors: dict[str, dict[str, Any]]
    plain: bool = False
    known: dict[tuple[str, str], Fitted] = field(default_factory=dict)
    shared: dict[Any, Fitted] = field(default_factory=dict)
    """Fits by starting point and rows, which may be shared between catalogues."""

    def fit(self, kind: str, collective: str) -> Fitted:
        """The figures of a collective on a kind of link."""
        if (kind, collective) not in self.known:
            self.known[kind, collective] = self._made(kind, collective)
        return self.known[kind, collective]

    def rows(self, kind: str, collective: str) -> Column:
        """The rows that a kind is fitted to: a fabric's are those between links of every generation."""
        kinds = [name for name in self.priors if name == kind or (kind in FABRICS and name.startswith(f"{kind}-"))]
        return self.measured.rows(kinds, collective, self.chosen)

    def counted(self, kind: str, collective: str) -> Column:
        """The rows that a kind was fitted to; none where there were too few."""
        rows = self.rows(kind, collective)
        return rows if len(rows) >= FEWEST else rows[:0]

    def network(self, kind: str, collective: str) -> Callable[[str, Fitted], Network]:
        """Networks of a kind with given figures, by the link that it joins or is."""
        if kind.split("-")[0] not in FABRICS:
            return lambda link, one: Network(_everywhere(one), _everywhere(one))
        return lambda link, one: Network(
            _everywhere(self.fit(link, collective)),
            _everywhere(one),
            two_domains=(self._trees_inside(link, TWO_DOMAINS, 0.75), one.two_domains),
            trees=one.tree_fit(),
            trees_inside=self._trees_inside(link, TREES, 0.0),
        )

    def times(self, rows: Column) -> Column:
        """What the fits predict for rows."""
        found = np.zeros(len(rows))
        keys = [(str(self.measured.kinds[row]), _twin(str(self.measured.collectives[row]))) for row in rows]
        for kind, collective in sorted(set(keys)):
            chosen = np.array([key == (kind, collective) for key in keys])
            times = predictor(self.measured, self.network(kind, collective), collective)
            found[chosen] = times(self.fit(kind, collective), rows[chosen])
        return found

    def _made(self, kind: str, collective: str) -> Fitted:
        start, rows = self._start(kind, collective), self.rows(kind, collective)
        key = (kind, collective, start.values().tobytes(), rows.tobytes(), self._around(kind, collective, rows))
        if key not in self.shared:
            times = predictor(self.measured, self.network(kind, collective), collective)
            self.shared[key] = fitted(start, self.measured, rows, times)
        return self.shared[key]

    def _around(self, kind: str, collective: str, rows: Column) -> tuple[Any, ...]:
        """Efficiencies of the links inside that a fit of a fabric takes as given."""
        if kind.split("-")[0] not in FABRICS:
            return ()
        links = sorted(set(self.measured.links[rows].tolist()))
        return tuple(self.fit(link, collective).fit.efficiency for link in links)

    def _start(self, kind: str, collective: str) -> Fitted:
        """Where a fit starts: what is stated of the pair, or the fit of the nearest that is."""
        if self.plain:
            return self._plain(kind, collective)
        entry = self.priors[kind]
        if collective in entry:
            start = Fitted(_read(entry[collective]), held=entry[collective].get("held", False))
            return self._with_trees(start, kind, collective)
        if "like" in entry:
            return self._with_trees(self.fit(entry["like"], collective), kind, collective)
        return self.fit(kind, "all_reduce") if collective != "all_reduce" else PLAIN[False]

    def _plain(self, kind: str, collective: str) -> Fitted:
        fabric = kind.split("-")[0]
        if kind != fabric and fabric in FABRICS:
            return self.fit(fabric, collective)
        start = PLAIN[fabric in FABRICS]
        return start if collective == "all_reduce" else Fitted(start.fit)

    def _with_trees(self, start: Fitted, kind: str, collective: str) -> Fitted:
        """With what is stated of an all-reduce's trees, of this kind or those that it is like."""
        if collective != "all_reduce" or kind.split("-")[0] not in FABRICS:
            return start
        two, more = self.stated(kind, TWO_DOMAINS), self.stated(kind, TREES)
        return replace(
            start,
            two_domains=two.get("efficiency", 0.0),
            trees=more.get("efficiency", 0.0),
            tree_hop=more.get("hop_latency_us", 0.0) * 1e-6,
        )

    def stated(self, kind: str, name: str) -> dict[str, Any]:
        """What the starting values say of a kind, or of those that it is like."""
        entry: dict[str, Any] = self.priors[kind]
        return entry.get(name) or (self.stated(entry["like"], name) if "like" in entry else {})

    def _trees_inside(self, link: str, name: str, otherwise: float) -> float:
        return otherwise if self.plain else float(self.stated(link, name).get("efficiency", otherwise))


def _everywhere(one: Fitted) -> dict[str, CollectiveFit]:
    return dict.fromkeys(COLLECTIVES, one.fit)


def _twin(name: str) -> str:
    return {"reduce_scatter": "all_gather", "reduce": "broadcast"}.get(name, name)


def _read(entry: dict[str, Any]) -> CollectiveFit:
    times = {name: entry.get(f"{name}_us", 0.0) * 1e-6 for name in TIMES}
    return CollectiveFit(entry["efficiency"], low_latency_share=entry.get("low_latency_share", 0.0), **times)


def left_out(measured: Measured, *, plain: bool = False) -> Column:
    """For every row the time that the rows of all other sites predict."""
    shared: dict[Any, Fitted] = {}
    times = np.zeros(len(measured.times))
    for site in np.unique(measured.sites):
        own = measured.sites == site
        catalogue = Catalogue(measured, ~own, read_toml(PRIORS), plain=plain, shared=shared)
        times[own] = catalogue.times(np.flatnonzero(own))
    return times


def entries(catalogue: Catalogue) -> Iterator[str]:
    """The lines of collectives.toml."""
    for kind, entry in catalogue.priors.items():
        yield ""
        yield f"[{kind}]"
        yield from (f"{key} = {_value(value)}" for key, value in entry.items() if not isinstance(value, dict))
        for collective in FITTED:
            yield from _entry(catalogue, kind, collective)
        yield from _trees(catalogue, kind)


def _trees(catalogue: Catalogue, kind: str) -> Iterator[str]:
    """What is known of an all-reduce's trees: as stated of a link, as fitted of a fabric."""
    entry, fabric = catalogue.priors[kind], kind.split("-")[0] in FABRICS
    rows = len(catalogue.counted(kind, "all_reduce")) if fabric else 0
    for name in (TWO_DOMAINS, TREES):
        if name not in entry and not rows:
            continue
        fit, stated = catalogue.fit(kind, "all_reduce"), catalogue.stated(kind, name)
        share = fit.two_domains if name == TWO_DOMAINS else fit.trees
        if stated:
            yield f"[{kind}.{name}]"
            yield f"efficiency = {share if fabric else stated['efficiency']:.3g}"
            yield from [f"hop_latency_us = {1e6 * fit.tree_hop:.3g}"] if name == TREES and fabric else []
            yield f"source = {_value(_words(rows, stated))}"


def _entry(catalogue: Catalogue, kind: str, collective: str) -> Iterator[str]:
    """One collective of a kind; none where nothing is stated and nothing was measured."""
    measured, rows = catalogue.measured, catalogue.counted(kind, collective)
    stated = catalogue.priors[kind].get(collective)
    if stated is None and not len(rows):
        return
    fit = catalogue.fit(kind, collective).fit
    yield f"[{kind}.{collective}]"
    yield f"efficiency = {fit.efficiency:.3g}"
    yield from (f"{name}_us = {1e6 * getattr(fit, name):.3g}" for name in TIMES)
    if fit.low_latency_share:
        yield f"low_latency_share = {fit.low_latency_share:.3g}"
    if len(rows):
        yield f"points = {len(rows)}"
        yield f"sites = {len(np.unique(measured.sites[rows]))}"
    yield f"source = {_value(_words(len(rows), stated))}"


def _words(rows: int, stated: dict[str, Any] | None) -> str:
    """Where figures come from."""
    start = stated["source"] if stated else "the fit of the kind that it is like"
    return f"fitted to {rows} calls, starting from: {start or 'an assumption'}" if rows else start


INTERVAL = 0.8
ENOUGH = 30
"""Rows of a kind in a range of sizes from which, at two sites at least, its own errors are told."""
ERRORS_HEADER = """\
# Half the width of the interval that holds 80 % of the measured times, in the logarithm, for sizes below 1 MiB, from 1
# to 64 MiB and from there; by level of the prediction. Written by calibration/collectives.py: `datasheet` with one
# source left out at a time and plain starting values, `class default` with those of collectives_priors.toml,
# `calibrated` with the other half of each table's sizes."""


def error_entries(catalogue: Catalogue) -> Iterator[str]:
    """The lines of collective_errors.toml."""
    measured = catalogue.measured
    own = calibrated(measured.calls, catalogue.times(np.arange(len(measured.times))), measured.times.tolist())
    levels = {
        DATASHEET: left_out(measured, plain=True),
        DEFAULT: left_out(measured),
        CALIBRATED: np.where(own.found, own.times, np.nan),
    }
    for level, times in levels.items():
        far = np.abs(np.log(measured.times / times))
        everything = [_interval(far[rows]) for rows in _by_size(measured, np.isfinite(far))]
        yield ""
        yield f'["{level}"]'
        yield f"any = [{', '.join(f'{each:.3g}' for each in everything)}]"
        for kind in sorted(set(measured.kinds.tolist())) if level == DEFAULT else ():
            yield from _kind_errors(measured, kind, far, everything)


def _kind_errors(measured: Measured, kind: str, far: Column, everything: list[float]) -> Iterator[str]:
    of_kind = measured.kinds == kind
    ranges = _by_size(measured, of_kind)
    if len(np.unique(measured.sites[of_kind])) < 2 or all(len(rows) < ENOUGH for rows in ranges):
        return
    known = [
        _interval(far[rows]) if len(rows) >= ENOUGH else every for rows, every in zip(ranges, everything, strict=True)
    ]
    yield f"{kind} = [{', '.join(f'{each:.3g}' for each in known)}]"


def _interval(far: Column) -> float:
    return float(np.quantile(far, INTERVAL))


def _by_size(measured: Measured, mask: Column) -> list[Column]:
    sizes = measured.calls.size
    return [np.flatnonzero(mask & (sizes >= low) & (sizes < high)) for _, low, high in RANGES]


def report(catalogue: Catalogue) -> Iterator[str]:
    """Errors by class and size as a Markdown table: one source left out, or calibrated with half of the sizes."""
    measured = catalogue.measured
    everything = catalogue.times(np.arange(len(measured.times)))
    ways = [
        left_out(measured),
        left_out(measured, plain=True),
        calibrated(measured.calls, everything, measured.times.tolist()).times,
    ]
    yield "| class | calls | sources | source left out | left out, plain start | calibrated with half |"
    yield "|---|---:|---:|---:|---:|---:|"
    yield _line(measured, "all", np.ones(len(measured.times), dtype=bool), ways)
    keys = sorted({(str(k), _twin(str(c))) for k, c in zip(measured.kinds, measured.collectives, strict=True)})
    for kind, collective in keys:
        mask = np.zeros(len(measured.times), dtype=bool)
        mask[measured.rows([kind], collective, np.ones(len(mask), dtype=bool))] = True
        yield _line(measured, f"{kind} {collective}", mask, ways)


def _line(measured: Measured, name: str, mask: Column, ways: list[Column]) -> str:
    cells = []
    for times in ways:
        far = np.abs(times / measured.times - 1)
        cells.append(
            " / ".join(f"{100 * np.median(far[rows]):.1f}" if len(rows) else "-" for rows in _by_size(measured, mask))
        )
    sites = len(np.unique(measured.sites[mask]))
    return f"| {name} | {mask.sum()} | {sites} | {' | '.join(cells)} |"


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


HEADER = """\
# How collectives behave on each kind of link, as the faster of two regimes (planner/cost/collectives.py). Written by
# calibration/collectives.py from published nccl-tests and rccl-tests tables and the starting values, with their
# sources, of calibration/collectives_priors.toml; docs/collectives.md says how.
#   bulk:        start + steps x step_latency + bytes on the wire / (efficiency x bandwidth)
#   low latency: start + hops x hop_latency  + bytes on the wire / (low_latency_share x bandwidth)
# Bandwidth is nominal, one direction: inside a node one accelerator's links together, between nodes the node's NICs.
# `points` and `sites` say how many calls were fitted and how many sources they come from; without, none was."""


def main() -> None:
    """Read the arguments, fit, and write the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("toml", type=Path)
    parser.add_argument("--report", action="store_true", help="print what is reached, by class and size")
    arguments = parser.parse_args()
    measured = read_measured(arguments.table)
    catalogue = Catalogue(measured, np.ones(len(measured.times), dtype=bool), read_toml(PRIORS))
    text = "\n".join([HEADER, *entries(catalogue)]) + "\n"
    arguments.toml.write_text(text, encoding="utf-8")
    errors = "\n".join([ERRORS_HEADER, *error_entries(catalogue)]) + "\n"
    arguments.toml.with_name("collective_errors.toml").write_text(errors, encoding="utf-8")
    if arguments.report:
        print("\n".join(report(catalogue)))


if __name__ == "__main__":
    main()
