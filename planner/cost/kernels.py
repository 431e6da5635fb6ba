"""Device time of one kernel, from its FLOPs, its memory traffic and measured efficiencies.

Bandwidths here are effective ones: the datasheet's times the share that a streaming kernel reaches. Element sizes
stand for the storage format (2 bytes in 16 bits).
"""

from __future__ import annotations

import numpy as np

from planner.cost.flops import matmul_flops
from planner.quantities import Bytes, BytesPerSecond, Count, Flop, FlopPerSecond, Scalar, Seconds

ELEMENT: Bytes = 2.0
MASK: Bytes = 1.0
UNFUSED_FORWARD_BYTES: Bytes = 13.0
"""Memory traffic per attention score, forward: write, mask and softmax, dropout, read for the product with values."""
UNFUSED_BACKWARD_BYTES: Bytes = 19.0
UNFUSED_SHARE = 0.75
"""Rate of the batched products of unfused attention over that of a large matrix product.

These three: chosen for the unfused runs of Narayanan et al. 2021 and Korthikanti et al. 2022, which they reproduce
within 2 %; no kernel measurement stands behind each alone.
"""
UNALIGNED_SHARE = 0.07
"""Rate that batched products keep where the head size fits no tensor core; see `aligned_share`."""
ELEMENTWISE_BACKWARD = 1.5
"""Memory traffic of an element-wise operator's backward over its forward: it reads the input again."""

TILES = ((128.0, 256.0, 1.0), (256.0, 128.0, 1.0), (128.0, 128.0, 0.92), (64.0, 128.0, 0.75))
"""Output tiles (rows, columns) that matrix libraries choose from, with their rate over that of the largest."""
HALF_RATE_DEPTH: Count = 150.0
"""Inner dimension at which filling and draining the pipeline of a tile costs half of the rate."""
WAVE_EXPONENT = 0.4
"""How much of an idle last wave is lost: 1 all of it, 0 none (stream-k and split-k kernels fill it in part)."""


def matmul_time(
    m: Count,
    n: Count,
    k: Count,
    *,
    peak: FlopPerSecond,
    efficiency: Scalar,
    memory_bandwidth: BytesPerSecond,
    element_bytes: Bytes = ELEMENT,
    overhead: Seconds = 0.0,
) -> Seconds:
    """One matrix product C[m, n] = A[m, k] B[k, n]: the slower of compute and memory, and the kernel's fixed part.

    t = max(2 m n k / (P e), (m k + k n + m n) b / W) + t0

    Source: roofline (Williams et al. 2009). Each operand is read once: holds where a tile row fits the cache.

    >>> fast = dict(peak=989e12, efficiency=0.75, memory_bandwidth=2.7e12)
    >>> round(float(matmul_time(8192, 8192, 8192, **fast)) * 1e3, 2)  # milliseconds
    1.48
    """
    moved = (m * k + k * n + m * n) * element_bytes
    return np.maximum(matmul_flops(m, n, k) / (peak * efficiency), moved / memory_bandwidth) + overhead


def tile_efficiency(
    m: Count,
    n: Count,
    k: Count,
    *,
    rows: Count,
    columns: Count,
    multiprocessors: Count,
    half_rate_depth: Count = HALF_RATE_DEPTH,
    wave_exponent: Scalar = WAVE_EXPONENT,
) -> Scalar:
    """Rate of a matrix product over that of a very large one, where it is cut into output tiles of one size.

    e = (m n / (tiles rows columns)) (tiles / (waves multiprocessors))^exponent k / (k + depth)

    ceil(m / rows) ceil(n / columns) tiles run in ceil(tiles / multiprocessors) waves. In (0, 1]; multiply by the tile's
    own rate. Source: wave quantisation as in Anthony et al. 2024 (arXiv 2401.14489); depth and exponent fitted to the
    measured products of A100, H100 and B200 (kernels/*.json of the catalogue).

    >>> wave = dict(rows=128, columns=256, multiprocessors=108, wave_exponent=1.0)  # A100
    >>> [round(float(tile_efficiency(6144, n, 4096, **wave)), 2) for n in (1024, 768, 512)]
    [0.86, 0.64, 0.86]
    """
    blocks = np.ceil(m / rows) * np.ceil(n / columns)
    waves = np.ceil(blocks / multiprocessors)
    filled = (m * n / (blocks * rows * columns)) * np.power(blocks / (waves * multiprocessors), wave_exponent)
    return filled * k / (k + half_rate_depth)


