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
    "elementwise_scale": ("elementwise", "training_step"),
    "launch_time": ("tiny_layer", "training_step"),
    "overlap_penalty": ("overlap",),
    "compute_scale": ("training_step",),
    "fixed_time": ("training_step",),
    "tp_launch_time": ("training_step",),
    "pp_launch_time": ("training_step",),
    "fsdp_launch_time": ("training_step",),
    "recompute_launch_time": ("training_step",),
    "update_launch_time": ("training_step",),
    "attention_scale": (),
}
"""Field of a profile -> measurements that tell it."""


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
