"""A record whose fields are scalars or equal-length columns: one plan and a million plans are the same type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import Field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np


class Rows:
    """Base of frozen dataclasses that hold scalars (one row) or columns (many rows, scalars shared by all).

    Fields that are themselves `Rows` are indexed with the rest; strings, tuples and None are shared by all rows.
    Subclasses are declared `@dataclass(frozen=True, eq=False)`, so that records compare by identity.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def _items(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.__dataclass_fields__)

    @property
    def is_scalar(self) -> bool:
        """Whether this is one row, without a length."""
        return not any(_is_column(value) for _, value in self._items())

    def __len__(self) -> int:
        """Number of rows; 1 for a scalar record."""
        return next((len(value) for _, value in self._items() if _is_column(value)), 1)

    def __getitem__(self, index: Any) -> Self:
        """Row (int), rows (slice, mask or index array) of every column."""
        if isinstance(index, np.ndarray) and index.dtype != bool:
            return self._map(lambda column: column.take(index))
        return self._map(lambda column: column[index])

    def __iter__(self) -> Iterator[Self]:
        """Row by row."""
        return (self[i] for i in range(len(self)))

    def columns(self) -> Self:
        """The same record with every number spread to a full column."""
        return self._spread(len(self))

    def _spread(self, length: int) -> Self:
        spread = {k: _spread_value(v, length) for k, v in self._items()}
        return replace(self, **spread)

    def _map(self, function: Any) -> Self:
        changed = {k: _apply(v, function) for k, v in self._items() if _is_column(v)}
        return replace(self, **changed)

    def as_dict(self) -> dict[str, Any]:
        """Field name -> value, in declaration order; nested records become nested dicts."""
        return {k: v.as_dict() if isinstance(v, Rows) else v for k, v in self._items()}


def _is_column(value: Any) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or (isinstance(value, Rows) and not value.is_scalar)


def _apply(value: Any, function: Any) -> Any:
    return value._map(function) if isinstance(value, Rows) else function(value)


def _spread_value(value: Any, length: int) -> Any:
    if isinstance(value, Rows):
        return value._spread(length)
    return np.full(length, value) if isinstance(value, int | float | np.generic) else value


R = TypeVar("R", bound=Rows)


def concatenate(parts: Sequence[R]) -> R:
    """One record from many of the same type, in order; every number becomes a column."""
    full = [part.columns() for part in parts]
    joined = {k: _joined([getattr(part, k) for part in full]) for k, v in full[0]._items() if _is_column(v)}
    return replace(full[0], **joined)


def _joined(values: Sequence[Any]) -> Any:
    return concatenate(values) if isinstance(values[0], Rows) else np.concatenate(values)