def matmul_efficiency(
    m: Count,
    n: Count,
    k: Count,
    *,
    multiprocessors: Count,
    half_rate_depth: Count = HALF_RATE_DEPTH,
    wave_exponent: Scalar = WAVE_EXPONENT,
) -> Scalar:
    """Rate of a matrix product over that of a very large one, where no measured table exists.

    e = max over tiles of  r e_tile(m, n, k)

    r is the rate of a tile over the largest's, e_tile as in `tile_efficiency`. In (0, 1]; multiply by the share of peak
    that the part reaches at its best shape. Source: tiles that matrix libraries choose from.

    >>> round(float(matmul_efficiency(8192, 8192, 8192, multiprocessors=132)), 2)
    0.97
    >>> round(float(matmul_efficiency(256, 512, 8192, multiprocessors=132)), 2)  # too few tiles to go round
    0.32
    """
    best: Scalar = 0.0
    for rows, columns, rate in TILES:
        one = tile_efficiency(
            m, n, k,
            rows=rows,
            columns=columns,
            multiprocessors=multiprocessors,
            half_rate_depth=half_rate_depth,
            wave_exponent=wave_exponent,
        )  # fmt: skip
        best = np.maximum(best, rate * one)
    return best


def grouped_matmul_time(
    rows: Count,
    n: Count,
    k: Count,
    groups: Count,
    *,
    peak: FlopPerSecond,
    efficiency: Scalar,
    share: Scalar,
    memory_bandwidth: BytesPerSecond,
    element_bytes: Bytes = ELEMENT,
    overhead: Seconds = 0.0,
) -> Seconds:
    """Products of `groups` experts with their own weights in one kernel; `rows` tokens over all of them.

    t = max(2 m n k / (P e), (m k + g k n + m n) b / W) / u + t0

    `efficiency` is that of one plain product of all the rows, `share` the part of its rate that grouping leaves.
    Source: roofline with g weight matrices; the form in which the catalogue's grouped tables were fitted.

    >>> hopper = dict(peak=989e12, efficiency=0.75, share=0.6, memory_bandwidth=2.7e12)
    >>> round(float(grouped_matmul_time(8192, 4096, 4096, 8, **hopper)) * 1e3, 3)  # milliseconds
    0.618
    """
    moved = (rows * k + groups * k * n + rows * n) * element_bytes
    bound = np.maximum(matmul_flops(rows, n, k) / (peak * efficiency), moved / memory_bandwidth)
    return bound / share + overhead


def attention_time(
    flops: Flop,
    traffic: Bytes,
    *,
    peak: FlopPerSecond,
    efficiency: Scalar,
    memory_bandwidth: BytesPerSecond,
    overhead: Seconds = 0.0,
) -> Seconds:
    """Fused attention: the slower of compute and memory, and the kernel's fixed part.

    t = max(F / (P e), M / W) + t0

    F counts what the kernel computes (the masked part skipped); M is queries, keys, values and output.
    Source: Dao et al. 2022 (FlashAttention, arXiv 2205.14135): traffic linear in the sequence.

    >>> round(float(attention_time(5.5e11, 1.3e8, peak=989e12, efficiency=0.55, memory_bandwidth=2.7e12)) * 1e3, 2)
    1.01
    """
    return np.maximum(flops / (peak * efficiency), traffic / memory_bandwidth) + overhead


