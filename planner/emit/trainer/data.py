"""Token sequences: synthetic, or windows of a memory-mapped file; the same global batch under every plan."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from .settings import Refusal

TOKEN_TYPES = {"uint16": (torch.uint16, 2), "int32": (torch.int32, 4)}
STRIDE = 2_654_435_761
"""A prime that spreads consecutive samples over a file (Knuth's multiplicative hash)."""


class Tokens(Protocol):
    """Where sequences come from."""

    def sequence(self, index: int) -> Tensor:
        """Sample `index` of the run: seq_len + 1 token ids, int64."""


@dataclass(frozen=True)
class SyntheticTokens:
    """Random tokens of which every second follows from the one before, so that there is something to learn."""

    vocab_size: int
    seq_len: int
    seed: int = 0

    def sequence(self, index: int) -> Tensor:
        """Sample `index`, drawn from its number alone."""
        generator = torch.Generator().manual_seed((self.seed << 32) + index)
        tokens = torch.randint(0, self.vocab_size, (self.seq_len + 1,), generator=generator)
        followers = tokens[1::2]
        followers.copy_((tokens[0::2][: len(followers)] * 3 + 1) % self.vocab_size)
        return tokens


class FileTokens:
    """A flat binary file of token ids, read in windows of seq_len, each once before any comes twice."""

    def __init__(self, path: Path, seq_len: int, *, token_type: str, vocab_size: int) -> None:
        dtype, width = TOKEN_TYPES[token_type]
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise Refusal(f"{path}: cannot be read as tokens: {error}") from error
        count = len(mapped) // width
        self.seq_len, self.vocab_size, self.path = seq_len, vocab_size, path
        self.windows = (count - 1) // seq_len
        if self.windows < 1 or len(mapped) % width:
            needed = f"a sequence of {seq_len:,} and its last target need {seq_len + 1:,} of {width} bytes each"
            raise Refusal(f"{path}: {len(mapped):,} bytes are not whole tokens or too few: {needed}")
        self.tokens = torch.frombuffer(mapped, dtype=dtype, count=count)

    def sequence(self, index: int) -> Tensor:
        """Window `index` in a fixed shuffled order. Raises Refusal for a token outside the vocabulary."""
        window = index * STRIDE % self.windows if self.windows % STRIDE else index % self.windows
        start = window * self.seq_len
        found = self.tokens[start : start + self.seq_len + 1].to(torch.int64)
        if not 0 <= int(found.min()) <= int(found.max()) < self.vocab_size:
            raise Refusal(f"{self.path}: token {int(found.max())} is outside the vocabulary of {self.vocab_size:,}")
        return found


def batch(tokens: Tokens, *, first: int, count: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and targets of `count` samples from `first` on, at some positions: shapes (count, len(positions))."""
    sequences = torch.stack([tokens.sequence(first + i) for i in range(count)])
    return sequences[:, positions], sequences[:, positions + 1]
