"""Factor before you broadcast: most terms depend on few columns, so evaluate each distinct combination once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from planner.quantities import Column, Number
from planner.rows import Rows

R = TypeVar("R", bound=Rows)
LARGEST_KEY = 1 << 62


@dataclass(frozen=True)
class Distinct:
    """The distinct combinations of some columns of n rows.

    `first` holds one row for each combination, `index` for each row its combination.
    """

    first: Column
    index: Column

    def of(self, record: R) -> R:
        """One row of a record for each combination."""
        return record[self.first]

    def spread(self, values: Column) -> Column:
        """Values of each combination (on the last axis) back to all rows."""
        return np.take(values, self.index, axis=-1)

    def stack(self, records: Sequence[object], field: str) -> Column:
        """One field of several records (scalars or one value a combination), shape (records, rows)."""
        return self.stacked([getattr(record, field) for record in records])

    def stacked(self, each: Sequence[Number]) -> Column:
        """Scalars or columns of one value a combination, shape (number of them, rows)."""
        values = np.empty((len(each), len(self.first)))
        for row, value in zip(values, each, strict=True):
            row[:] = value
        return self.spread(values)


def distinct(columns: Sequence[Column]) -> Distinct:
    """Distinct combinations of columns of whole numbers.

    >>> found = distinct([np.array([8, 1, 8]), np.array([0, 2, 0])])
    >>> found.first.tolist(), found.index.tolist()
    ([1, 0], [1, 0, 1])
    """
    combinations, index = np.unique(_packed(columns), return_inverse=True)
    first = np.empty(len(combinations), dtype=np.int64)
    first[index[::-1]] = np.arange(len(index) - 1, -1, -1)
    return Distinct(first, index)


def _packed(columns: Sequence[Column]) -> Column:
    """One integer per row, equal exactly where all columns are: sorting integers is far cheaper than sorting rows."""
    key, room = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        if room * span > LARGEST_KEY:
            key = np.unique(key, return_inverse=True)[1]
            room = int(key.max(initial=0)) + 1
        key, room = key * span + (column - low), room * span
    return key
