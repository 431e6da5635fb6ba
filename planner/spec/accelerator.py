"""An accelerator as its datasheet declares it; what was measured on it stands in a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.quantities import Bytes, BytesPerSecond, FlopPerSecond, Usd


@dataclass(frozen=True)
class Source:
    """Where a figure comes from. An empty `source` makes the figure provisional wherever it is shown."""

    source: str = ""
    read: str = ""
    scope: str = ""

    @property
    def provisional(self) -> bool:
        """Whether nobody can check the figure."""
        return not self.source


@dataclass(frozen=True)
class Accelerator:
    """One device (of an MI250X: one of its two dies).

    `peak` maps a precision ("bf16", "fp16", "tf32", "fp32", "fp8", "mxfp8", "nvfp4") to its dense matrix peak; on
    parts whose rate depends on the accumulator, the one with fp32 accumulation. `memory` is the nominal capacity as
    the device reports it, `usable_memory` what a framework can allocate (the context is subtracted elsewhere).
    `sources` maps a field's name to where its figure comes from.
    """

    name: str
    vendor: str
    architecture: str
    memory: Bytes
    usable_memory: Bytes
    memory_bandwidth: BytesPerSecond
    peak: Mapping[str, FlopPerSecond]
    multiprocessors: int
    pcie_bandwidth: BytesPerSecond
    """One direction, x16 slot, after encoding."""
    runs_on_host: bool = False
    """Whether kernels run on the processor that launches them, so that its time for both adds up (a CPU)."""
    power: float = 0.0
    """Board power in watts; 0 when unknown."""
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    usd_per_hour: tuple[Usd, Usd] | None = None
    """Market range (low, high) for one accelerator and hour."""
    price_date: str = ""
    notes: str = ""

    @property
    def half_peak(self) -> FlopPerSecond:
        """Dense peak in 16 bits, or in what the part has."""
        return self.peak.get("bf16") or self.peak.get("fp16") or max(self.peak.values())

    def peak_flops(self, precision: str) -> FlopPerSecond:
        """Dense peak in a precision. Raises KeyError when the part has none."""
        return self.peak[precision]
