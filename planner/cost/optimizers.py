"""Optimizers: the states they hold per parameter, and what a step of them moves and computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from planner.quantities import Bytes, BytesPerSecond, Count, Scalar, Seconds

BYTE: Bytes = 1.0
SINGLE: Bytes = 4.0
STATE_ELEMENTS: Mapping[str, Bytes] = {"mixed": 4.0, "16bit": 2.0}
"""Size of a full-precision state by the precision of the training state: states follow the (master) weights."""
QUANTIZATION_BLOCK: Count = 256.0
"""Values that share a scale in 8-bit states. Source: bitsandbytes, optimizers' blocksize."""
TYPICAL_WIDTH: Count = 4096.0
"""Rows and columns of the matrices for which a factored second moment is counted."""
MATRIX_SHARE = 0.9
"""Share of a language model's parameters in matrices outside embedding and head (Llama-3.1-8B 0.87, 70B 0.97)."""


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps beside a parameter: full-size `moments`, in 8 bits or not, or factored ones.

    `matrix_moments` are those of matrices outside embedding and head, where they differ. `paged` states may rest in
    host memory.
    """

    moments: Count
    matrix_moments: Count | None = None
    eight_bit: bool = False
    factored: bool = False
    paged: bool = False
    source: str = ""


OPTIMIZERS: Mapping[str, Optimizer] = {
    "adamw": Optimizer(2.0, source="Loshchilov and Hutter 2019 (arXiv 1711.05101): two moments"),
    "adamw-8bit": Optimizer(2.0, eight_bit=True, source="Dettmers et al. 2022 (arXiv 2110.02861): block-wise 8 bits"),
    "adamw-8bit-paged": Optimizer(
        2.0,
        eight_bit=True,
        paged=True,
        source="as adamw-8bit, in unified memory: Dettmers et al. 2023 (arXiv 2305.14314)",
    ),
    "sgd": Optimizer(0.0, source="no state"),
    "sgd-momentum": Optimizer(1.0, source="one velocity"),
    "lion": Optimizer(1.0, source="Chen et al. 2023 (arXiv 2302.06675): one moment"),
    "adafactor": Optimizer(
        0.0, factored=True, source="Shazeer and Stern 2018 (arXiv 1804.04235): row and column means, no first moment"
    ),
    "muon": Optimizer(
        2.0, matrix_moments=1.0, source="Jordan et al. 2024 (KellerJordan/Muon): momentum for matrices, AdamW elsewhere"
    ),
}
"""Name as a workload has it -> what it keeps."""


@cache
def state_bytes(optimizer: str, state: str) -> Bytes:
    """Bytes of optimizer states per parameter, without a master copy of the weights.

    b = m e;  8 bits: m (1 + 4 / B);  factored: e (1 / rows + 1 / columns);  Muon: the mean of matrices and the rest

    Source: OPTIMIZERS, each with its own. `optimizer` is a key of it, `state` "mixed" (fp32 states) or "16bit". Raises
    KeyError for another.

    >>> state_bytes("adamw", "mixed"), state_bytes("adamw", "16bit"), state_bytes("sgd", "mixed")
    (8.0, 4.0, 0.0)
    >>> state_bytes("adamw-8bit", "mixed")
    2.03125
    """
    kind, element = OPTIMIZERS[optimizer], STATE_ELEMENTS[state]
    if kind.factored:
        return factored_moment_bytes(TYPICAL_WIDTH, TYPICAL_WIDTH, element_bytes=element)
    if kind.eight_bit:
        return quantized_moment_bytes(kind.moments)
    matrices = kind.moments if kind.matrix_moments is None else kind.matrix_moments
    return mean_state_bytes(moment_bytes(matrices, element), moment_bytes(kind.moments, element))


@cache
def relative_traffic(optimizer: str, state: str) -> Scalar:
    """Memory traffic of a step over that of AdamW with fp32 states, everything else (gradients, weights) alike.

    r = M(optimizer, state) / M(adamw, mixed)    with M as `step_traffic`

    Multiplies what a stack's AdamW moves, so that its way of looping over tensors carries over. Source: operands of
    each optimizer (OPTIMIZERS).

    >>> relative_traffic("adamw", "mixed"), round(relative_traffic("sgd", "mixed"), 2)
    (1.0, 0.43)
    """
    usual = _step_traffic_of("adamw", "mixed")
    return _step_traffic_of(optimizer, state) / usual


def _step_traffic_of(optimizer: str, state: str) -> Bytes:
    element = STATE_ELEMENTS[state]
    return step_traffic(element, element, 0.0, state_bytes(optimizer, state))


def moment_bytes(moments: Count, element_bytes: Bytes) -> Bytes:
    """States as large as the parameter.

    b = m e

    Source: as the optimizer's record in OPTIMIZERS.

    >>> moment_bytes(2, 4.0)
    8.0
    """
    return moments * element_bytes


def quantized_moment_bytes(
    moments: Count, block: Count = QUANTIZATION_BLOCK, *, byte: Bytes = BYTE, scale_bytes: Bytes = SINGLE
) -> Bytes:
    """8-bit states with one scale per block of each.

    b = m (1 + s / B)

    Source: Dettmers et al. 2022 (arXiv 2110.02861), section 2; scales are fp32. Small tensors stay in 32 bits and are
    left out here.

    >>> quantized_moment_bytes(2, 256)
    2.03125
    """
    return moments * (byte + scale_bytes / block)


def factored_moment_bytes(rows: Count, columns: Count, *, element_bytes: Bytes = SINGLE) -> Bytes:
    """A second moment kept as the means of its rows and of its columns, per parameter of the matrix.

    b = e (1 / rows + 1 / columns)

    Source: Shazeer and Stern 2018 (arXiv 1804.04235), section 3.

    >>> factored_moment_bytes(4096, 4096)
    0.001953125
    """
    return element_bytes * (1 / rows + 1 / columns)


def mean_state_bytes(matrix_bytes: Bytes, other_bytes: Bytes, *, matrix_share: Scalar = MATRIX_SHARE) -> Bytes:
    """States per parameter where matrices outside embedding and head keep others than the rest.

    b = u b_matrix + (1 - u) b_other

    Source: definition; `matrix_share` is the share u of parameters in those matrices.

    >>> round(mean_state_bytes(4.0, 8.0, matrix_share=0.9), 2)
    4.4
    """
    return other_bytes + matrix_share * (matrix_bytes - other_bytes)


def step_traffic(weight_bytes: Bytes, gradient_bytes: Bytes, master_bytes: Bytes, state_bytes: Bytes) -> Bytes:
    """Memory traffic of a fused optimizer step per parameter: gradients read, the rest read and written.

    M = g + 2 s + 2 m + w    with a master copy m (weights are only written);  g + 2 s + 2 w  without

    Source: its operands. Loops over tensors move more (foreach about 1.4 times, one tensor at a time about 2).

    >>> step_traffic(2.0, 4.0, 4.0, 8.0), step_traffic(4.0, 4.0, 0.0, 8.0)
    (30.0, 28.0)
    """
    without_master = master_bytes == 0
    return gradient_bytes + 2 * (state_bytes + master_bytes) + weight_bytes * (1 + without_master)


def optimizer_step_time(parameters: Count, bytes_per_parameter: Bytes, memory_bandwidth: BytesPerSecond) -> Seconds:
    """Time of an optimizer step over the parameters that a rank updates.

    t = P M / W

    Source: memory-bound, a few FLOPs per byte; M as `step_traffic`.

    >>> optimizer_step_time(1e9, 30.0, 1.5e12)
    0.02
    """
    return parameters * bytes_per_parameter / memory_bandwidth


def host_step_time(
    parameters: Count, bytes_per_parameter: Bytes, host_bandwidth: BytesPerSecond, *, ranks: Count = 1
) -> Seconds:
    """Time of an optimizer step on the host for all ranks of a node, each with its own parameters.

    t = n P M / W_host

    Source: memory-bound where the step is vectorised and threaded (Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840).
    `host_bandwidth` is what one node's memory sustains.

    >>> host_step_time(1e9, 30.0, 300e9, ranks=8)
    0.8
    """
    return ranks * parameters * bytes_per_parameter / host_bandwidth


def offload_time(
    parameters: Count,
    gradient_bytes: Bytes,
    weight_bytes: Bytes,
    *,
    bandwidth: BytesPerSecond,
    efficiency: Scalar,
) -> Seconds:
    """Time to bring gradients to the host and updated weights back.

    t = P (g + w) / (W e)

    One after the other: the step lies between. `bandwidth` is the rank's share of the way to the host, one direction.
    Source: Ren et al. 2021 (ZeRO-Offload, arXiv 2101.06840), section 4: 2 + 2 bytes per parameter in 16 bits.

    >>> round(offload_time(1e9, 2.0, 2.0, bandwidth=31.5e9, efficiency=0.8), 3)
    0.159
    """
    return parameters * (gradient_bytes + weight_bytes) / (bandwidth * efficiency)
