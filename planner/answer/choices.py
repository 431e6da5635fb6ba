"""What a user can choose of a question; imports nothing, so that the command line can name it at once."""

from __future__ import annotations

from dataclasses import dataclass

OBJECTIVES = ("throughput", "usd", "memory")
OFFLOADS = ("none", "optimizer", "all")


@dataclass(frozen=True)
class Choices:
    """What the user chose, as text where people write text; None is left to the planner."""

    network: str | None = None
    seq_len: int | None = None
    global_batch_size: str | int | None = None
    precision: str | None = None
    state: str | None = None
    optimizer: str | None = None
    method: str | None = None
    lora_rank: int | None = None
    attention: str | None = None
    offload: str | None = None
    tokens: str | float | None = None
    usd_per_gpu_hour: float | None = None
    target: str | None = None
    stack: str | None = None
    profile: str | None = None
    objective: str | None = None
    fix: str | None = None