def attention_traffic(
    tokens: Count, query_width: Count, key_value_width: Count, output_width: Count, *, element_bytes: Bytes = ELEMENT
) -> Bytes:
    """Memory traffic of fused attention's forward: queries, keys and values in, the output out.

    M = T (q + kv + o) b

    Source: Dao et al. 2022 (FlashAttention, arXiv 2205.14135), theorem 2 with a cache that holds a head's keys.

    >>> attention_traffic(4096, 4096, 2048, 4096) / 2**20
    80.0
    """
    return tokens * (query_width + key_value_width + output_width) * element_bytes


def unfused_attention_time(
    flops: Flop,
    scores: Count,
    *,
    peak: FlopPerSecond,
    efficiency: Scalar,
    memory_bandwidth: BytesPerSecond,
    bytes_per_score: Bytes = UNFUSED_FORWARD_BYTES,
    share: Scalar = UNFUSED_SHARE,
) -> Seconds:
    """Attention with its scores in memory ("math"): batched products, then mask, softmax and dropout one by one.

    t = F / (P e u) + N b / W

    F counts the full square (`attention_flops` with causal=0; twice that in backward), N = batch x heads x s^2
    scores, b 13 bytes forward and 19 backward in 16 bits, e the efficiency of a large matrix product.
    Source: UNFUSED_FORWARD_BYTES says where the constants come from. Holds with dropout and a separate mask.

    >>> scores = 96 * 2048**2  # one GPT-3 layer, one sequence
    >>> ampere = dict(peak=312e12, efficiency=0.83, memory_bandwidth=1.67e12)
    >>> round(unfused_attention_time(4 * 128 * scores, scores, **ampere) * 1e3, 2)  # milliseconds
    4.2
    """
    return flops / (peak * efficiency * share) + scores * bytes_per_score / memory_bandwidth


def aligned_share(head_dim: Count) -> Scalar:
    """Share of the rate that batched products keep at a head size, in 16 bits.

    u = 1 if head_dim mod 8 = 0, else UNALIGNED_SHARE

    Tensor cores read 16 bytes at a time. Source: NVIDIA, Deep Learning Performance: Matrix Multiplication (multiples of
    8 elements); the share is an own fit: of BigScience's 176B candidates (A100, chronicles-prequel.md) those with
    heads of 108, 150 and 450 took a third longer per step, whose attention is 2 to 3 % of the FLOPs.

    >>> float(aligned_share(128)), float(aligned_share(150)) < 0.1
    (1.0, True)
    """
    return np.where(np.mod(head_dim, 8) == 0, 1.0, UNALIGNED_SHARE)


def memory_bound_time(traffic: Bytes, memory_bandwidth: BytesPerSecond, overhead: Seconds = 0.0) -> Seconds:
    """A kernel that only moves data.

    t = M / W + t0

    Source: the memory side of the roofline (Williams et al. 2009).

    >>> memory_bound_time(2.7e9, 2.7e12)
    0.001
    """
    return traffic / memory_bandwidth + overhead


def norm_traffic(tokens: Count, hidden: Count, *, element_bytes: Bytes = ELEMENT) -> Bytes:
    """One norm, forward: read and write.

    M = 2 T h b

    Source: its operands; a fused kernel passes over memory once.

    >>> norm_traffic(1, 4096) == 4 * 4096
    True
    """
    return 2.0 * tokens * hidden * element_bytes


def residual_traffic(tokens: Count, hidden: Count, *, element_bytes: Bytes = ELEMENT) -> Bytes:
    """One residual addition, forward: two reads and a write.

    M = 3 T h b

    Source: its operands.

    >>> residual_traffic(1, 4096) == 6 * 4096
    True
    """
    return 3.0 * tokens * hidden * element_bytes


def activation_traffic(tokens: Count, width: Count, gated: Scalar, *, element_bytes: Bytes = ELEMENT) -> Bytes:
    """The non-linearity of a feed-forward block: read and write; gated (SwiGLU): gate and up in, their product out.

    M = (2 + gated) T f b

    Source: its operands.

    >>> activation_traffic(1, 14336, gated=1) == 6 * 14336
    True
    """
    return (2.0 + gated) * tokens * width * element_bytes


