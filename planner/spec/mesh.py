"""Direct links between pairs of accelerators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from planner.errors import SpecError
from planner.quantities import BytesPerSecond
from planner.spec.accelerator import Source
from planner.spec.figures import KEYS, at, check_complete, check_keys, count, read_figure, table

Pairs = Mapping[tuple[int, int], BytesPerSecond]
MOST_LINKS = 64


def read_pairs(entry: Any, gpus: int, *, where: str, origin: str = "") -> tuple[Pairs, Source]:
    """The bandwidth of each linked pair (i, j), i < j, of `gpus` accelerators, one direction, and its source.

    `entry` states one link as a figure, and under `pairs` how many links each pair has ("0-3" = 2), or "all" for one
    between every two. Raises SpecError.
    """
    entries = table(entry, where=where)
    check_keys(entries, (*KEYS, "pairs"), where=where)
    check_complete(entries, ("value", "unit", "pairs"), where=where)
    figure = {key: entries[key] for key in KEYS if key in entries}
    link = read_figure(figure, "B/s", where=where, origin=origin)
    links = _links(entries["pairs"], gpus, where=at(where, "pairs"))
    return {pair: number * link.value for pair, number in links.items()}, link.source


def pair_bandwidth(pairs: Pairs, gpu: int) -> BytesPerSecond:
    """All links of one accelerator together, one direction.

    >>> pair_bandwidth({(0, 1): 50e9, (1, 2): 25e9}, 1)
    75000000000.0
    """
    return float(sum(bandwidth for pair, bandwidth in pairs.items() if gpu in pair))


def _links(entry: Any, gpus: int, *, where: str) -> dict[tuple[int, int], int]:
    if entry == "all":
        links = dict.fromkeys(combinations(range(gpus), 2), 1)
    else:
        numbers = table(entry, where=where).items()
        links = {
            _pair(key, gpus, where=where): count(number, where=at(where, key), most=MOST_LINKS)
            for key, number in numbers
        }
    if not links:
        raise SpecError("links nothing", where=where)
    return links


def _pair(key: str, gpus: int, *, where: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,4})-(\d{1,4})", key)
    first, second = (int(found[1]), int(found[2])) if found else (0, 0)
    if not first < second < gpus:
        raise SpecError(f"{key!r} is no pair i-j with i < j < {gpus}", where=where)
    return first, second
