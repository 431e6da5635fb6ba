"""Parts of nodes: which numbers of accelerators nodes can hold side by side, and the best division that they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.economics.allocation import Counts

Solve = Callable[[Sequence[Counts], int], tuple[int, ...] | None]


@dataclass(frozen=True)
class Nodes:
    """`number` nodes of `size` accelerators. A job has a part of one node, or whole nodes."""

    size: int
    number: int

    def hold(self, counts: Sequence[int]) -> bool:
        """Whether jobs with so many accelerators find room at once: parts are packed largest first, where they fit.

        >>> Nodes(size=8, number=2).hold([3, 3, 6]), Nodes(size=8, number=2).hold([6, 6, 4])
        (True, False)
        """
        if any(count > self.size and count % self.size for count in counts):
            return False
        left = [self.size] * (self.number - sum(count // self.size for count in counts))
        for part in sorted((count for count in counts if count < self.size), reverse=True):
            room = next((i for i, free in enumerate(left) if free >= part), None)
            if room is None:
                return False
            left[room] -= part
        return sum(counts) <= self.size * self.number

    def always(self, count: int) -> bool:
        """Whether jobs with such numbers pack without rest: powers of two that divide a node, and whole nodes."""
        return count % self.size == 0 or (self.size % count == 0 and count & (count - 1) == 0)


def packed(
    solve: Solve, options: Sequence[Counts], units: int, *, nodes: Nodes, kept: Sequence[int], cost: Callable[..., Any]
) -> tuple[int, ...] | None:
    """A division that nodes can hold beside what is `kept`, of least `cost` of those tried; None where none is.

    Tried are the best of all numbers and the best of those that always pack, each with as many accelerators as leave
    one that fits.
    """
    safe = [{n: value for n, value in each.items() if nodes.always(n)} for each in options]
    found = []
    for some in (options, safe):
        for number in range(units, -1, -1):
            counts = solve(some, number)
            if counts is None:
                break
            if nodes.hold([*kept, *(count for count in counts if count)]):
                found.append(counts)
                break
    return min(found, key=cost, default=None)
