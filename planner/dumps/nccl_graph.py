"""NCCL_DEBUG=INFO: network, transports, rings, what the search found, and which algorithm ran for which size."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.dumps.records import AlgorithmChoice, GraphPattern, NcclLog, TuningEntry
from planner.dumps.text import lines, whole_number

ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
"""In NCCL's numbering, which older versions print."""
PATTERNS = {
    "1": "balanced tree",
    "2": "split tree",
    "3": "tree",
    "4": "ring",
    "5": "NVLS",
    "6": "CollNet direct",
}
"""NVIDIA/nccl @5067397c, src/include/graph.h."""
MOST = 4096
"""Rings, choices, hosts and settings that are kept: more is repetition."""
MARKERS = (" NCCL INFO ", " NCCL WARN ")
_FLOAT = r"(\d{1,12}(?:\.\d{0,9})?)"


@dataclass
class _Reading:
    """What was read so far."""

    version: str = ""
    hosts: dict[str, None] = field(default_factory=dict)
    ranks: int | None = None
    nodes: int | None = None
    network: str = ""
    devices: dict[str, None] = field(default_factory=dict)
    gpu_direct: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    transports: Counter[str] = field(default_factory=Counter)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    patterns: dict[GraphPattern, None] = field(default_factory=dict)
    choices: dict[AlgorithmChoice, None] = field(default_factory=dict)
    tuning: dict[TuningEntry, None] = field(default_factory=dict)
    nvls: bool | None = None
    algorithms: tuple[str, ...] = ()
    """Columns of the tuning table that is being read."""


def collective_name(word: str) -> str:
    """NCCL's name of a collective as nccl-tests writes it.

    >>> collective_name("AllReduce"), collective_name("ReduceScatter")
    ('all_reduce', 'reduce_scatter')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()


def _version(found: re.Match[str], into: _Reading) -> None:
    into.version = into.version or found[1]


def _ranks(found: re.Match[str], into: _Reading) -> None:
    into.ranks = max(into.ranks or 0, int(found[1]))


def _nodes(found: re.Match[str], into: _Reading) -> None:
    into.nodes = max(into.nodes or 0, int(found[1]))


def _network(found: re.Match[str], into: _Reading) -> None:
    into.network = into.network or found[1].strip()


def _devices(found: re.Match[str], into: _Reading) -> None:
    for device in re.findall(r"\[\d{1,4}\]([\w.+-]{1,64}:\d{1,3}/\w{1,16})", found[1])[:MOST]:
        into.devices[device] = None


def _gpu_direct(found: re.Match[str], into: _Reading) -> None:
    into.gpu_direct[found[2]] = found[1] == "Enabled"


def _setting(found: re.Match[str], into: _Reading) -> None:
    if len(into.settings) < MOST:
        into.settings[found[1]] = found[2].rstrip(".")


def _transport(found: re.Match[str], into: _Reading) -> None:
    way = found[1]
    if way.startswith("NET/"):
        way = "/".join(way.split("/")[:2]) + ("/GDRDMA" if "GDRDMA" in way else "")
    into.transports[way.split("/")[0] if not way.startswith("NET") else way] += 1


def _ring(found: re.Match[str], into: _Reading) -> None:
    ranks = tuple(number for word in found[2].split() if (number := whole_number(word)) is not None)
    if len(into.rings) < MOST:
        into.rings.setdefault(int(found[1]), ranks)


def _pattern(found: re.Match[str], into: _Reading) -> None:
    intra, inter = float(found[3]) * 1e9, float(found[4]) * 1e9
    made = GraphPattern(PATTERNS.get(found[1], found[1]), int(found[2]), intra, inter, found[5], found[6])
    if len(into.patterns) < MOST:
        into.patterns[made] = None


def _choice(found: re.Match[str], into: _Reading) -> None:
    algorithm, protocol = _named(found[3], ALGORITHMS), _named(found[4], PROTOCOLS)
    if len(into.choices) < MOST:
        into.choices[AlgorithmChoice(collective_name(found[1]), int(found[2]), algorithm, protocol)] = None


def _named(word: str, names: tuple[str, ...]) -> str:
    """A name in its usual spelling, from NCCL's number or capitals."""
    if word.isdecimal():
        return names[int(word)] if int(word) < len(names) else word
    return next((name for name in names if name.upper() == word.upper()), word)


def _columns(found: re.Match[str], into: _Reading) -> None:
    into.algorithms = tuple(name.strip() for name in found[1].split("|") if name.strip())[: len(ALGORITHMS)]


