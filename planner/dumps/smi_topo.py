"""`nvidia-smi topo -m` (and `mx-smi topo -m`): who is joined to whom, and how near each NIC is."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

from planner.dumps.matrix import Matrix, labels_of, matrices
from planner.dumps.records import Gpu, HostTopology, Nic, Pair, PairLink
from planner.errors import FileFormatError

SOURCE = "nvidia-smi topo -m"
PEER_WORDS = {"OK", "NS", "CNS", "GNS", "TNS", "DR", "U", "X"}
"""What `nvidia-smi topo -p2p` says of a pair."""
PATHS = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "NODE", "SYS": "SYS", "SOC": "SYS"}
"""Ways over PCIe, near to far; SOC is what drivers before 2018 called SYS."""
_LEGEND = re.compile(r"\b(NIC\d{1,4}):\s*([\w.-]{1,64})", re.ASCII)
_OWN_LINK = re.compile(r"(NV|NVL|MX|XGMI|HCCS|MTL)(\d{0,3})", re.ASCII)
MOST_GPUS, MOST_HOSTS = 256, 1024


def read_smi_topo(text: str) -> tuple[HostTopology, ...]:
    """The topology of every host that a text shows. Raises FileFormatError where it shows none.

    Peer access is that of the first; a note of the first says whether the others are alike.
    """
    found = matrices(text)
    wired = [matrix for matrix in found if not _is_peer(matrix)]
    if found and not wired:
        raise FileFormatError(f"line {found[0].line}: peer access only (topo -p2p); add what {SOURCE} prints")
    if not wired:
        raise FileFormatError(
            f"{SOURCE}: no row of a matrix (GPU0, then X, NV18, PIX, SYS ...) was found; keep the whole table"
        )
    legend, vendor = dict(_LEGEND.findall(text)), _vendor(text)
    first, *others = (_topology(matrix, legend, vendor=vendor) for matrix in wired[:MOST_HOSTS])
    notes = (*first.notes, *_notes(wired))
    return replace(first, peer_access=_peer_access(found, first), notes=notes), *others


def _vendor(text: str) -> str:
    return "mx-smi topo -m" if "MetaX" in text else SOURCE


def _is_peer(matrix: Matrix) -> bool:
    words = {word for cells in matrix.rows.values() for word in cells}
    return words <= PEER_WORDS and words != {"X"}


def _topology(matrix: Matrix, legend: dict[str, str], *, vendor: str) -> HostTopology:
    labels = list(labels_of(matrix))
    gpus = sorted((label for label in labels if re.fullmatch(r"GPU\d+", label)), key=lambda label: int(label[3:]))
    nics = [label for label in labels if not re.match(r"(GPU|CPU)\d", label)]
    if not gpus or len(gpus) > MOST_GPUS:
        raise FileFormatError(
            f"line {matrix.line}: {vendor} with {len(gpus):,} accelerators; 1 to {MOST_GPUS} are read"
        )
    return HostTopology(
        source=vendor,
        gpus=tuple(_gpu(matrix, label) for label in gpus),
        nics=tuple(_nic(label, legend) for label in nics),
        pairs=_pairs(matrix, gpus),
        nic_pairs=_nic_pairs(matrix, gpus, nics),
        notes=tuple(_gaps(matrix, gpus)),
    )


def _gpu(matrix: Matrix, label: str) -> Gpu:
    cpus, numa = _affinity(matrix.tails.get(label, []), matrix.affinities)
    return Gpu(index=int(label[3:]), cpus=cpus, numa=numa)


def _nic(label: str, legend: dict[str, str]) -> Nic:
    return Nic(name=legend.get(label, label), label=label)


def _affinity(words: list[str], columns: list[str]) -> tuple[str, int | None]:
    """CPUs and NUMA node of a row's tail. Blank cells leave no trace, so what is missing is told from the form."""
    told = dict(zip(columns, words, strict=True)) if len(words) == len(columns) else {}
    cpus = told.get("CPU") or next((word for word in words if re.search(r"\d[-,]\d", word)), "")
    rest = [word for word in words if word != cpus]
    numa = told.get("NUMA") or told.get("NODE") or (rest[0] if rest else "")
    return cpus if cpus != "N/A" else "", _numa(numa)


def _numa(word: str) -> int | None:
    first = re.match(r"\d{1,4}(?![\d])", word, re.ASCII)
    return int(first[0]) if first else None


def _pairs(matrix: Matrix, gpus: list[str]) -> dict[Pair, PairLink]:
    found = {}
    for (i, one), (j, other) in combinations(enumerate(gpus), 2):
        if word := matrix.cell(one, other):
            found[i, j] = _link(word)
    return found


def _link(word: str) -> PairLink:
    """What a cell says of two accelerators."""
    if own := _OWN_LINK.fullmatch(word):
        return PairLink(word, int(own[2]) if own[2] else None)
    return PairLink(PATHS.get(word, word), 0)


def _nic_pairs(matrix: Matrix, gpus: list[str], nics: list[str]) -> dict[Pair, str]:
    words = {(i, j): matrix.cell(gpu, nic) for i, gpu in enumerate(gpus) for j, nic in enumerate(nics)}
    return {pair: PATHS.get(word, word) for pair, word in words.items() if word}


def _gaps(matrix: Matrix, gpus: list[str]) -> list[str]:
    """What of the matrix is missing or contradicts itself."""
    notes = []
    if missing := [label for label in gpus if label not in matrix.rows]:
        notes.append(f"the row of {', '.join(missing)} is missing: read from the other rows as far as they tell")
    columns = len(matrix.devices) or len(matrix.rows)
    if short := [label for label in gpus if label in matrix.rows and len(matrix.rows[label]) < columns]:
        notes.append(f"the row of {', '.join(short[:4])} ends early")
    odd = [pair for pair in combinations(gpus, 2) if _contradicts(matrix, *pair)]
    if odd:
        one, other = odd[0]
        notes.append(f"{one} and {other} contradict each other about their link ({len(odd)} such pairs)")
    return notes


def _contradicts(matrix: Matrix, one: str, other: str) -> bool:
    there, back = matrix.cell(one, other), matrix.cell(other, one)
    return bool(there) and bool(back) and there != back


def _peer_access(found: list[Matrix], topology: HostTopology) -> dict[Pair, str]:
    """The driver's word on reads and writes between accelerators; other questions of `-p2p` are left out."""
    for matrix in filter(_is_peer, found):
        asked = re.search(r"-p2p\s+(\w+)", matrix.about)
        if asked and asked[1] in ("n", "a"):  # over NVLink only, and atomics
            continue
        labels = [f"GPU{gpu.index}" for gpu in topology.gpus]
        words = {(i, j): matrix.cell(labels[i], labels[j]) for i, j in combinations(range(len(labels)), 2)}
        return {pair: word for pair, word in words.items() if word}
    return {}


def _notes(wired: list[Matrix]) -> list[str]:
    others = wired[1:]
    if not others:
        return []
    unlike = sum(matrix.rows != wired[0].rows for matrix in others)
    return [f"{len(wired)} hosts in the file, of which the first is taken; {unlike} of the others differ from it"]
