"""Which collective a table shows and over how many ranks, from its figures; what was declared is checked against them.

nccl-tests prints busbw = factor x algbw with factor 2 (n - 1) / n for all_reduce, (n - 1) / n where each rank has a
part of all (all_gather, reduce_scatter, alltoall, gather, scatter), and 1 for broadcast, reduce and sendrecv
(NVIDIA/nccl-tests @a0b82b2, src/*.cu); in the middle group size = n x count x bytes of an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

from planner.dumps.nccl_rows import Row
from planner.dumps.records import Sample

PARTS = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")
"""Collectives of which each rank has a part."""
COLLECTIVES = ("all_reduce", *PARTS, "broadcast", "reduce", "sendrecv", "hypercube")
MOST_RANKS = 1_000_000


@dataclass(frozen=True)
class Evidence:
    """What the rows of a table say. `low` to `high` is what busbw / algbw may be, given how they are rounded."""

    scale: int | None
    low: float
    high: float
    op: str
    root: int | None
    in_place_unchecked: bool

    @property
    def informative(self) -> bool:
        """Whether any row was large enough for its ratio to mean anything."""
        return self.high - self.low < 0.2

    def allows(self, ratio: float) -> bool:
        """Whether busbw / algbw may be this."""
        return self.low - 1e-9 <= ratio <= self.high + 1e-9


def evidence_of(rows: Sequence[Row], samples: Sequence[Sample]) -> Evidence:
    """The evidence of all rows together."""
    scales = {round(row.scale or 0) for row in rows if row.scale and abs(row.scale - round(row.scale)) < 1e-6}
    bounds = [bound for sample in samples for bound in _bounds(sample)]
    low, high = _meet([pair for pair in bounds if pair[1] - pair[0] < 0.5])
    roots = {row.root for row in rows}
    return Evidence(
        scale=scales.pop() if len(scales) == 1 else None,
        low=low,
        high=high,
        op=rows[0].op if rows else "",
        root=roots.pop() if len(roots) == 1 else None,
        in_place_unchecked=bool(rows) and all(row.in_place_unchecked for row in rows),
    )


def _bounds(sample: Sample) -> list[tuple[float, float]]:
    """What the ratio may be, by each half of a row; figures are rounded to a hundredth of a GB/s or to three digits."""
    halves = ((sample.algbw, sample.busbw), (sample.in_place_algbw, sample.in_place_busbw))
    return [_bound(algbw / 1e9, busbw / 1e9) for algbw, busbw in halves if algbw and busbw]


def _bound(algbw: float, busbw: float) -> tuple[float, float]:
    off, err = (0.0051 if value < 1000 else 0.051 for value in (algbw, busbw))
    return (busbw - err) / (algbw + off), (busbw + err) / max(algbw - off, 1e-9)


def _meet(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """What all bounds allow; where they contradict each other, the middle of the tightest half."""
    if not bounds:
        return 0.0, 2.0
    low, high = max(pair[0] for pair in bounds), min(pair[1] for pair in bounds)
    if low <= high:
        return low, high
    tight = sorted(bounds, key=lambda pair: pair[1] - pair[0])[: (len(bounds) + 1) // 2]
    return min(pair[0] for pair in tight), max(pair[1] for pair in tight)


def factor(collective: str, ranks: int) -> float:
    """Ratio of busbw to algbw of a collective over `ranks` ranks.

    >>> factor("all_reduce", 8), factor("all_gather", 4), factor("broadcast", 8)
    (1.75, 0.75, 1.0)
    """
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in PARTS else 1.0


def collective_of(
    evidence: Evidence, certain: str, hints: Sequence[str], declared: int | None = None
) -> tuple[str, str]:
    """The collective and, where it is not certain, why it is taken to be that one.

    `certain` is what the tool itself said; `hints` are command lines and file names, which the figures may contradict.
    """
    if certain:
        return certain, ""
    possible = _possible(evidence, declared)
    hinted = next((hint for hint in hints if hint in possible), "")
    if hinted:
        return hinted, "" if len(possible) == 1 else f"taken for {hinted}, which the command or the file's name says"
    if not possible:
        return "", "which collective it is cannot be told"
    best, *others = possible
    return best, f"taken for {best} by its figures; {' or '.join(others)} would look the same" if others else ""


def _possible(evidence: Evidence, declared: int | None) -> tuple[str, ...]:
    """Collectives whose tables look like this, the likeliest first."""
    rooted = evidence.root is not None and evidence.root >= 0
    if evidence.scale is not None and evidence.scale > 1:
        return _parts(evidence, rooted=rooted)
    if evidence.op in ("", "none"):
        return ("broadcast",) if evidence.allows(1.0) else ()
    if rooted:
        return ("reduce",)
    if not evidence.allows(1.0):
        return ("all_reduce",)
    many = declared is not None and not evidence.allows(factor("all_reduce", declared))
    if many or evidence.in_place_unchecked:
        return ("sendrecv", "all_reduce")
    return ("all_reduce", "sendrecv")


def _parts(evidence: Evidence, *, rooted: bool) -> tuple[str, ...]:
    if evidence.op not in ("", "none"):
        return ("reduce_scatter",)
    if rooted:
        return ("gather", "scatter")
    return ("alltoall", "all_gather") if evidence.in_place_unchecked else ("all_gather", "alltoall")


def ranks_of(collective: str, evidence: Evidence, declared: int | None) -> tuple[int | None, str]:
    """The number of ranks, and what had to be said about it."""
    if collective in PARTS and evidence.scale is not None and evidence.scale > 1:
        return evidence.scale, _corrected(declared, evidence.scale, "size over count")
    if not evidence.informative or collective not in ("all_reduce", *PARTS):
        return declared, "" if declared else "how many ranks it ran on cannot be told"
    if declared and evidence.allows(factor(collective, declared)):
        return declared, ""
    if collective in PARTS and evidence.allows(1.0):
        return declared, "busbw is printed as algbw, which old versions did: do not compare it"
    return _from_ratio(collective, evidence, declared)


def _corrected(declared: int | None, found: int, by: str) -> str:
    return f"{declared} ranks were declared, {by} says {found}" if declared and declared != found else ""


def _from_ratio(collective: str, evidence: Evidence, declared: int | None) -> tuple[int | None, str]:
    """The likeliest number of ranks that busbw / algbw allows."""
    whole = 2.0 if collective == "all_reduce" else 1.0
    if evidence.high <= 0 or evidence.low >= whole:
        return declared, "busbw / algbw fits no number of ranks"
    least, most = ceil(_ranks_at(whole, evidence.low) - 1e-6), floor(_ranks_at(whole, evidence.high) + 1e-6)
    found = _likeliest(least, most)
    if found is None:
        return declared, f"busbw / algbw ({evidence.low:.3f} to {evidence.high:.3f}) fits no number of ranks"
    span = "" if least == most == found else f" (between {least} and {most if most < MOST_RANKS else 'any number'})"
    if declared:
        return found, f"{declared} ranks were declared, busbw / algbw says {found}{span}"
    return found, f"{found} ranks by busbw / algbw{span}"


def _ranks_at(whole: float, ratio: float) -> float:
    """The n of whole (n - 1) / n = ratio, held to what is possible."""
    return min(whole / max(whole - ratio, 1e-9), MOST_RANKS)


def _likeliest(least: int, most: int) -> int | None:
    """Of several numbers the power of two nearest to their middle, else a multiple of 8 or 4, else the middle one."""
    least = max(least, 2)
    if most < least:
        return None
    middle = (least * most) ** 0.5
    powers = [2**power for power in range(1, 21) if least <= 2**power <= most]
    if powers:
        return min(powers, key=lambda power: abs(log2(power / middle)))
    multiples = [-(-least // step) * step for step in (8, 4)]
    return next((number for number in multiples if number <= most), round(middle))
