"""Logs of nccl-tests and rccl-tests: every table in them, whatever its version, its prefixes and what cuts its rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.dumps.nccl_ranks import COLLECTIVES, collective_of, evidence_of, ranks_of
from planner.dumps.nccl_rows import Row, head_of, is_continuation, without_log
from planner.dumps.records import CollectiveTable, Sample
from planner.dumps.text import lines, whole_number
from planner.errors import FileFormatError

SOURCE = "nccl-tests"
MOST_ROWS, MOST_TABLES = 100_000, 10_000
_NAMES = {name.replace("_", ""): name for name in COLLECTIVES}
_TOOL = re.compile(r"\b([a-z_]{4,16})_perf(?:_mpi)?\b", re.ASCII)
_STARTING = re.compile(r"Collective test starting:\s*([a-z_]{4,16}?)(?:_perf)?\b", re.ASCII)
OLD = "busbw stands in the place of algbw, as in versions up to 2019: algbw is size over time here"
_LABEL = re.compile(r"^\s{0,8}#{2,6}\s{0,4}(\S.{0,79})", re.ASCII)
_SECTION = re.compile(r"^\W{0,8}(?:N?GPUS?|RANKS?|NP)\s?[=:]\s?(\d{1,6})\b", re.ASCII | re.IGNORECASE)
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})\b", re.ASCII)
_VERSION = re.compile(r"\b[NR]CCL version\s?:?\s?(\d+(?:\.\d+){1,3})", re.ASCII)


@dataclass
class _Run:
    """What a run said of itself before its table."""

    collective: str = ""
    mentioned: str = ""
    version: str = ""
    section: int | None = None
    label: str = ""
    """A heading that somebody put above the table."""
    devices: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Rank -> host and accelerator."""

    @property
    def declared(self) -> int | None:
        """The number of ranks that the section or the list of devices states."""
        return self.section or (max(self.devices) + 1 if self.devices else None)

    @property
    def whole(self) -> bool:
        """Whether every rank's device is listed."""
        return len(self.devices) == self.declared


@dataclass
class _Table:
    """Rows of one table, with the run that they belong to."""

    run: _Run
    line: int
    rows: list[Row] = field(default_factory=list)
    lost: int = 0
    cut: int = 0
    """Lost rows that have no figures at all."""


def read_nccl_tests(text: str, *, name: str = "") -> tuple[CollectiveTable, ...]:
    """Every table of a log. `name`, the file's, is a hint where nothing in the log says which collective it shows.

    Raises FileFormatError where there is no table.
    """
    reader = _Reader()
    for number, line in lines(text):
        reader.take(number, line)
    reader.finish()
    tables = tuple(made for table in reader.tables if (made := _made(table, _mentioned(name))))
    if not tables:
        raise FileFormatError(_why_none(reader))
    return tables


def _why_none(reader: _Reader) -> str:
    if reader.tables:
        first = reader.tables[0]
        if first.cut:
            return (
                f"line {first.line}: {SOURCE} rows that log lines cut before their times; keep stdout apart from stderr"
            )
        return (
            f"line {first.line}: {SOURCE} rows whose figures do not add up (algbw is size / time); is the table whole?"
        )
    if reader.headers:
        return f"line {reader.headers}: {SOURCE} table without rows; the run ended before its first size"
    return f"{SOURCE}: no row was found (size, count, type, then time, algbw and busbw)"


