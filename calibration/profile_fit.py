"""A profile from what was measured, and from the catalogue's nearest where nothing was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration import kernel_profile as kernels
from calibration.bounded_fit import Found
from calibration.collective_profile import Fitted, calls_of, fitted_collectives
from calibration.measurement_plan import sizes_of
from calibration.origins import OF_MEASUREMENTS, Origins
from calibration.record import Record
from calibration.step_profile import fitted_factors, timed_steps, with_factors
from planner.catalogue.profiles import profile as nearest_profile
from planner.spec.cluster import Cluster
from planner.spec.profile import Profile
from planner.tables import Table

FUSED = ("flash", "sdpa")
"""Attention kernels with a table; scores in memory ("math") have a formula."""


@dataclass(frozen=True)
class Fit:
    """A profile, the fields of it that were measured, and what the measurements could not tell."""

    profile: Profile
    fields: Mapping[str, Any]
    collectives: tuple[Fitted, ...]
    rest: str
    """Level of the catalogue's nearest profile, from which all else is."""
    steps: Found | None = None
    """What whole steps told; None where too few were measured."""

    @property
    def origins(self) -> Origins:
        """What was measured, for the file."""
        links = (" ".join(each.key) for each in self.collectives)
        return Origins((*self.fields, *links), self.untold, self.rest)

    @property
    def untold(self) -> tuple[str, ...]:
        """Figures that timed collectives and training steps do not decide each by itself, in words."""
        of_steps = self.steps.untold if self.steps else ()
        links = [f"{' '.join(each.key)} {' and '.join(each.untold)}" for each in self.collectives if each.untold]
        return (*links, *([f"training steps {' and '.join(of_steps)}"] if of_steps else []))


def fit_of(record: Record, cluster: Cluster, stack: str) -> Fit:
    """The profile of a cluster's accelerator under a stack, measured as far as the record goes.

    Raises SpecError for an unknown stack.
    """
    base = nearest_profile(cluster.accelerator, stack, fabric=cluster.node.fabric)
    fields = _kernels(record, cluster, base)
    collectives = tuple(fitted_collectives(calls_of(record), cluster, base.collectives))
    made = replace(
        base,
        **_tables(base, fields),
        **{name: value for name, value in fields.items() if name not in ("gemm", "attention")},
        collectives={**base.collectives, **{each.key: each.fit for each in collectives}},
        level="transferred" if base.level == "datasheet" and "gemm" in fields else base.level,
        sources=(_source(record), *base.sources),
    )
    steps = fitted_factors(timed_steps(record), cluster, made)
    if steps:
        made = with_factors(made, steps)
        own = (name for name in steps.values if name not in steps.held and hasattr(made, name))
        fields |= {name: steps.values[name] for name in own}
    found = Fit(made, fields, collectives, base.level, steps)
    return replace(
        found, profile=replace(made, notes=(*_notes(found, base, sizes_of(record.machine).precisions[0]), *base.notes))
    )


def _kernels(record: Record, cluster: Cluster, base: Profile) -> dict[str, Any]:
    """The fields of a profile that kernels alone tell, those that were measured."""
    part, stream = cluster.accelerator, kernels.bandwidth(record)
    overhead = kernels.kernel_overhead(record)
    usual = base.kernel_overhead if overhead is None else overhead
    reached = stream or part.memory_bandwidth * base.memory_efficiency
    gemm = kernels.gemm_tables(record, part.peak, stream=reached, overhead=usual, known=base.gemm)
    found: dict[str, Any] = {
        "gemm": gemm or None,
        "launch_time": kernels.launch_time(record),
        "kernel_overhead": overhead,
        "memory_efficiency": stream and min(1.0, stream / part.memory_bandwidth),
        "elementwise_scale": stream and kernels.elementwise_scale(record, stream),
        "overlap_penalty": kernels.overlap_penalty(record),
    } | _attention(record, cluster, base)
    return {name: value for name, value in found.items() if value is not None}


def _attention(record: Record, cluster: Cluster, base: Profile) -> dict[str, Any]:
    rows = record.results("attention")
    precision = sizes_of(record.machine).precisions[0]
    peak = cluster.accelerator.peak.get(precision)
    overhead = kernels.attention_overhead(rows)
    if peak is None or not rows:
        return {}
    tables: dict[str, Table] = {}
    ratios = []
    for backend in FUSED:
        own = [row for row in rows if row[0]["backend"] == backend]
        usual = base.attention_overhead if overhead is None else overhead
        table, ratio = kernels.attention_table(own, peak, usual, base.attention[backend])
        if table is not None:
            tables[backend] = table
            ratios += [ratio] if ratio else []
    # Where one fused kernel was measured it is the best that there is.
    tables = {name: tables.get(name, next(iter(tables.values()))) for name in FUSED} if tables else {}
    backward = ratios[0] if ratios else None
    return {
        "attention": tables or None,
        "attention_overhead": overhead,
        "attention_backward_efficiency": backward,
    }


def _tables(base: Profile, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of a profile: measured ones before known ones."""
    gemm = fields.get("gemm", {})
    return {
        "gemm": {**base.gemm, **gemm},
        "attention": {
            name: _writable(table) for name, table in {**base.attention, **fields.get("attention", {})}.items()
        },
        # A table of measured products holds all of the share, what tiles leave of the peak included.
        "matmul_tiles": {name: tiles for name, tiles in base.matmul_tiles.items() if name not in gemm},
    }


def _writable(table: Table) -> Table:
    return Table(table.axes, np.clip(table.values, kernels.LEAST_SHARE, 1.0))


def _source(record: Record) -> str:
    here, dates = record.machine, sorted(entry.date[:10] for entry in record.entries)
    count = sum(entry.measured is not None for entry in record.entries)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"{count} measurements on {here.host}, {here.processes} x {here.name}, {when}"


def _notes(found: Fit, base: Profile, timed_in: str) -> Iterator[str]:
    left = [name for name in OF_MEASUREMENTS if name not in found.fields]
    yield f"not measured here: {', '.join(left)}; as {base.name} of the catalogue"
    if "attention" in found.fields and timed_in not in ("bf16", "fp16"):
        yield f"attention was timed in {timed_in}, and its shares are of that peak"
    if found.untold:
        yield f"what the measurements do not tell apart: {'; '.join(found.untold)}"