def rotary_traffic(tokens: Count, query_key_width: Count, *, element_bytes: Bytes = ELEMENT) -> Bytes:
    """Rotation of queries and keys, fused: read and write.

    M = 2 T (a + k) d b

    `query_key_width` is (query heads + key-value heads) x head size. Unfused fp32 code moves about five times that
    (provisional). Source: its operands.

    >>> rotary_traffic(1, 40 * 128) == 4 * 40 * 128
    True
    """
    return 2.0 * tokens * query_key_width * element_bytes


def routing_traffic(tokens: Count, hidden: Count, experts_per_token: Count, *, element_bytes: Bytes = ELEMENT) -> Bytes:
    """Permuting tokens to their experts and summing what comes back, forward: each copy written and read once.

    M = 2 (k + 1) T h b

    Source: data flow of a token-permuting mixture of experts (Megatron-Core's MoE documentation).

    >>> routing_traffic(4096, 7168, 8) / 1e9
    1.056964608
    """
    return 2.0 * (experts_per_token + 1) * tokens * hidden * element_bytes


def dropout_traffic(tokens: Count, hidden: Count, *, element_bytes: Bytes = ELEMENT, mask: Bytes = MASK) -> Bytes:
    """One dropout on the residual path, forward: read and write, and its mask.

    M = T h (2 b + mask)

    Source: its operands; Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1, for the mask of one byte.

    >>> dropout_traffic(1, 4096) == 5 * 4096
    True
    """
    return tokens * hidden * (2.0 * element_bytes + mask)


def adapter_traffic(tokens: Count, inputs: Count, outputs: Count, *, element_bytes: Bytes = ELEMENT) -> Bytes:
    """A low-rank adapter beside one matrix product, forward: input read, its small result added to the output.

    M = T (i + 3 o) b

    The adapter's own products are too thin to count. Source: its operands, addition unfused.

    >>> adapter_traffic(1, 4096, 4096) == 8 * 4096
    True
    """
    return tokens * (inputs + 3.0 * outputs) * element_bytes


def loss_traffic(tokens: Count, vocabulary: Count, *, bytes_per_logit: Bytes) -> Bytes:
    """Cross-entropy, forward and backward, without the output projection itself.

    M = T V b    with b about 8 bytes fused and 28 on an fp32 copy

    Source: passes over the logits: fused reads and writes 16 bits twice; unfused casts, takes the log-softmax and
    its gradient in 32 bits and casts back.

    >>> loss_traffic(8192, 128256, bytes_per_logit=8.0) / 1e9
    8.405385216
    """
    return tokens * vocabulary * bytes_per_logit


def host_time(launches: Count, launch_time: Seconds) -> Seconds:
    """Time the host needs to launch so many operators, one after the other.

    t = n t_launch

    Source: definition. `launch_time` is the profile's, by default Python and autograd included (`Profile.launch_time`);
    compilation and CUDA graphs leave fewer operators, hand-fused code more.

    >>> round(host_time(200, 6e-6), 6)
    0.0012
    """
    return launches * launch_time


def device_or_host_time(device: Seconds, host: Seconds, *, shared: Scalar = 0.0) -> Seconds:
    """The device runs while the host launches ahead: the slower of the two sets the pace.

    t = max(t_device, t_host) + shared min(t_device, t_host)

    Source: asynchronous launch; holds where no kernel makes the host wait. `shared` is 1 where one processor does both,
    one after the other (torch on a CPU: a call returns when its result is there).

    >>> float(device_or_host_time(0.0001, 0.0012))
    0.0012
    >>> round(float(device_or_host_time(0.0001, 0.0012, shared=1.0)), 6)
    0.0013
    """
    return np.maximum(device, host) + shared * np.minimum(device, host)