class _Reader:
    """Goes through a log line by line."""

    def __init__(self) -> None:
        self.tables: list[_Table] = []
        self.headers = 0
        """The line of the first table's header."""
        self._run = _Run()
        self._fresh = True
        self._pending: Row | None = None
        self._rows = 0

    def take(self, number: int, line: str) -> None:
        """Read a line."""
        rest, said = without_log(line)
        if said:
            self._note_version(said)
        words = rest.split(maxsplit=64)
        if not words:
            return
        row = head_of(words, number)
        if row:
            self._begin(row, number)
        elif self._pending and is_continuation(words):
            self._pending.words += words
        elif not said:
            self._other(number, rest, words)
        if self._pending and (self._pending.complete or len(self._pending.words) > 60):
            self.finish()

    def _begin(self, row: Row, number: int) -> None:
        self.finish()
        if not row.size or not row.count:
            return
        self._rows += 1
        if self._rows > MOST_ROWS or len(self.tables) >= MOST_TABLES:
            raise FileFormatError(
                f"line {number}: {SOURCE} log of more than {MOST_ROWS:,} rows or {MOST_TABLES:,} tables"
            )
        if self._fresh or not self.tables or self._restarts(row):
            self.tables.append(_Table(self._run, number))
            self._fresh = False
        self._pending = row

    def _restarts(self, row: Row) -> bool:
        """Whether a row begins a table that has lost its header: sizes only ever grow within one."""
        rows = self.tables[-1].rows
        return bool(rows) and row.size < rows[-1].size

    def finish(self) -> None:
        """File the row that was being read."""
        if self._pending is None:
            return
        table = self.tables[-1]
        if self._pending.sample() is None:
            table.lost += 1
            table.cut += len(self._pending.words) < 3
        else:
            table.rows.append(self._pending)
        self._pending = None

    def _other(self, number: int, line: str, words: list[str]) -> None:
        """A header, a remark, or a line of somebody else."""
        self.finish()
        if "algbw" in line and "busbw" in line:
            self.headers = self.headers or number
            self._fresh = True
        elif "Avg bus bandwidth" in line or "Out of bounds" in line:
            self._fresh = True
        elif "nThread" in line and "minBytes" in line:
            self._next_run(keep_name=True)
        elif "Rank" in words and "device" in words:
            self._device(words)
        else:
            self._name(line)

    def _next_run(self, *, keep_name: bool) -> None:
        old, self._fresh = self._run, True
        self._run = _Run(version=old.version)
        if keep_name:
            self._run.collective, self._run.mentioned = old.collective, old.mentioned

    def _device(self, words: list[str]) -> None:
        """`Rank 0 Group 0 Pid 144 on node001 device 0 [0000:41:00] NVIDIA H100 80GB HBM3`."""
        rank = whole_number(words[words.index("Rank") + 1] if words[-1] != "Rank" else None)
        host = words[words.index("on") + 1] if "on" in words[:-1] else ""
        bus = next((i for i, word in enumerate(words) if word.startswith("[")), len(words))
        if rank is not None and len(self._run.devices) < 10**6:
            self._run.devices[rank] = (host, " ".join(words[bus + 1 :])[:80])

    def _name(self, line: str) -> None:
        """What a line says of the collective, the number of ranks or the version."""
        if starting := _STARTING.search(line):
            self._next_run(keep_name=False)
            self._run.collective = _known(starting[1])
        elif (section := _SECTION.search(line[:80])) and int(section[1]):
            self._next_run(keep_name=True)
            self._run.section = int(section[1])
        elif label := _LABEL.search(line[:100]):
            self._next_run(keep_name=True)
            self._run.label = f"section {label[1].strip()!r}"
        elif tool := _TOOL.search(line[:4096]):
            self._run = _Run(mentioned=_known(tool[1]), version=self._run.version) if self._fresh else self._run
        self._note_version(line)

    def _note_version(self, line: str) -> None:
        if library := _LIBRARY.search(line):
            code = int(library[1])
            self._run.version = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
        elif "CCL version" in line and (version := _VERSION.search(line)):
            self._run.version = version[1]


def _known(word: str) -> str:
    return _NAMES.get(word.replace("_", ""), "")


def _mentioned(name: str) -> str:
    """A collective that a file's name speaks of.

    >>> _mentioned("a100_8gpu_allgather_oldhdr"), _mentioned("topo")
    ('all_gather', '')
    """
    squeezed = re.sub(r"[^a-z]", "", name.lower())
    return next((known for word, known in _NAMES.items() if word in squeezed), "")


def _made(table: _Table, named: str) -> CollectiveTable | None:
    """The record of a table, or None where no row of it could be read."""
    old = any(row.old for row in table.rows)
    samples = tuple(sample for row in table.rows if (sample := row.sample(old=old)))
    if not samples:
        return None
    run, evidence = table.run, evidence_of(table.rows, samples)
    collective, doubt = collective_of(evidence, run.collective, (run.mentioned, named), run.declared)
    ranks, correction = ranks_of(collective, evidence, run.declared)
    hosts = _hosts(run, ranks)
    lost = f"{_rows(table.lost)} cut by other lines and left out" if table.lost else ""
    return CollectiveTable(
        collective=collective,
        ranks=ranks,
        samples=samples,
        nodes=len(hosts) or None,
        hosts=hosts,
        gpu=_gpu(run),
        dtype=table.rows[0].dtype,
        version=run.version,
        line=table.line,
        notes=tuple(_said(run.label, doubt, correction, OLD if old else "", lost, *_wrong(samples))),
    )


def _rows(number: int) -> str:
    return "1 row was" if number == 1 else f"{number} rows were"


def _said(*notes: str) -> Iterator[str]:
    return (note for note in notes if note)


def _hosts(run: _Run, ranks: int | None) -> tuple[str, ...]:
    """Hosts, where each rank's is listed and the list is that of this table."""
    if not run.whole or len(run.devices) != ranks:
        return ()
    return tuple(dict.fromkeys(host for host, _ in run.devices.values()))


def _gpu(run: _Run) -> str:
    names = Counter(gpu for _, gpu in run.devices.values() if gpu)
    return names.most_common(1)[0][0] if names else ""


def _wrong(samples: tuple[Sample, ...]) -> Iterator[str]:
    """Results that the tool found to be wrong; old versions print the largest error instead, which is far below 1."""
    bad = sum(any((value or 0) >= 1 for value in (sample.wrong, sample.in_place_wrong)) for sample in samples)
    if bad:
        yield f"{bad} rows have wrong results: their times mean nothing, and the hardware or driver is at fault"
