"""A profile from what was measured, and from the catalogue's nearest where nothing was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from calibration import kernel_profile as kernels
from calibration.record import Record
from planner.catalogue.profiles import profile as nearest_profile
from planner.spec.cluster import Cluster
from planner.spec.profile import Profile
from planner.tables import Table

MOST_SHARE = 1.0


def profile_of(record: Record, cluster: Cluster, stack: str) -> Profile:
    """The profile of a cluster's accelerator under a stack, measured as far as the record goes.

    Raises SpecError for an unknown stack.
    """
    base = nearest_profile(cluster.accelerator, stack, fabric=cluster.node.fabric)
    made = replace(base, **_kernels(record, cluster, base))
    return replace(made, level=_level(base, record), sources=_sources(record, base), notes=_notes(record, base))


def _kernels(record: Record, cluster: Cluster, base: Profile) -> dict[str, Any]:
    """The fields of a profile that kernels alone tell, those that were measured."""
    part = cluster.accelerator
    overhead = kernels.kernel_overhead(record.results("gemm"))
    overhead = base.kernel_overhead if overhead is None else overhead
    stream, gemm = kernels.bandwidth(record), kernels.gemm_tables(record, part.peak, overhead)
    found: dict[str, Any] = {
        "launch_time": kernels.launch_time(record),
        "kernel_overhead": overhead,
        "memory_efficiency": stream and min(MOST_SHARE, stream / part.memory_bandwidth),
        "gemm": {**base.gemm, **gemm},
        "attention": {name: _writable(table) for name, table in base.attention.items()},
        # Tables of measured products hold all of the share, what tiles leave of the peak included.
        "matmul_tiles": {name: tiles for name, tiles in base.matmul_tiles.items() if name not in gemm},
    }
    return {name: value for name, value in found.items() if value is not None}


def _writable(table: Table) -> Table:
    return Table(table.axes, np.clip(table.values, kernels.LEAST_SHARE, MOST_SHARE))


def _level(base: Profile, record: Record) -> str:
    """Kernels that were measured here make of a datasheet's profile one whose training factors are of elsewhere."""
    return "transferred" if base.level == "datasheet" and record.results("gemm") else base.level


def _sources(record: Record, base: Profile) -> tuple[str, ...]:
    here, dates = record.machine, sorted(entry.date[:10] for entry in record.entries)
    count = sum(entry.measured is not None for entry in record.entries)
    own = f"measured on {here.host}, {here.processes} x {here.name}: {count} measurements, {dates[0]} to {dates[-1]}"
    return (own, *base.sources)


def _notes(record: Record, base: Profile) -> tuple[str, ...]:
    return base.notes
