"""Efficiency tables of single kernels from measured times: one JSON file per accelerator.

    python -m calibration.kernel_tables CSVDIR OUTDIR

CSVDIR holds kernels_gemm.csv, kernels_attention.csv, kernels_moe.csv and accelerators.csv. A fifth of the shapes, drawn
at random, is held out to state each table's error; the table that is written is then fitted to all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.grids import Array
from calibration.kernel_data import Columns, Part, count, read_columns, read_parts, take, where
from calibration.kernel_fits import (
    ATTENTION_AXES,
    EXCHANGED_AXES,
    GEMM_AXES,
    GROUPED_AXES,
    MEMORY_EFFICIENCY,
    Attention,
    Fitter,
    Gemm,
    Grouped,
    held_out_error,
)
from planner.cost.kernels import matmul_efficiency
from planner.spec.json_files import table_from_json, table_to_json, write_json
from planner.tables import Table

SOURCE = "ai-dynamo/aiconfigurator, Apache-2.0, commit 095f58a"
SCHEMA_VERSION = 2
FIXED_SHARE = 0.5
"""Part of the shortest time measured that is taken as a kernel's fixed time; the rest of it is work."""
LENT_HEAD_DIMS = {"a100-sxm-80gb": "l40s"}
"""Measured at one head size only: the dependence on it is that of the other part, with the same kernel (FA2)."""
TRAINING_ROWS = 32768
"""Heads x queries of a launch from which attention is fitted: what a rank has in training, enough to fill the part."""
TYPICAL_HEAD_DIM = 128.0
"""Head size by which attention kernels are compared."""
TYPICAL = "typical"
"""Name of the file of shapes for parts that were not measured."""
TYPICAL_AXES = {
    "multiprocessors": [64, 108, 132, 192, 304],
    "m": [256, 512, 1024, 2048, 4096, 32768],
    "n": [512, 1024, 2048, 4096, 65536],
    "k": [512, 1024, 2048, 4096, 16384, 65536],
}
TYPICAL_HEAD_DIMS = (64.0, 128.0, 256.0)
FILLED = (256.0, 4.0)
"""Sequences x heads and query heads per key-value head of a usual training step."""
UNMASKED = "unmasked"
"""Said of a kernel timed without a causal mask."""
TUNED = 0.6
"""Share of a plain product's rate that a grouped kernel must reach with many tokens to say anything of the part."""
MANY_TOKENS = 1024
WORTH = 0.75
"""Of the 90th percentile of the error without tiles, what is left with them, or they are left out."""


