"""Which measurements tell which figures of a profile, and which were told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OF_MEASUREMENTS: Mapping[str, tuple[str, ...]] = {
    "gemm": ("gemm",),
    "kernel_overhead": ("gemm",),
    "attention": ("attention",),
    "attention_backward_efficiency": ("attention",),
    "attention_overhead": ("attention",),
    "memory_efficiency": ("copy", "triad"),
    "elementwise_scale": ("elementwise",),
    "launch_time": ("tiny_layer",),
    "overlap_penalty": ("overlap",),
}
"""Field of a profile -> measurements that tell it."""
OF_STEPS = ("compute_scale", "attention_scale", "fixed_time")
"""Fields that only whole training steps tell."""


@dataclass(frozen=True)
class Origins:
    """Figures of a profile that were measured (fields, and "link collective"), and what the measurements left open.

    All else is of the catalogue's nearest profile, whose level is `rest`.
    """

    measured: tuple[str, ...]
    untold: tuple[str, ...]
    rest: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"measured": list(self.measured), "not_told": list(self.untold), "rest": self.rest}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Origins:
        """The inverse of `as_dict`. Raises KeyError or TypeError where `data` is no such thing."""
        return cls(tuple(map(str, data["measured"])), tuple(map(str, data["not_told"])), str(data["rest"]))
