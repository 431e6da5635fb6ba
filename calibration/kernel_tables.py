"""Efficiency tables of single kernels from measured times: one JSON file per accelerator.

    python -m calibration.kernel_tables CSVDIR OUTDIR

CSVDIR holds kernels_gemm.csv, kernels_attention.csv, kernels_moe.csv and accelerators.csv. A fifth of the shapes, drawn
at random, is held out to state each table's error; the table that is written is then fitted to all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.kernel_data import Columns, Part, count, read_columns, read_parts, take, where
from calibration.kernel_fits import (
    GEMM_AXES,
    GROUPED_AXES,
    MEMORY_EFFICIENCY,
    SEQ_LENS,
    CausalAttention,
    Fitter,
    Gemm,
    Grouped,
    held_out_error,
)
from planner.cost.kernels import matmul_efficiency
from planner.spec.json_files import table_from_json, table_to_json, write_json
from planner.tables import Table

SOURCE = "ai-dynamo/aiconfigurator, Apache-2.0, commit 095f58a"
SCHEMA_VERSION = 1
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
TUNED = 0.6
"""Share of a plain product's rate that a grouped kernel must reach with many tokens to say anything of the part."""
MANY_TOKENS = 1024


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
            lend_head_dims(files[borrower]["attention"]["flash"], files[lender]["attention"]["flash"], lender)
    head = {"schema_version": SCHEMA_VERSION, "source": SOURCE, "date": made}
    for slug, tables in files.items():
        write_json(out_dir / f"{slug}.json", head | {"accelerator": slug} | tables)
    measured = [tables["attention"]["flash"] for tables in files.values() if "attention" in tables]
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
        tables["attention"] = {"flash": attention_table(part, attention)}
    grouped = grouped_table(Gemm(part, "bf16", overhead), half, where(moe, dtype="bf16"))
    return tables | ({"grouped_matmul": grouped} if grouped else {})


def gemm_table(gemm: Gemm, rows: Columns) -> dict[str, Any]:
    """Share of the dense peak by (m, n, k), as JSON."""
    fitters = {"table": gemm.fit, "parametric": gemm.fit_parametric, "constant": gemm.fit_constant}
    return describe(gemm.table(rows), tuple(GEMM_AXES), rows, fitters)


def attention_table(part: Part, rows: Columns) -> dict[str, Any]:
    """Share of the 16-bit peak of the causal forward of the part's best kernel, by (head_dim, seq_len), as JSON."""
    measured = where(rows, causal="True", direction="forward")
    rows = take(measured, measured["batch"] * measured["heads"] * measured["seq_len"] >= TRAINING_ROWS)
    typical = rows["head_dim"] == TYPICAL_HEAD_DIM
    share = CausalAttention(part).share(rows)
    rates = {
        str(k): float(np.median(share[typical & (rows["kernel"] == k)])) for k in np.unique(rows["kernel"][typical])
    }
    best = max(rates, key=lambda kernel: rates[kernel])
    rows = where(rows, kernel=best)
    attention = CausalAttention(part, fixed_time(where(measured, kernel=best)))
    fitters = {"table": attention.fit, "constant": attention.fit_constant}
    described = describe(attention.table(rows), ("head_dim", "seq_len"), rows, fitters)
    return {"kernel": best, "overhead_s": attention.overhead} | described


def grouped_table(gemm: Gemm, products: Columns, rows: Columns) -> dict[str, Any] | None:
    """Share of a plain product's rate that the part's best grouped kernel reaches, as JSON.

    None where no kernel measured is tuned for the part. Rows where a rank works on fewer copies than it reads tokens
    are left out: they time the routing.
    """
    grouped = Grouped(gemm, gemm.table(products))
    rows = take(rows, rows["topk"] >= rows["ep"])
    many = rows["tokens"] * rows["topk"] / rows["experts"] >= MANY_TOKENS
    rates = {
        str(library): float(np.median((grouped.time(rows, 1.0) / rows["time"])[many & (rows["library"] == library)]))
        for library in np.unique(rows["library"][many])
    }
    best = max(rates, key=lambda library: rates[library], default="")
    if rates.get(best, 0.0) < TUNED:
        return None
    rows = where(rows, library=best)
    return describe(grouped.table(rows), tuple(GROUPED_AXES), rows, {"table": grouped.fit, "plain": grouped.fit_plain})


def describe(table: Table, names: tuple[str, ...], rows: Columns, fitters: Mapping[str, Fitter]) -> dict[str, Any]:
    """A table as JSON, with where its points come from and how well such tables predict others."""
    libraries = ", ".join(sorted({str(library) for library in rows["library"]}))
    facts = {"library": libraries, "points": count(rows), "held_out_error": held_out_error(rows, fitters)}
    return facts | table_to_json(table, names)


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
        dims, lengths = np.meshgrid(TYPICAL_HEAD_DIMS, np.array(SEQ_LENS, dtype=float), indexing="ij")
        tables = [table_from_json(entry) for entry in attention]
        curves = [table.at(dims, lengths) / table.at(TYPICAL_HEAD_DIMS[1], SEQ_LENS[-1]) for table in tables]
        mean = Table.of([list(TYPICAL_HEAD_DIMS), SEQ_LENS], np.mean(curves, axis=0).ravel())
        shapes["attention_shape"] = table_to_json(mean, ("head_dim", "seq_len"))
    return shapes


def lend_head_dims(borrower: dict[str, Any], lender: dict[str, Any], name: str) -> None:
    """Give a table measured at one head size the other's dependence on it; the axis over lengths is the same."""
    known, dims = borrower["axes"]["head_dim"][0], lender["axes"]["head_dim"]
    curve = np.array(borrower["values"]).reshape(len(borrower["axes"]["head_dim"]), -1)[0]
    other = np.array(lender["values"]).reshape(len(dims), -1)
    borrower["values"] = np.round(curve * other / other[dims.index(known)], 4).ravel().tolist()
    borrower["axes"]["head_dim"] = dims
    borrower["note"] = f"head sizes other than {known:g}: the ratio of {name}'s {lender['kernel']}"


if __name__ == "__main__":
    main()
