"""Batch sizes and token counts as people write them, and the batch that is assumed when none is given."""

from __future__ import annotations

import re
from math import ceil, floor

from planner.errors import SpecError
from planner.spec.workload import LARGEST, LARGEST_AMOUNTS

SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}

USUAL_TOKENS = ((64, 0.5 * 2**20), (4096, 4 * 2**20))
"""Up to so many ranks, about so many tokens per step; 16 x 2**20 above."""
LARGEST_USUAL_TOKENS = 16 * 2**20

_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def read_tokens(text: str, *, where: str = "--tokens") -> float:
    """A number of tokens such as 1T, 300B, 2.5e9. Raises SpecError.

    >>> read_tokens("1.5T")
    1500000000000.0
    """
    number, unit = _split(text, "300B, 1T or 2.5e9", where)
    suffix = re.sub(r"(?i)tok(ens?)?$", "", unit)
    if suffix not in SUFFIXES:
        raise SpecError(f"unknown unit {unit!r}; known: {_known('')}", where=where)
    if not 1 <= number * SUFFIXES[suffix] <= LARGEST_AMOUNTS["tokens"]:
        raise SpecError(f"must be 1 to {LARGEST_AMOUNTS['tokens']:g} tokens, not {text:.40}", where=where)
    return number * SUFFIXES[suffix]


def read_batch_size(text: str, *, seq_len: int, world_size: int, where: str = "--global-batch-size") -> int:
    """Sequences per step from `1024` (sequences) or `4Mtok` (tokens, rounded to what plans can divide).

    Raises SpecError for an unknown unit, a fraction of a sequence, or none at all.

    >>> read_batch_size("1024", seq_len=4096, world_size=16), read_batch_size("4Mtok", seq_len=4096, world_size=16)
    (1024, 1024)
    """
    number, unit = _split(text, "1024 (sequences) or 4Mtok (tokens)", where)
    if not unit:
        if _not_too_many(number, where) % 1 or number < 1:
            raise SpecError(f"must be a whole number of sequences, at least 1, not {text}", where=where)
        return int(number)
    suffix = unit.removesuffix("tok")
    if not unit.endswith("tok") or suffix not in SUFFIXES:
        raise SpecError(f"unknown unit {unit!r}; write sequences (1024) or tokens ({_known('tok')})", where=where)
    if number <= 0:
        raise SpecError(f"must be more than no tokens, not {text}", where=where)
    sequences = _not_too_many(number * SUFFIXES[suffix] / seq_len, where)
    return divisible_batch(sequences, world_size, tolerance=0.05)


def usual_batch_size(seq_len: int, world_size: int) -> int:
    """Sequences per step when none are asked for: about 0.5M tokens up to 64 ranks, 4M up to 4,096, 16M above.

    >>> usual_batch_size(4096, 16), usual_batch_size(8192, 1024), usual_batch_size(4096, 24)
    (128, 512, 96)
    """
    tokens = next((size for ranks, size in USUAL_TOKENS if world_size <= ranks), LARGEST_USUAL_TOKENS)
    return divisible_batch(tokens / seq_len, world_size, tolerance=0.35)


def divisible_batch(target: float, world_size: int, *, tolerance: float) -> int:
    """A batch near `target` that many data-parallel degrees and micro-batches divide.

    Among the multiples of the world size (or, for a smaller target, of the world size halved as often as it takes)
    within the tolerance, the one with the most factors of two; the nearest multiple when none is within.

    >>> divisible_batch(976.56, 24, tolerance=0.05), divisible_batch(3.0, 64, tolerance=0.35)
    (960, 4)
    """
    unit = world_size
    while unit > target and unit % 2 == 0:
        unit //= 2
    ratio = target / unit
    candidates = range(ceil(ratio * (1 - tolerance)), floor(ratio * (1 + tolerance)) + 1)
    near = [n for n in candidates if n >= 1] or [max(1, round(ratio))]
    return unit * min(near, key=lambda n: (-(n & -n), abs(n - ratio)))


def _split(text: str, example: str, where: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text)
    if not match:
        raise SpecError(f"cannot read {text!r}; write it as {example}", where=where)
    return float(match.group(1)), match.group(2)


def _not_too_many(sequences: float, where: str) -> float:
    """The batch as it is. Raises SpecError where no job has so many sequences in a step."""
    most = LARGEST["global_batch_size"]
    if not sequences <= most:
        raise SpecError(f"must be at most {most:,} sequences", where=where)
    return sequences


def _known(ending: str) -> str:
    return ", ".join(suffix + ending for suffix in SUFFIXES if suffix)
