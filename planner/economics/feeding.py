"""What data a run takes in, and who has to carry it."""

from __future__ import annotations

import numpy as np

from planner.quantities import Bytes, BytesPerSecond, Count, PerSecond


def read_rate(samples_per_s: PerSecond, sample_bytes: Bytes, copies: Count = 1) -> BytesPerSecond:
    """What storage has to give while a run trains.

    W = samples_per_s bytes copies

    `copies` is how many ranks read the same sample: 1 where one does and passes it on, tp x pp x cp where each does.
    Source: definition.

    >>> read_rate(samples_per_s=100.0, sample_bytes=8192.0, copies=2)
    1638400.0
    """
    return samples_per_s * sample_bytes * copies


def loader_workers(samples_per_s: PerSecond, worker_samples_per_s: PerSecond) -> Count:
    """Processes that prepare samples as fast as they are trained on.

    n = ceil(samples_per_s / worker_samples_per_s)

    Source: definition; for workers that wait neither for each other nor for storage.

    >>> float(loader_workers(samples_per_s=100.0, worker_samples_per_s=48.0))
    3.0
    """
    return np.ceil(samples_per_s / worker_samples_per_s)


def staged_bytes(stored: Bytes, sent: Bytes) -> Bytes:
    """Host memory traffic of bringing one sample to an accelerator.

    M = 2 stored + 4 sent

    What is stored is written to memory and read; what is sent (ids and labels, pixels) is written, copied to pinned
    memory (read, written) and fetched. Source: operands of torch's DataLoader with pinned memory. Without decoding.

    >>> staged_bytes(stored=4.0, sent=16.0)
    72.0
    """
    return 2 * stored + 4 * sent
