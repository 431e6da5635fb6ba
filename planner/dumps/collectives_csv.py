"""Tables of nccl-tests as rows of a CSV file: one row a size, out-of-place figures, empty where nothing is known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from planner.dumps.records import CollectiveTable, Sample

COLUMNS = (
    "source_id",
    "source",
    "collective",
    "n_ranks",
    "n_nodes",
    "gpus_per_node",
    "gpu",
    "intra",
    "inter",
    "nic_gbps_per_node",
    "nccl_version",
    "size_bytes",
    "time_us",
    "algbw_gbs",
    "busbw_gbs",
    "notes",
)
"""A log does not tell `intra`, `inter` and `nic_gbps_per_node`: they are left empty for the reader to fill in."""
Found = Iterable[tuple[str, CollectiveTable]]
"""Path of a log, and a table in it."""


def csv_text(tables: Found) -> str:
    """All tables as a CSV file with a header."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(tables))
    return file.getvalue()


def _rows(tables: Found) -> Iterator[list[str]]:
    used: set[str] = set()
    for path, table in tables:
        head = _head(path, table, used)
        for sample in table.samples:
            yield [*head, *_figures(sample), "; ".join(table.notes)]


def _head(path: str, table: CollectiveTable, used: set[str]) -> list[str]:
    """What all rows of a table share."""
    per_node = table.ranks // table.nodes if table.ranks and table.nodes and table.ranks % table.nodes == 0 else None
    numbers = [str(number) if number else "" for number in (table.ranks, table.nodes, per_node)]
    return [_name(path, table, used), path, table.collective, *numbers, table.gpu, "", "", "", table.version]


def _name(path: str, table: CollectiveTable, used: set[str]) -> str:
    """A name of its own for every table: file, collective, ranks, and a number where that is not enough."""
    stem = "_".join(word for word in (Path(path).stem, table.collective, str(table.ranks or "")) if word)
    name = next(each for each in _numbered(stem) if each not in used)
    used.add(name)
    return name


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 2
    while True:
        yield f"{stem}_{number}"
        number += 1


def _figures(sample: Sample) -> list[str]:
    """Size in bytes, time in us, bandwidths in GB/s, with the digits that the log has."""
    return [
        str(sample.size),
        *(f"{value:.10g}" for value in (sample.time * 1e6, sample.algbw / 1e9, sample.busbw / 1e9)),
    ]
