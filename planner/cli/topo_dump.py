"""What `planner topo` prints of a file that a machine printed."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.groups import print_groups
from planner.cli.printing import note, print_json, say, whole_line

if TYPE_CHECKING:
    from planner.answer.dumps import Checked, HostReport

SUFFIXES = (".txt", ".log", ".xml", ".out")
"""Endings of files, so that one that is missing is said to be missing rather than no cluster."""
NOTHING_WRONG = "nothing looks wrong"


def is_dump(text: str) -> bool:
    """Whether a command's CLUSTER is a file other than a cluster TOML, whatever that is called."""
    path = Path(text)
    try:
        if text.lower().endswith(".toml") or path.is_dir() or not path.exists():
            return path.suffix.lower() in SUFFIXES
        if not path.is_file():  # a pipe, which can be read once only
            return True
        with path.open("rb") as file:
            start = file.read(2**20).decode("utf-8")
        return not _is_cluster(start)
    except (OSError, ValueError):
        return path.suffix.lower() != ".toml"


def _is_cluster(text: str) -> bool:
    try:
        return bool({"nodes", "pools"} & tomllib.loads(text).keys())
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def show_dump(
    path: Path,
    *,
    gpu: str | None,
    nodes: int | None,
    network: str | None,
    degrees: dict[str, int],
    rank_order: str,
    toml: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Print what was read, the node that it makes, and what its groups would get; write the node if asked."""
    from planner.answer.dumps import host_report, write_cluster

    report = host_report(path, gpu=gpu, nodes=nodes or 1, network=network, degrees=degrees, rank_order=rank_order)
    written = write_cluster(report, toml, force=force) if toml else None
    if as_json:
        return print_json(report.as_dict())
    _print_report(report)
    if written:
        say()
        say(f"Wrote {written}. Use it with:")
        whole_line(f"  planner recommend llama-3.1-8b {shlex.quote(str(written))}")
    return None


def _print_report(report: HostReport) -> None:
    from planner.dumps.words import lines_of
    from planner.topology.describe import describe

    notes = [*report.dump.notes, *(report.dump.topology.notes if report.dump.topology else ())]
    for remark in notes:
        note(f"note: {remark}")
    say(f"{report.dump.path} holds {' and '.join(report.dump.formats)}")
    for line in lines_of(report.dump):
        say(f"  {line}", indent="    ")
    if report.cluster is None or report.host is None:
        return note(f"note: {report.lacking}")
    for remark in report.cluster.notes:
        note(f"note: {remark}")
    note(f"assumed: {'; '.join(report.host.assumed)}")
    say()
    for line in describe(report.cluster):
        whole_line(line)
    say(f"From the dump: {'; '.join(report.host.told) or 'the number of GPUs'}.")
    print_groups(report.groups)
    return None


def check_dumps(files: Sequence[Path], gpu: str | None, *, as_json: bool) -> None:
    """Print what looks wrong, file by file or host by host."""
    from planner.answer.dumps import check_files

    checked = check_files(files, gpu=gpu)
    if as_json:
        return print_json({"schema_version": 1, "hosts": [each.as_dict() for each in checked]})
    for each in checked:
        _print_checked(each)
    return None


def _print_checked(each: Checked) -> None:
    for remark in each.as_dict()["notes"]:
        note(f"note: {remark}")
    what = ", ".join(each.checked) or "nothing in it can be checked"
    if not each.findings:
        say(f"{each.dump.path}: {NOTHING_WRONG} ({what})")
        return
    number = len(each.findings)
    say(f"{each.dump.path}: {number} {'thing looks' if number == 1 else 'things look'} wrong ({what})")
    for finding in each.findings:
        say(f"  {finding.what}", indent="    ")
        say(f"    because {finding.why}", indent="    ")
        whole_line(f"    run: {finding.command}")
