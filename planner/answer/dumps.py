"""What a dump is worth to the planner: the node that it describes, what its groups would get, what looks wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.answer.question import machines_of
from planner.answer.wiring import GroupWiring, layouts, rank_order_of, wiring
from planner.catalogue.hardware import node as node_type
from planner.catalogue.hardware import standard_node
from planner.dumps.cluster_toml import cluster_toml
from planner.dumps.collectives_csv import csv_text
from planner.dumps.findings import checked, findings
from planner.dumps.node import HostNode, accelerator_of, host_name, node_of
from planner.dumps.reading import merged, read_dump
from planner.dumps.records import CollectiveTable, Dump, Finding
from planner.emit.write import write_files
from planner.errors import FileFormatError, SpecError
from planner.spec.cluster import Cluster, Pool
from planner.spec.codec import to_plain

MOST_NODES = 100_000


@dataclass(frozen=True)
class HostReport:
    """A dump with the node made from it. `lacking` says why there is none; `groups` is what its groups would get."""

    dump: Dump
    host: HostNode | None = None
    cluster: Cluster | None = None
    groups: tuple[GroupWiring, ...] = ()
    lacking: str = ""
    nodes: int = 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what was read in base units, the node as a cluster TOML states it, its groups."""
        made = self.host
        return {
            "schema_version": 1,
            "file": self.dump.path,
            "formats": list(self.dump.formats),
            "read": {key: value for key, value in to_plain(self.dump).items() if key not in ("path", "formats")},
            "node": dict(made.entries) if made else None,
            "told": list(made.told) if made else [],
            "assumed": list(made.assumed) if made else [],
            "lacking": self.lacking or None,
            "cluster": self.cluster.name if self.cluster else None,
            "gpus": self.cluster.world_size if self.cluster else None,
            "groups": [asdict(group) for group in self.groups],
        }


def host_report(
    path: Path,
    *,
    gpu: str | None = None,
    nodes: int = 1,
    network: str | None = None,
    degrees: dict[str, int] | None = None,
    rank_order: str = "tp_cp_dp_pp",
) -> HostReport:
    """What a file holds, and what `nodes` such hosts give to parallel groups.

    Without a topology, or where nobody says which accelerator it is, there is no node, and `lacking` says why. Raises
    FileFormatError for a file of no known format, SpecError for what is asked wrongly.
    """
    dump = read_dump(path)
    if dump.topology is None:
        return HostReport(dump, lacking=_no_topology(dump))
    if not gpu:
        try:
            accelerator_of(dump.topology)
        except SpecError as error:
            return HostReport(dump, lacking=str(error))
    name = host_name(path.stem)
    made = node_of(dump.topology, accelerator_of(dump.topology, gpu), name=name, origin=_origin(dump, path))
    cluster = machines_of(Cluster(name, (Pool(made.node, nodes),)), network)
    plans = layouts(cluster, degrees or {})
    groups = tuple(wiring(cluster, plans, rank_order_of(rank_order)))
    return HostReport(dump, made, cluster, groups, nodes=nodes)


def _origin(dump: Dump, path: Path) -> str:
    return f"{dump.topology.source} in {path.name}" if dump.topology else path.name


def _no_topology(dump: Dump) -> str:
    have = " and ".join(dump.formats)
    return f"{have} alone makes no node: add what `nvidia-smi topo -m` prints to the file, or an NCCL_TOPO_DUMP_FILE"


def write_cluster(report: HostReport, path: Path, *, force: bool = False) -> Path:
    """Write a cluster TOML of the report's hosts, whole or not at all.

    Raises SpecError where the dump made no node or the file is there and may not be replaced.
    """
    if report.host is None:
        raise SpecError(f"no node can be written: {report.lacking}", where="--toml")
    if path.suffix != ".toml":
        raise SpecError(f"the name of a cluster file ends in .toml, not {path.name!r}", where="--toml")
    text = cluster_toml(report.host, nodes=report.nodes)
    return write_files({path.name: text}, path.parent, force=force)[0]


@dataclass(frozen=True)
class Checked:
    """The findings of one host (or file), and what could be checked at all."""

    dump: Dump
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "file": self.dump.path,
            "formats": list(self.dump.formats),
            "checked": list(self.checked),
            "findings": [asdict(finding) for finding in self.findings],
            "notes": [*self.dump.notes, *(self.dump.topology.notes if self.dump.topology else ())],
        }


def check_files(paths: Sequence[Path], *, gpu: str | None = None) -> list[Checked]:
    """What looks wrong in files; several of different formats are taken as one host's.

    Raises FileFormatError for a file of no known format, SpecError for an unknown accelerator.
    """
    return check_dumps([read_dump(path) for path in paths], gpu=gpu)


def check_dumps(dumps: Sequence[Dump], *, gpu: str | None = None) -> list[Checked]:
    """As `check_files`, of what was read already."""
    return [_checked(dump, gpu) for dump in merged(list(dumps))]


def _checked(dump: Dump, gpu: str | None) -> Checked:
    usual = None
    if dump.topology:
        try:
            name = standard_node(accelerator_of(dump.topology, gpu).name)
            usual = node_type(name) if name else None
        except SpecError:
            if gpu:
                raise
    return Checked(dump, findings(dump, usual), checked(dump))


@dataclass(frozen=True)
class Imported:
    """The tables of nccl-tests in several logs; `failed` says which logs had none, and why."""

    tables: tuple[tuple[str, CollectiveTable], ...]
    failed: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON: every row in base units."""
        tables = [{"file": path, **to_plain(table)} for path, table in self.tables]
        return {"schema_version": 1, "tables": tables, "failed": list(self.failed)}


def nccl_tables(paths: Iterable[Path]) -> Imported:
    """All tables of all logs. Raises FileFormatError where no log has any."""
    tables: list[tuple[str, CollectiveTable]] = []
    failed: list[str] = []
    for path in paths:
        try:
            found = [(str(path), table) for table in read_dump(path).tables]
        except FileFormatError as error:
            failed.append(str(error))
            continue
        tables += found
        failed += [] if found else [f"{path}: no table of nccl-tests in it"]
    if not tables:
        raise FileFormatError("; ".join(failed[:3]))
    return Imported(tuple(tables), tuple(failed))


def write_csv(imported: Imported, path: Path, *, force: bool = False) -> Path:
    """Write all rows as CSV, whole or not at all. Raises SpecError where the file is there and may not be replaced."""
    return write_files({path.name: csv_text(imported.tables)}, path.parent, force=force)[0]