def main() -> None:
    """Read the arguments and write all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv_dir", type=Path)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--date", default=date.today().isoformat(), help="recorded as the date of making")
    arguments = parser.parse_args()
    for path in write_kernel_tables(arguments.csv_dir, arguments.out_dir, made=arguments.date):
        print(path)


def write_kernel_tables(csv_dir: Path, out_dir: Path, *, made: str) -> list[Path]:
    """Write `<slug>.json` for every part with measured matrix products, and return the paths."""
    gemm, attention, moe = (read_columns(csv_dir / f"kernels_{kind}.csv") for kind in ("gemm", "attention", "moe"))
    files = {
        part.slug: part_tables(part, *(where(rows, gpu=part.name) for rows in (gemm, attention, moe)))
        for part in read_parts(csv_dir / "accelerators.csv")
        if part.name in gemm["gpu"]
    }
    for borrower, lender in LENT_HEAD_DIMS.items():
        if borrower in files and lender in files:
            lend_head_dims(best(files[borrower]["attention"]), best(files[lender]["attention"]), lender)
    head = {"schema_version": SCHEMA_VERSION, "source": SOURCE, "date": made}
    for slug, tables in files.items():
        write_json(out_dir / f"{slug}.json", head | {"accelerator": slug} | tables)
    measured = [best(tables["attention"]) for tables in files.values() if "attention" in tables]
    write_json(out_dir / f"{TYPICAL}.json", head | typical_shapes(measured))
    return [out_dir / f"{slug}.json" for slug in (*files, TYPICAL)]


def part_tables(part: Part, gemm: Columns, attention: Columns, moe: Columns) -> dict[str, Any]:
    """All tables of one part as JSON, each with its library, number of points and held-out error."""
    half = where(gemm, dtype="bf16")
    overhead = fixed_time(half)
    precisions = [precision for precision in part.peak if precision in gemm["dtype"]]
    tables: dict[str, Any] = {
        "peak_flops_per_s": dict(part.peak),
        "memory_bandwidth_bytes_per_s": part.memory_bandwidth,
        "memory_efficiency": MEMORY_EFFICIENCY,
        "kernel_overhead_s": overhead,
        "gemm": {name: gemm_table(Gemm(part, name, overhead), where(gemm, dtype=name)) for name in precisions},
    }
    if count(attention):
        tables["attention"] = attention_tables(part, attention)
    if count(moe):
        plain = {name: where(gemm, dtype=name) for name in precisions}
        gemms = {name: (with_tiles(Gemm(part, name, overhead), rows), rows) for name, rows in plain.items()}
        tables["grouped_matmul"] = grouped_tables(gemms, moe)
    return tables


def gemm_table(plain: Gemm, rows: Columns) -> dict[str, Any]:
    """Share of the dense peak by (m, n, k), as JSON; of what tiles leave of it where these are worth their place."""
    fitters = {
        "table": plain.fit, "tiled": plain.fit_tiled, "parametric": plain.fit_parametric, "constant": plain.fit_constant
    }  # fmt: skip
    gemm = with_tiles(plain, rows)
    described = describe(gemm.table(rows), tuple(GEMM_AXES), rows, fitters)
    return ({"tiles": asdict(gemm.tiles)} if gemm.tiles else {}) | described


def with_tiles(gemm: Gemm, rows: Columns) -> Gemm:
    """The products with fitted tiles, if these lower the error of shapes that were held out by `WORTH`."""
    error = held_out_error(rows, {"table": gemm.fit, "tiled": gemm.fit_tiled})
    return gemm.tiled(rows) if error["tiled"]["p90"] < WORTH * error["table"]["p90"] else gemm


def attention_tables(part: Part, rows: Columns) -> dict[str, Any]:
    """Share of the 16-bit peak of each forward kernel, as JSON, with the name of the best causal one."""
    rows = where(rows, direction="forward")
    tables = {}
    for kernel, causal in sorted(set(zip(rows["kernel"].tolist(), rows["causal"].tolist(), strict=True))):
        own = where(rows, kernel=kernel, causal=causal)
        attention = Attention(part, fixed_time(own))
        table, fitters = attention.table(own), {"table": attention.fit, "constant": attention.fit_constant}
        names = tuple(ATTENTION_AXES)[: len(table.axes)]
        name = kernel if causal == "True" else f"{kernel} {UNMASKED}"
        tables[name] = {"overhead_s": attention.overhead} | describe(table, names, own, fitters)
    return {"best": best_attention(part, where(rows, causal="True")), "kernels": tables}


def best_attention(part: Part, rows: Columns) -> str:
    """The causal kernel that reaches most with the work of a training step, at one head size."""
    rows = take(rows, rows["batch"] * rows["heads"] * rows["seq_len"] >= TRAINING_ROWS)
    typical, share = rows["head_dim"] == TYPICAL_HEAD_DIM, Attention(part).share(rows)
    rates = {
        str(kernel): float(np.median(share[typical & (rows["kernel"] == kernel)]))
        for kernel in np.unique(rows["kernel"][typical])
    }
    return max(rates, key=lambda kernel: rates[kernel])


def grouped_tables(gemms: Mapping[str, tuple[Gemm, Columns]], rows: Columns) -> dict[str, Any]:
    """Share of a plain product's rate that grouped kernels reach, as JSON: each library's, and that of training."""
    tables = {}
    for library, dtype in sorted(set(zip(rows["library"].tolist(), rows["dtype"].tolist(), strict=True))):
        own, (gemm, products) = where(rows, library=library, dtype=dtype), gemms[dtype.removesuffix("_block")]
        grouped = Grouped(gemm, gemm.table(products))
        fitters = {"table": grouped.fit, "plain": grouped.fit_plain}
        tables[f"{library} {dtype}"] = describe(grouped.table(own), tuple(GROUPED_AXES), own, fitters)
    gemm, products = gemms["bf16"]
    training = training_table(Grouped(gemm, gemm.table(products), EXCHANGED_AXES), where(rows, dtype="bf16"))
    return ({"training": training} if training else {}) | {"kernels": tables}


def training_table(grouped: Grouped, rows: Columns) -> dict[str, Any] | None:
    """The share of the library that reaches most with many tokens for each expert, as JSON.

    None where no kernel measured is tuned for the part. Rows where a rank works on fewer copies than it reads tokens
    are left out: they time the routing.
    """
    rows = take(rows, rows["topk"] >= rows["ep"])
    rates = {
        str(library): rate_of_many(grouped, where(rows, library=library)) for library in np.unique(rows["library"])
    }
    best = max(rates, key=lambda library: rates[library], default="")
    if rates.get(best, 0.0) < TUNED:
        return None
    own, fitters = where(rows, library=best), {"table": grouped.fit, "plain": grouped.fit_plain}
    return describe(grouped.table(own), tuple(EXCHANGED_AXES), own, fitters)


def rate_of_many(grouped: Grouped, rows: Columns) -> float:
    """Share of the plain products' rate with many tokens for each expert, 0 where that was not measured."""
    many = take(rows, rows["tokens"] * rows["topk"] / rows["experts"] >= MANY_TOKENS)
    return float(np.median(grouped.time(many, 1.0) / many["time"])) if count(many) else 0.0


