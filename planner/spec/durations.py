"""The table that a simulation plays: how long each part of a step takes on each stage, and what it holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.quantities import Bytes, Scalar, Seconds

OUTSIDE = ("context", "communication_buffers")
"""Items of memory that the framework's allocator does not hand out."""


@dataclass(frozen=True)
class Segment:
    """Compute and a transfer of the axis `axis` that start together; what follows waits for both."""

    name: str
    compute: Seconds = 0.0
    transfer: Seconds = 0.0
    axis: str = ""


@dataclass(frozen=True, eq=False)
class Block:
    """A layer, the embedding or the head: its work for one micro-batch on one rank, and its bytes.

    `backward` leads to the gradients of the inputs (what is recomputed first), `weight` to those of the weights.
    """

    name: str
    forward: tuple[Segment, ...]
    backward: tuple[Segment, ...]
    weight: tuple[Segment, ...] = ()
    gather: Seconds = 0.0
    """Of the weights before each forward, on the wire."""
    gather_again: Seconds = 0.0
    """The same before each backward."""
    ahead: bool = True
    """Whether weights are gathered while blocks before this one run."""
    reduce: Seconds = 0.0
    """Of the gradients after each backward, beside what follows."""
    gather_once: Seconds = 0.0
    """Of the weights before the step's first forward."""
    reduce_once: Seconds = 0.0
    """Of the gradients after the step's last backward."""
    kept: Bytes = 0.0
    """Activations from forward to the end of backward."""
    working: Bytes = 0.0
    """What a backward holds beside them."""
    logits: Bytes = 0.0
    """Held from forward to backward."""
    gathered: Bytes = 0.0
    """Unsharded weights, from their gather to the end of the pass; to that of backward if there is no gather again."""
    reducing: Bytes = 0.0
    """Unsharded gradients, from backward until they are reduced."""
    gradients: Bytes = 0.0
    """What the first backward leaves until the step's end."""


@dataclass(frozen=True, eq=False)
class Durations:
    """A step's table: `stages` lists the blocks of each stage in the order of the data flow."""

    stages: tuple[tuple[Block, ...], ...]
    rank_of: tuple[int, ...]
    """Pipeline rank of each stage."""
    num_microbatches: int
    schedule: str
    send: Seconds = 0.0
    """One tensor from a stage to the next."""
    optimizer: tuple[Seconds, ...] = ()
    """Each rank's optimizer step, after all ranks have their gradients."""
    fixed: Seconds = 0.0
    """What else a step takes."""
    penalty: Scalar = 0.0
    """What compute and a transfer beside it take from each other (`cost.overlap.overlapped_time`)."""
    prefetch: int = 1
    """How many passes over a block ahead its weights are gathered."""
    overlap_gradients: bool = True
    """Whether a block's `reduce_once` starts as soon as its gradients are there, or after the last backward."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Link that an axis uses (tp, cp, ep, pp, dp, head), by name; a rank's transfers share one of one name evenly."""
    state: Mapping[str, tuple[Bytes, ...]] = field(default_factory=dict)
    """What each rank has in memory all along, by item. Of `reserve`: for gradients that the first backward leaves."""
    optimizer_bytes: tuple[Bytes, ...] = ()
    """What each rank's optimizer step takes beside."""
    allocator_slack: Scalar = 1.0
    """Reserved over allocated memory; the allocator hands out all items but those of OUTSIDE."""

    @property
    def num_ranks(self) -> int:
        """Pipeline ranks."""
        return max(self.rank_of) + 1
