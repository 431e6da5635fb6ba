"""Efficiency profile: what measurement taught about an (accelerator, software stack) pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.quantities import Count, Scalar, Seconds
from planner.tables import Table

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
TWO_DOMAINS = "all_reduce_two_domains"
"""An all-reduce between two link domains over trees, kept apart: of its fit the efficiency counts alone."""
TREES = "all_reduce_trees"
"""An all-reduce over trees between more domains: of its fit efficiency and hop latency count."""
LEVELS = ("calibrated", "transferred", "datasheet")


@dataclass(frozen=True)
class CollectiveFit:
    """How one collective behaves on one kind of link, as the faster of two regimes (see `cost.collectives`).

    Bulk: start + steps x step_latency + bytes on the wire / (efficiency x link bandwidth).
    Low-latency: start + hops x hop_latency + bytes on the wire / (low_latency_share x link bandwidth). Hops of an
    all-reduce grow with the logarithm of the domains (a tree), of others with the group (a ring) like steps. 0 share
    means that the regime does not exist.
    """

    efficiency: Scalar
    start: Seconds
    step_latency: Seconds
    hop_latency: Seconds = 0.0
    low_latency_share: Scalar = 0.0
    source: str = ""


@dataclass(frozen=True)
class MatmulTiles:
    """How a library cuts matrix products where it fills multiprocessors in waves (see `cost.kernels.tile_efficiency`).

    `tiles` are output rows, output columns and a rate; a table beside it holds what share of the peak that leaves.
    """

    tiles: tuple[tuple[Count, Count, Scalar], ...]
    half_rate_depth: Count
    wave_exponent: Scalar


@dataclass(frozen=True, eq=False)
class Profile:
    """Measured efficiencies; `level` says how much was measured.

    `gemm` maps a precision to the share of its dense peak by (m, n, k), once `kernel_overhead` is taken off the time;
    where `matmul_tiles` has the precision too, of what its tiles leave of the peak.
    `attention` maps a backend to the share of the 16-bit peak that the forward kernel reaches on the FLOPs it
    computes, by (head_dim, seq_len, sequences x heads, query heads per key-value head), once `attention_overhead` is
    taken off. `grouped_matmul` is the share of a plain product's rate that a grouped one (experts) reaches, by (tokens
    per expert, intermediate size, experts, ranks that read the same tokens). Of both, a table may leave out the last
    axes. `collectives` maps (link or fabric kind, collective) to its fit; collectives are all_reduce, all_gather,
    reduce_scatter, all_to_all, send_recv, broadcast, and between domains all_reduce_two_domains and all_reduce_trees.
    """

    accelerator: str
    stack: str
    level: str
    gemm: Mapping[str, Table]
    attention: Mapping[str, Table]
    collectives: Mapping[tuple[str, str], CollectiveFit]
    compute_scale: Scalar = 1.12
    """Factor on matrix products and attention: what training adds to the kernels alone. Before any step was measured:
    parts timed alone run at clocks that a training step's power does not sustain, some 10 to 15 % faster."""
    attention_scale: Scalar = 1.0
    """Factor on attention beside compute_scale: what a stack's kernel takes over the best one that was measured."""
    attention_backward_efficiency: Scalar = 0.85
    """Backward kernel's FLOP rate over the forward's."""
    elementwise_scale: Scalar = 1.0
    """Factor on the memory traffic of norms, activations and residuals beside the stack's own."""
    memory_efficiency: Scalar = 0.82
    """Share of the datasheet memory bandwidth that a streaming kernel reaches."""
    overlap_penalty: Scalar = 0.45
    """kappa: the share of the shorter of compute and communication that overlap does not hide."""
    launch_time: Seconds = 20e-6
    """Host time to dispatch one operator: Python, autograd and the launch itself. Published runs of small models on
    Megatron-LM take 4 to 9 ms per layer and micro-batch, some 150 operators; the launch alone takes 3 to 15 us."""
    tp_launch_time: Seconds = 0.0
    """What tensor parallelism adds to the host's time for a layer's forward: dispatch of divided tensors (DTensor)."""
    pp_launch_time: Seconds = 0.0
    """What the wrapping of a pipeline stage adds to the host's time for a layer's forward."""
    fsdp_launch_time: Seconds = 0.0
    """What the hooks that gather and reduce a layer's weights add to the host's time for its forward."""
    recompute_launch_time: Seconds = 0.0
    """What full recomputation adds to the host's time for a layer's backward, beside its forward again."""
    update_launch_time: Seconds = 0.0
    """Host time of optimizer and clipping per layer and step."""
    kernel_overhead: Seconds = 2e-6
    """Fixed part of a matrix product's time on the device."""
    attention_overhead: Seconds = 8e-6
    """Fixed part of a fused attention kernel's time on the device."""
    grouped_matmul: Table | None = None
    matmul_tiles: Mapping[str, MatmulTiles] = field(default_factory=dict)
    fixed_time: Seconds = 5e-3
    """Per step: clipping, logging, synchronisation."""
    error: Scalar = 0.25
    """Standard deviation of log(measured / predicted) step time on runs that were not fitted."""
    plan_error: Scalar = 0.10
    """The part of `error` that two plans on the same hardware do not share."""
    memory_error: Scalar = 0.06
    """As `error`, of peak memory."""
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """Key of the profile, such as h100-sxm/megatron-core."""
        return f"{self.accelerator}/{self.stack}"
