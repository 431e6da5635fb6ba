"""From how many tokens per GPU and step a network makes more nodes worth it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from planner.answer.ranked_plan import RankedPlan

PlanOf = Callable[[int, int], RankedPlan | None]
"""The best plan on so many GPUs with a batch of so many sequences."""


@dataclass(frozen=True)
class Crossover:
    """Twice as many GPUs against the reference, both with the same batch.

    `tokens` per GPU of the larger size and step is the smallest batch that the larger size is faster with; `below` the
    largest tried with which it is not (0: it is with every one). `tokens` is None where it is with none up to `most`.
    """

    gpus: int
    reference_gpus: int
    tokens: int | None
    below: int
    most: int

    def words(self, network: str) -> str:
        """What was found, in words."""
        pair = f"{self.gpus:,} GPUs"
        other = f"{self.reference_gpus:,} of them"
        if self.tokens is None:
            return f"{pair} on {network} lose to {other} at every batch up to {self.most:,} tokens per GPU and step"
        if not self.below:
            return f"{pair} on {network} beat {other} at any batch, from {self.tokens:,} tokens per GPU and step on"
        return f"below {self.tokens:,} tokens per GPU and step {pair} on {network} lose to {other}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "gpus": self.gpus,
            "reference_gpus": self.reference_gpus,
            "faster_from_tokens_per_gpu": self.tokens,
            "not_faster_at_tokens_per_gpu": self.below or None,
            "most_tokens_per_gpu": self.most,
        }


def crossover(plan: PlanOf, reference: RankedPlan, most: int) -> Crossover | None:
    """The batch from which twice the reference's GPUs are faster, up to `most` sequences; None where they fit nowhere.

    Found by bisection: over powers of two, then over multiples of the larger size, so that the batch divides evenly.
    """
    asked = reference.question
    fewer, gpus = asked.cluster.world_size, 2 * asked.cluster.world_size
    seq_len = asked.workload.seq_len

    def faster(batch: int) -> bool:
        one, two = plan(fewer, batch), plan(gpus, batch)
        return two is not None and (one is None or two.step_time < one.step_time)

    powers = [2**i for i in range(most.bit_length())]
    if plan(gpus, powers[-1]) is None:
        return None
    at = 0 if faster(powers[0]) else 1 + _first(powers[1:], faster)
    if at == len(powers):
        return Crossover(gpus, fewer, None, _tokens(powers[-1], seq_len, gpus), _tokens(powers[-1], seq_len, gpus))
    between = [powers[at - 1], *range(2 * gpus, powers[at], gpus), powers[at]] if at else powers[:1]
    between = [size for size in between if size >= between[0]]
    found = 1 + _first(between[1:-1], faster) if at else 0
    below = _tokens(between[found - 1], seq_len, gpus) if at else 0
    return Crossover(gpus, fewer, _tokens(between[found], seq_len, gpus), below, _tokens(powers[-1], seq_len, gpus))


def _first(sizes: list[int], holds: Callable[[int], bool]) -> int:
    """Index of the first size for which something holds that holds for all larger ones; their number if for none."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if holds(sizes[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _tokens(batch: int, seq_len: int, gpus: int) -> int:
    """Tokens per GPU of a batch of sequences."""
    return ceil(batch * seq_len / gpus)
