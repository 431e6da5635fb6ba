"""Floating-point operations of a transformer, and the counting conventions of the literature.

A multiply-add counts as 2. All functions count the whole of what their arguments describe: divide a dimension by the
tensor-parallel degree before calling to get one rank's share.
"""

from __future__ import annotations

import numpy as np

from planner.quantities import Count, Flop, FlopPerSecond, Scalar, Seconds

MATMUL_BACKWARD = 2.0
"""Backward over forward of a matrix product: one product for the inputs' gradient, one for the weights'."""
FLASH_BACKWARD = 2.5
"""Backward over forward of fused attention, which computes the scores again: five products against two.

Source: Dao 2023 (FlashAttention-2, arXiv 2307.08691), section 4.1.
"""


def matmul_flops(m: Count, n: Count, k: Count) -> Flop:
    """One matrix product C[m, n] = A[m, k] B[k, n].

    F = 2 m n k

    Source: definition. Exact.

    >>> matmul_flops(4096, 4096, 4096)
    137438953472.0
    """
    return 2.0 * m * n * k


def visible_context(seq_len: Count, causal: Scalar = 1.0, window: Count = np.inf) -> Count:
    """Keys that a query sees, averaged over the sequence.

    causal:    w - w (w - 1) / 2s         with w = min(window, s); (s + 1) / 2 without a window
    otherwise: 1 + 2a - a (a + 1) / s     with a = min((window - 1) / 2, s - 1) neighbours on each side; s without

    `causal` is 1 or 0 (a share between is their mixture). `window` counts the keys that a query may see, itself
    included: the last ones when causal (Hugging Face's sliding_window), else those around it.
    Source: sums of min(i, w) over the queries i = 1..s. Exact for whole numbers.

    >>> float(visible_context(4096)), float(visible_context(4096, 0.0)), float(visible_context(4096, window=1024))
    (2048.5, 4096.0, 896.125)
    """
    last = np.minimum(window, seq_len)
    side = np.minimum((window - 1) / 2, seq_len - 1)
    masked = last - last * (last - 1) / (2 * seq_len)
    around = 1 + 2 * side - side * (side + 1) / seq_len
    return causal * masked + (1 - causal) * around


def attention_flops(
    batch: Count,
    seq_len: Count,
    heads: Count,
    head_dim_qk: Count,
    head_dim_v: Count,
    *,
    causal: Scalar = 1.0,
    window: Count = np.inf,
) -> Flop:
    """Forward of the attention core (scores and their product with the values), the masked part skipped.

    F = 2 b s a c (d_qk + d_v)    with c = visible_context(s, causal, window)

    `causal=0` counts the full square, as unfused attention computes it and as MFU conventions often count. Grouped
    and multi-query attention do the same work; multi-head latent attention has d_qk different from d_v.
    Source: Dao 2023 (FlashAttention-2, arXiv 2307.08691), section 4.1: 4 s^2 d a, halved when causal.

    >>> float(attention_flops(1, 4096, 32, 128, 128, causal=0.0)) == 4 * 4096**2 * 32 * 128
    True
    """
    context = visible_context(seq_len, causal, window)
    return 2.0 * batch * seq_len * heads * context * (head_dim_qk + head_dim_v)


def sc21_flops(batch: Count, seq_len: Count, layers: Count, hidden: Count, vocabulary: Count) -> Flop:
    """Hardware FLOPs of one step of a GPT with full recomputation, as Megatron-LM reported them.

    F = 96 B s L h^2 (1 + s / 6h + V / 16 L h)

    MLP four times as wide as the model, no grouped queries, attention over the full square, layers run forward
    twice. Source: Narayanan et al. 2021 (SC'21, arXiv 2104.04473), section 5.1.

    >>> round(sc21_flops(1536, 2048, 96, 12288, 51200) / 1e18, 1)  # GPT-3 175B
    4.5
    """
    body = 1 + seq_len / (6 * hidden) + vocabulary / (16 * layers * hidden)
    return 96.0 * batch * seq_len * layers * hidden * hidden * body


def korthikanti_flops(batch: Count, seq_len: Count, layers: Count, hidden: Count, vocabulary: Count) -> Flop:
    """Model FLOPs of one step of a GPT: as `sc21_flops`, without the recomputation.

    F = 72 B L s h^2 (1 + s / 6h + V / 12 h L)

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), appendix A.

    >>> sc21 = sc21_flops(1, 2048, 96, 12288, 51200)
    >>> round(korthikanti_flops(1, 2048, 96, 12288, 51200) / sc21, 4)
    0.7507
    """
    body = 1 + seq_len / (6 * hidden) + vocabulary / (12 * layers * hidden)
    return 72.0 * batch * seq_len * layers * hidden * hidden * body


def parameter_flops(parameters: Count, tokens: Count) -> Flop:
    """Model FLOPs by parameters alone: forward 2, backward 4 per parameter and token.

    F = 6 N T

    Attention is left out. N counts what its author counts: with or without embeddings; of experts, those visited.
    Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1.

    >>> parameter_flops(405e9, 16.8e6)
    4.0824e+19
    """
    return 6.0 * parameters * tokens


def palm_flops(parameters: Count, tokens: Count, layers: Count, attention_width: Count, seq_len: Count) -> Flop:
    """Model FLOPs with attention over the full square: the convention of PaLM, llm-foundry and torchtitan.

    F = T (6 N + 12 L a d s)

    `attention_width` is heads x head size. Halve `seq_len` for the causal convention (Megatron-Bridge).
    Source: Chowdhery et al. 2022 (PaLM, arXiv 2204.02311), appendix B.

    >>> palm_flops(8e9, 1, 32, 4096, 8192) / 1e9
    60.884901888
    """
    return tokens * (6.0 * parameters + 12.0 * layers * attention_width * seq_len)


def flops_utilization(flops: Flop, time: Seconds, peak: FlopPerSecond, ranks: Count = 1) -> Scalar:
    """Share of the peak that a step reaches: MFU for the model's FLOPs, HFU with the recomputed ones.

    U = F / (t n P)

    Source: Chowdhery et al. 2022 (PaLM, arXiv 2204.02311), appendix B.

    >>> flops_utilization(4.5e18, 20.0, 312e12, ranks=1500)
    0.4807692307692308
    """
    return flops / (time * ranks * peak)
