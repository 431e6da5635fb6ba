"""Efficiency of single kernels on each accelerator: measured, a similar part's, or typical of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from planner.catalogue.names import FOLDER
from planner.quantities import Count, Scalar, Seconds
from planner.spec.accelerator import Accelerator
from planner.spec.json_files import read_json, table_from_json
from planner.spec.profile import MatmulTiles, Profile
from planner.spec.profile_file import matmul_tiles_from_json
from planner.spec.toml_file import read_toml
from planner.tables import Table

SCHEMA_VERSION = 2
PRECISIONS = {
    **dict.fromkeys(("bf16", "fp16", "tf32", "fp32"), "bf16"),
    **dict.fromkeys(("fp8", "mxfp8", "nvfp4"), "fp8"),
}
"""Precision -> the one whose measured shares it uses."""


@dataclass(frozen=True, eq=False)
class KernelTables:
    """Shares of peak as `Profile` holds them: of the kernels that a training step is taken to use.

    `timed_attention` (each with its fixed time) and `timed_grouped` are all that were timed on the part, by name.
    """

    gemm: Mapping[str, Table]
    attention: Mapping[str, Table]
    grouped_matmul: Table
    kernel_overhead: Seconds
    attention_overhead: Seconds
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    timed_attention: Mapping[str, tuple[Table, Seconds]] = field(default_factory=dict)
    timed_grouped: Mapping[str, Table] = field(default_factory=dict)
    matmul_tiles: Mapping[str, MatmulTiles] = field(default_factory=dict)


def kernel_tables(accelerator: Accelerator) -> KernelTables:
    """The accelerator's own tables, else those of the part that stands in for it, else typical ones; `notes` say so."""
    part = measured_part(accelerator)
    tables = _measured(part) if part else _typical(accelerator)
    ratio = _stand_ins()["sdpa"].get(accelerator.architecture.lower())
    sdpa = _times_ratio(tables.attention["flash"], ratio) if ratio else tables.attention["flash"]
    similar = (
        (f"kernels of {accelerator.name}: those measured on {part}",) if part not in ("", accelerator.name) else ()
    )
    return replace(
        tables,
        attention={**tables.attention, "sdpa": sdpa},
        sources=(*tables.sources, *((ratio["source"],) if ratio else ())),
        notes=(*similar, *tables.notes),
    )


def kernels_alone(accelerator: Accelerator, *, attention: str = "", grouped: str = "") -> tuple[Profile, bool]:
    """The accelerator's kernels as they were timed one at a time, and whether the very ones that are named were.

    `attention` and `grouped` are names of `KernelTables`; without one, or where it was not timed, the kernel is the one
    that a training step is taken to use. Nothing that a training step adds, no collectives.
    """
    tables = kernel_tables(accelerator)
    usual = tables.attention["flash"], tables.attention_overhead
    table, overhead = tables.timed_attention.get(attention, usual)
    known = (not attention or attention in tables.timed_attention) and (not grouped or grouped in tables.timed_grouped)
    profile = Profile(
        accelerator=accelerator.name,
        stack="",
        level="datasheet",
        gemm=tables.gemm,
        attention={"flash": table},
        collectives={},
        compute_scale=1.0,
        kernel_overhead=tables.kernel_overhead,
        attention_overhead=overhead,
        grouped_matmul=tables.timed_grouped.get(grouped, tables.grouped_matmul),
        matmul_tiles=tables.matmul_tiles,
        sources=tables.sources,
        notes=tables.notes,
    )
    return profile, known and measured_part(accelerator) == accelerator.name


def measured_part(accelerator: Accelerator) -> str:
    """Whose measured kernels are used: the accelerator's own where there are any; empty if nothing similar was."""
    if accelerator.name in measured_parts():
        return accelerator.name
    by_architecture = _stand_ins()["by_architecture"].get(accelerator.architecture.lower(), "")
    chosen = _stand_ins()["by_name"].get(accelerator.name, by_architecture)
    return chosen if chosen in measured_parts() else ""


@cache
def measured_parts() -> tuple[str, ...]:
    """Accelerators whose kernels were measured."""
    return tuple(sorted(path.stem for path in (FOLDER / "kernels").glob("*.json") if path.stem != "typical"))


