"""Factor before you broadcast: most terms depend on few columns, so evaluate each distinct combination once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.quantities import Column
from planner.spec.plan import Plan


def distinct(plans: Plan, names: Sequence[str]) -> tuple[Plan, Column]:
    """The distinct combinations of some columns, and for each row the index of its combination.

    `plans` must hold columns. The other fields of the returned plans are those of the first row with the combination.

    >>> plans = Plan(tp=np.array([8, 1, 8]), pp=np.array([1, 2, 4])).columns()
    >>> combinations, index = distinct(plans, ["tp"])
    >>> combinations.tp.tolist(), index.tolist()
    ([1, 8], [1, 0, 1])
    """
    key = np.zeros(len(plans), dtype=np.int64)
    for name in names:
        values = np.asarray(getattr(plans, name), dtype=np.int64)
        key = key * (int(values.max(initial=0)) + 1) + values
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    return plans[first], index
