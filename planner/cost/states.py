"""Training state per rank: weights, gradients, optimizer states and what sharding leaves of them."""

from __future__ import annotations

from planner.quantities import Bytes, Count, Scalar


def held_bytes(parameters: Count, bytes_per_parameter: Bytes, group: Count = 1) -> Bytes:
    """State that a rank holds of parameters divided among a group.

    M = P x b / n

    Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5. Exact up to padding of each tensor.

    >>> held_bytes(8e9, 16.0, group=8)
    16000000000.0
    """
    return parameters * bytes_per_parameter / group


def mixed_precision_bytes(
    weight_bytes: Bytes, gradient_bytes: Bytes, master_bytes: Bytes, state_bytes: Bytes, *, group: Count = 1
) -> Bytes:
    """Bytes per parameter when optimizer states are divided among a group (ZeRO-1; group 1: plain DDP).

    b = w + g + (m + s) / n

    Source: Megatron-LM docs/user-guide/features/dist_optimizer.md (6 + 12/n); Rajbhandari et al. 2020 (4 + 12/n).

    >>> mixed_precision_bytes(2.0, 4.0, 4.0, 8.0, group=4)
    9.0
    >>> mixed_precision_bytes(4.0, 4.0, 0.0, 8.0)
    16.0
    """
    return weight_bytes + gradient_bytes + (master_bytes + state_bytes) / group


def gathered_bytes(
    layer_parameters: Count, root_parameters: Count, *, weight_bytes: Bytes, layers_gathered: Scalar = 2.0
) -> Bytes:
    """Unsharded weights that ZeRO-3 holds while it computes: the current and the prefetched layer, and the root unit.

    M = w (u P_layer + P_root)

    Source: torch FSDP2 keeps the root unit (embedding, head) gathered and prefetches one layer; seen in
    FSDPMemTracker's breakdown of Llama-3-8B (unsharded parameters + all-gather output).

    >>> gathered_bytes(218e6, 1051e6, weight_bytes=2.0) / 1e9
    2.974
    """
    return weight_bytes * (layers_gathered * layer_parameters + root_parameters)


def reduction_bytes(parameters: Count, *, gradient_bytes: Bytes, reduce_bytes: Bytes, buffers: Scalar = 2.0) -> Bytes:
    """Unsharded gradients of a unit and the inputs of its reduce-scatter: one being filled, one in flight.

    M = P (g + u r)

    Source: as `gathered_bytes`; the root unit has one buffer (nothing follows it).

    >>> reduction_bytes(1051e6, gradient_bytes=2.0, reduce_bytes=4.0, buffers=1.0) / 1e9
    6.306
    """
    return parameters * (gradient_bytes + buffers * reduce_bytes)


def adapter_parameters(inputs: Count, outputs: Count, rank: Count) -> Count:
    """Trainable parameters of a low-rank adapter beside one weight matrix.

    N = r (i + o)

    Source: Hu et al. 2021 (LoRA, arXiv 2106.09685), section 4.1.

    >>> adapter_parameters(4096, 4096, 16)
    131072
    """
    return rank * (inputs + outputs)


def quantized_bytes(block: Count = 64.0, double_block: Count = 256.0, *, byte: Bytes = 1.0) -> Bytes:
    """Bytes per parameter of a 4-bit weight with double-quantized scales.

    b = 1/2 + 1/B + 4 / (B D)

    Source: Dettmers et al. 2023 (QLoRA, arXiv 2305.14314), section 3: one 8-bit scale per block of B weights, one
    fp32 scale per D of those.

    >>> round(quantized_bytes() * 8, 3)
    4.127
    """
    return byte * (0.5 + 1 / block + 4 / (block * double_block))