@cache
def _measured(part: str) -> KernelTables:
    data = _read(part)
    gemm = {name: table_from_json(entry) for name, entry in data["gemm"].items()}
    tiles = {name: matmul_tiles_from_json(entry["tiles"]) for name, entry in data["gemm"].items() if "tiles" in entry}
    precisions = {name: measured if measured in gemm else "bf16" for name, measured in PRECISIONS.items()}
    kernels = data["attention"]["kernels"]
    flash = kernels[data["attention"]["best"]]
    timed = {
        name: table_from_json(entry) for name, entry in data.get("grouped_matmul", {"kernels": {}})["kernels"].items()
    }
    grouped_on = part if "training" in data.get("grouped_matmul", {}) else _stand_ins()["grouped"]["part"]
    notes = [flash["note"]] if "note" in flash else []
    if grouped_on != part:
        notes.append(f"grouped matrix products (experts): those of {grouped_on}")
    return KernelTables(
        gemm={name: gemm[used] for name, used in precisions.items()},
        attention={"flash": table_from_json(flash)},
        grouped_matmul=_grouped(grouped_on),
        kernel_overhead=data["kernel_overhead_s"],
        attention_overhead=flash["overhead_s"],
        sources=(f"kernels of {part}: {data['source']}, {data['date']}; {data['attention']['best']}",),
        notes=tuple(notes),
        timed_attention={name: (table_from_json(entry), entry["overhead_s"]) for name, entry in kernels.items()},
        timed_grouped=timed,
        matmul_tiles={name: tiles[used] for name, used in precisions.items() if used in tiles},
    )


def _grouped(part: str) -> Table:
    """The share of the part's best grouped kernel. Weights of a training step do not stay in the cache: 1 at most."""
    table = table_from_json(_read(part)["grouped_matmul"]["training"])
    return Table(table.axes, np.minimum(table.values, 1.0))


def _typical(accelerator: Accelerator) -> KernelTables:
    """Typical shapes times the best shares of the accelerator's architecture."""
    data, typical = _read("typical"), _stand_ins()["typical"]
    by_name = _stand_ins()["by_name"].get(accelerator.name, accelerator.name)
    known = next(key for key in (by_name, accelerator.architecture.lower(), "other") if key in typical)
    best = typical[known]
    shape, curve = table_from_json(data["gemm_shape"]), table_from_json(data["attention_shape"])
    gemm = _scaled(_at_multiprocessors(shape, accelerator.multiprocessors), best["matmul"])
    like = _measured(_stand_ins()["grouped"]["part"])
    return KernelTables(
        gemm=dict.fromkeys(PRECISIONS, gemm),
        attention={"flash": _scaled(curve, best["attention"])},
        grouped_matmul=like.grouped_matmul,
        kernel_overhead=like.kernel_overhead,
        attention_overhead=like.attention_overhead,
        sources=(f"kernels: {best['source']}",) if best["source"] else (),
        notes=(f"kernels of {accelerator.name}: none measured on it or on a similar part; typical of {known} assumed",),
    )


def _at_multiprocessors(shape: Table, multiprocessors: Count) -> Table:
    """The table without its first axis."""
    points = np.array(list(product([multiprocessors], *shape.axes[1:])), dtype=float).T
    return Table.of([axis.tolist() for axis in shape.axes[1:]], np.asarray(shape.at(*points)).tolist())


def _scaled(table: Table, factor: Scalar) -> Table:
    return Table(table.axes, np.minimum(table.values * factor, 1.0))


def _times_ratio(attention: Table, ratio: Mapping[str, Any]) -> Table:
    """A table by (head_dim, seq_len, ...) times a ratio by seq_len."""
    share = np.asarray(Table.of([ratio["seq_len"]], ratio["ratio"]).at(attention.axes[1]))
    return Table(attention.axes, attention.values * share.reshape(-1, *[1] * (attention.values.ndim - 2)))


@cache
def _read(name: str) -> dict[str, Any]:
    return read_json(FOLDER / "kernels" / f"{name}.json", schema_version=SCHEMA_VERSION)


@cache
def _stand_ins() -> dict[str, Any]:
    return read_toml(FOLDER / "kernels" / "stand_ins.toml")
