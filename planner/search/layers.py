"""How many layers the first and the last pipeline rank hold."""

from __future__ import annotations

import numpy as np

from planner.quantities import Column
from planner.spec.plan import Int


def dealt_evenly(num_layers: int, pp: Int, virtual_stages: Int) -> bool | Column:
    """Whether pp x virtual_stages chunks come out equal, with embedding and head counted as no layer or as one each.

    Where they count as one each, the first and the last chunk hold a layer less, and must keep one.

    >>> dealt_evenly(80, 4, 5), dealt_evenly(126, 16, 2), dealt_evenly(80, 4, 3)
    (True, True, False)
    """
    chunks = pp * virtual_stages
    return (num_layers % chunks == 0) | (((num_layers + 2) % chunks == 0) & (num_layers + 2 > chunks))


def end_layers(num_layers: int, pp: Int) -> tuple[Column, Column]:
    """Layers of the first and the last rank, (0, 0) where all ranks hold as many.

    Layers that are left over go to the ranks between the ends, since the first also holds the embedding and the most
    activations, and the last computes the head; only if all but one rank get one, the first does too. This is the
    split of `dealt_evenly` as well.

    >>> [part.tolist() for part in end_layers(126, np.array([1, 2, 4, 16]))]
    [[0, 0, 31, 7], [0, 0, 31, 7]]
    >>> [part.tolist() for part in end_layers(61, np.array([2, 3, 4, 8, 16]))]
    [[31, 20, 15, 7, 3], [30, 20, 15, 7, 3]]
    """
    share, left_over = np.divmod(num_layers, pp)
    last = np.where(left_over > 0, share, 0)
    first = np.where(left_over == pp - 1, last + (left_over > 0), last)
    return first, last


def balanced_ends(num_layers: int, pp: Int, head_layers: float) -> tuple[Column, Column]:
    """Layers of the first and the last rank where the head counts as so many layers, which the last holds less of.

    Of the splits whose longest rank is shortest the one with most layers on the last, since early ranks hold more
    micro-batches; the first has as few as any before the last. All ranks have at least one.

    >>> [part.tolist() for part in balanced_ends(32, np.array([2, 4, 8]), 2.4)]
    [[17, 8, 4], [15, 6, 2]]
    >>> [part.tolist() for part in balanced_ends(80, np.array([1, 4]), 0.3)]
    [[0, 20], [0, 20]]
    """
    pp = np.asarray(pp)
    others = np.maximum(pp - 1, 1)

    def slowest(last: Column) -> Column:
        return np.maximum(-(-(num_layers - last) // others), last + head_layers)

    low = np.clip(np.floor((num_layers + head_layers) / pp - head_layers).astype(int), 1, num_layers)
    last = np.where(slowest(low + 1) <= slowest(low), low + 1, low)
    return np.where(pp > 1, (num_layers - last) // others, 0), np.where(pp > 1, last, 0)
