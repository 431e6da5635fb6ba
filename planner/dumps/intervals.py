"""Stretches of time that do not overlap: their union, and what of them lies inside a window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.quantities import Column, Seconds


@dataclass(frozen=True, eq=False)
class Intervals:
    """Disjoint stretches in order: a column of starts and one of ends."""

    starts: Column
    ends: Column

    @classmethod
    def of(cls, spans: Sequence[tuple[Seconds, Seconds]]) -> Intervals:
        """The union of stretches that may overlap.

        >>> Intervals.of([(0, 2), (1, 3), (5, 6)]).total
        4.0
        """
        if not spans:
            return cls(np.zeros(0), np.zeros(0))
        pairs = np.array(sorted(spans), dtype=float)
        reach = np.maximum.accumulate(pairs[:, 1])
        first = np.concatenate([[True], pairs[1:, 0] > reach[:-1]])
        last = np.concatenate([first[1:], [True]])
        return cls(pairs[first, 0], reach[last])

    @classmethod
    def joined(cls, several: Iterable[Intervals]) -> Intervals:
        """The union of several."""
        return cls.of([pair for each in several for pair in zip(each.starts.tolist(), each.ends.tolist(), strict=True)])

    @property
    def total(self) -> Seconds:
        """All together."""
        return float((self.ends - self.starts).sum())

    def between(self, start: Seconds, end: Seconds) -> Intervals:
        """What of them lies in a window."""
        inside = (self.ends > start) & (self.starts < end)
        return Intervals(np.clip(self.starts[inside], start, end), np.clip(self.ends[inside], start, end))
