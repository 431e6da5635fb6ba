"""What it costs to reach memory over a fabric, and to change the number of accelerators of a running job."""

from __future__ import annotations

from planner.quantities import Bytes, BytesPerSecond, Count, Seconds


def remote_bandwidth(bandwidth: BytesPerSecond, latency: Seconds, block: Bytes) -> BytesPerSecond:
    """What reads and writes of remote memory reach where each block is waited for.

    B = block / (block / bandwidth + latency)

    Source: definition (one block on its way at a time, which is the least that any software does; with several on
    their way the latency hides and B comes nearer to `bandwidth`).

    >>> round(remote_bandwidth(bandwidth=25e9, latency=2e-6, block=1e6) / 1e9, 3)
    23.81
    """
    return block / (block / bandwidth + latency)


def resharding_time(state: Bytes, bandwidth: BytesPerSecond, accelerators: Count, restart: Seconds) -> Seconds:
    """How long a job stands still when it goes on with another number of accelerators.

    t = restart + state / (accelerators bandwidth)

    `state` is weights and optimizer states, each once; `accelerators` is the smaller of both numbers, since as many
    send or receive, each at `bandwidth`. Source: definition; all of the state crosses once, which is the most that
    is needed (with shards that stay where they are less does).

    >>> resharding_time(state=96e9, bandwidth=12e9, accelerators=8, restart=60.0)
    61.0
    """
    return restart + state / (accelerators * bandwidth)
