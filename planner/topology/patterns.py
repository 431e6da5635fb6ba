"""How the ranks of a group exchange data, as far as it decides which links they load."""

from __future__ import annotations

from enum import IntEnum


class Pattern(IntEnum):
    """Who sends to whom."""

    RING = 0
    """To the next in a ring; rings are rotated, so that a group leaves a node by all of its members' NICs."""
    CHAIN = 1
    """To the next stage of a pipeline."""
    ALL_TO_ALL = 2
    """To every other, in equal parts."""
    NEIGHBOURS = 3
    """To the next in one ring, in the order of ranks (ring attention): a group leaves a node by one member's NIC."""