def best(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The kernel that a training step is taken to use."""
    found: dict[str, Any] = tables["kernels"][tables["best"]]
    return found


def describe(table: Table, names: tuple[str, ...], rows: Columns, fitters: Mapping[str, Fitter]) -> dict[str, Any]:
    """A table as JSON, with where its points come from and how well such tables predict others."""
    libraries = ", ".join(sorted({str(library) for library in rows["library"]}))
    facts = {"library": libraries, "points": count(rows), "held_out_error": held_out_error(rows, fitters)}
    return facts | table_to_json(table, names) | {"values": [float(f"{value:.4g}") for value in table.values.ravel()]}


def fixed_time(rows: Columns) -> float:
    """What any kernel takes, in seconds; a table cannot tell it from a low share, but shorter kernels take it too."""
    return round(FIXED_SHARE * float(rows["time"].min()), 8)


def typical_shapes(attention: list[dict[str, Any]]) -> dict[str, Any]:
    """How efficiency depends on shape on a part that was not measured, over the best shape's, as JSON.

    Matrix products: the parametric formula, by multiprocessors as well. Attention: the mean of the measured parts.
    """
    grid = np.meshgrid(*(np.array(axis, dtype=float) for axis in TYPICAL_AXES.values()), indexing="ij")
    parts, m, n, k = grid
    gemm = matmul_efficiency(m, n, k, multiprocessors=parts)
    shapes: dict[str, Any] = {
        "gemm_shape": table_to_json(Table.of(list(TYPICAL_AXES.values()), gemm.ravel()), tuple(TYPICAL_AXES))
    }
    if attention:
        lengths = np.array(ATTENTION_AXES["seq_len"], dtype=float)
        points = [grid.ravel() for grid in np.meshgrid(TYPICAL_HEAD_DIMS, lengths, indexing="ij")]
        curves = [_curve(table_from_json(entry), *points) for entry in attention]
        mean = Table.of([list(TYPICAL_HEAD_DIMS), lengths.tolist()], np.mean(curves, axis=0).tolist())
        shapes["attention_shape"] = table_to_json(mean, ("head_dim", "seq_len"))
    return shapes


def _curve(table: Table, head_dim: Array, seq_len: Array) -> Array:
    """Shares with enough sequences and heads to fill a part, over that of long sequences at the usual head size."""
    share = np.asarray(table.at(head_dim, seq_len, *FILLED))
    return share / float(table.at(TYPICAL_HEAD_DIM, ATTENTION_AXES["seq_len"][-1], *FILLED))


def lend_head_dims(borrower: dict[str, Any], lender: dict[str, Any], name: str) -> None:
    """Give a table measured at one head size the other's dependence on it; the other axes are the same."""
    known, dims = borrower["axes"]["head_dim"][0], lender["axes"]["head_dim"]
    curve = np.array(borrower["values"]).reshape(len(borrower["axes"]["head_dim"]), -1)[0]
    other = np.array(lender["values"]).reshape(len(dims), -1)
    lent = np.minimum(curve * other / other[dims.index(known)], 1.0)
    borrower["values"] = [float(f"{value:.4g}") for value in lent.ravel()]
    borrower["axes"]["head_dim"] = dims
    borrower["note"] = f"head sizes other than {known:g}: the ratio of {name}'s kernel"


if __name__ == "__main__":
    main()