def _tuning(found: re.Match[str], into: _Reading) -> None:
    cells = re.findall(rf"{_FLOAT}/\s*{_FLOAT}", found[2])
    for i, (latency, bandwidth) in enumerate(cells[: 3 * len(into.algorithms)]):
        if float(bandwidth) and len(into.tuning) < MOST:
            algorithm, protocol = into.algorithms[i // 3], PROTOCOLS[i % 3]
            entry = (collective_name(found[1]), algorithm, protocol, float(latency) * 1e-6, float(bandwidth) * 1e9)
            into.tuning[TuningEntry(*entry)] = None


def _nvls(found: re.Match[str], into: _Reading) -> None:
    into.nvls = not found[1]


Handler = Callable[[re.Match[str], _Reading], None]
HANDLERS: tuple[tuple[str, re.Pattern[str], Handler], ...] = tuple(
    (hint, re.compile(pattern, re.ASCII), handler)
    for hint, pattern, handler in (
        ("nranks", r"\bnranks[ =](\d{1,7})\b", _ranks),
        ("nRanks", r"\bnRanks (\d{1,7})\b", _ranks),
        ("nNodes", r"\bnNodes (\d{1,7})\b", _nodes),
        ("version", r"\b[NR]CCL version\s*:?\s*(\d[\w.+-]{0,60})", _version),
        ("Using network", r"Using network (.{1,60})", _network),
        ("NET/IB", r"NET/IB : Using (.{1,4000})", _devices),
        ("GPU Direct RDMA", r"GPU Direct RDMA (\w+) for HCA \d{1,4} '([^']{1,64})'", _gpu_direct),
        ("NCCL_", r"\b(NCCL_\w{1,60}) set (?:by environment )?to (\S{1,200})", _setting),
        (" via ", r" via ([A-Z][\w/ .:+-]{1,80})", _transport),
        ("Channel", r"^Channel (\d{1,5})(?:/\d{1,5})?\s*:\s*([\d\s]{1,60000})$", _ring),
        (
            "Pattern",
            rf"Pattern (\d), crossNic \d, nChannels (\d{{1,4}}), (?:bw|speed) {_FLOAT}/{_FLOAT}, "
            r"type (\w{1,8})/(\w{1,8})",
            _pattern,
        ),
        ("Bytes ->", r"\b([A-Z]\w{2,30}): (\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,10})", _choice),
        ("Algorithm", r"^\s*Algorithm\s*\|(.{1,1000})", _columns),
        ("/", r"^\s*([A-Z][A-Za-z]{4,20})\s*\|(.{1,2000})", _tuning),
        ("NVLS multicast", r"NVLS multicast support is (not )?available", _nvls),
    )
)
"""A word that the line has, what is searched then, and what becomes of it."""


def read_nccl_log(text: str) -> NcclLog:
    """What the INFO lines of a log tell; of lines that every rank prints, each once."""
    into = _Reading()
    for _, line in lines(text):
        if "CCL" in line:
            _read(line, into)
    return NcclLog(
        version=into.version,
        hosts=tuple(into.hosts),
        ranks=into.ranks or max(map(len, into.rings.values()), default=None),
        nodes=into.nodes,
        network=into.network,
        devices=tuple(into.devices),
        gpu_direct=into.gpu_direct,
        settings=into.settings,
        transports=dict(into.transports),
        rings=tuple(into.rings[channel] for channel in sorted(into.rings)),
        patterns=tuple(into.patterns),
        choices=tuple(into.choices),
        tuning=tuple(into.tuning),
        nvls=into.nvls,
    )


def split_line(line: str) -> tuple[str, str]:
    """Who prints (host:process:thread [device]) and what, of a line of NCCL; what is glued in front is left out.

    >>> split_line("8  2  float  sum  -1node001:13:15 [0] NCCL INFO Using network IB")
    ('-1node001:13:15 [0]', 'Using network IB')
    """
    for marker in MARKERS:
        before, found, body = line.partition(marker)
        if found:
            return " ".join(before.split()[-2:]), body
    return "", ""


def _read(line: str, into: _Reading) -> None:
    who, body = split_line(line)
    host, _, threads = who.partition(":")
    if threads.count(":") == 1 and not host.startswith("-") and len(into.hosts) < MOST:  # -1node001: glued to a row
        into.hosts[host] = None
    if not who and "CCL version" in line:
        body = line
    for hint, pattern, handler in HANDLERS:
        if hint in body and (match := pattern.search(body)):
            handler(match, into)
