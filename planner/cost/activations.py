"""Activations that one transformer layer keeps for backward, one micro-batch, per rank.

T tokens of the rank's part of the sequence, h hidden size, t the tensor-parallel degree. Sequence parallelism divides
what lies between the parallel regions as well: `sequence_split` is t with it and 1 without. `element` is the size of
one activation (2 bytes in 16 bits).
"""

from __future__ import annotations

from planner.quantities import Bytes, Count, Scalar

ELEMENT: Bytes = 2.0
SINGLE: Bytes = 4.0
MASK: Bytes = 1.0


def norm_bytes(tokens: Count, hidden: Count, *, sequence_split: Count = 1, element: Bytes = ELEMENT) -> Bytes:
    """Inputs and outputs of the two norms of a block; the outputs are the inputs of the matrix products.

    M = 4 T h e / split

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1.

    >>> norm_bytes(4096, 4096) / 2**20
    128.0
    """
    return 4 * tokens * hidden * element / sequence_split


def attention_bytes(
    tokens: Count, query_width: Count, key_value_width: Count, output_width: Count, *, element: Bytes = ELEMENT
) -> Bytes:
    """Queries, keys and values, and the output of fused attention; widths are the rank's own.

    M = T (q + kv + o) e

    Source: Dao et al. 2022 (FlashAttention, arXiv 2205.14135): backward needs q, k, v, the output and the row sums.

    >>> attention_bytes(4096, 4096, 2048, 4096) / 2**20
    80.0
    """
    return tokens * (query_width + key_value_width + output_width) * element


def row_sum_bytes(tokens: Count, heads: Count, *, element: Bytes = SINGLE) -> Bytes:
    """Log-sum-exp of each query and head, in fp32, that fused attention keeps.

    M = T a e

    Source: as `attention_bytes`.

    >>> row_sum_bytes(4096, 32) / 2**20
    0.5
    """
    return tokens * heads * element


def gathered_key_bytes(tokens: Count, key_value_width: Count, other_ranks: Count, *, element: Bytes = ELEMENT) -> Bytes:
    """Keys and values of the other ranks of a context-parallel group, beside a rank's own T tokens.

    M = (c - 1) T kv e

    Source: Llama 3 (arXiv 2407.21783), section 3.3.2: all ranks' keys and values are gathered before attention.

    >>> gathered_key_bytes(4096, 2048, 7) / 2**20
    112.0
    """
    return other_ranks * tokens * key_value_width * element


def score_bytes(tokens: Count, keys: Count, heads: Count, *, element: Bytes = ELEMENT, mask: Bytes = MASK) -> Bytes:
    """Softmax output, its dropout's mask and output that unfused attention keeps for every query and key.

    M = a T s (2 e + mask)

    Source: Korthikanti et al. 2022, section 4.1 (5 a s^2 b with e = 2, mask = 1).

    >>> score_bytes(2048, 2048, 96) == 5 * 96 * 2048**2
    True
    """
    return heads * tokens * keys * (2 * element + mask)


def mlp_bytes(tokens: Count, width: Count, gated: Scalar, *, unfused: Scalar = 0.0, element: Bytes = ELEMENT) -> Bytes:
    """Inside the feed-forward block: input and output of the non-linearity (gated: gate, up and product).

    M = T f (2 + gated (1 + unfused)) e

    A gate that is not fused with its product keeps the non-linearity's output as well.

    Source: Korthikanti et al. 2022, section 4.1 (16 s b h for f = 4h); one tensor more for gated blocks.

    >>> mlp_bytes(1, 14336, gated=1) == 6 * 14336
    True
    """
    return tokens * width * (2 + gated * (1 + unfused)) * element


def routed_bytes(routed_tokens: Count, hidden: Count, *, element: Bytes = ELEMENT) -> Bytes:
    """Tokens as they arrive at the experts and as they leave them (the combine's weights need both).

    M = 2 T_routed h e

    Source: data flow of a token-permuting mixture of experts (Megatron-Core MoE README).

    >>> routed_bytes(4096, 4096) / 2**20
    64.0
    """
    return 2 * routed_tokens * hidden * element


def eager_bytes(tokens: Count, hidden: Count, *, norm_bytes: Bytes, sequence_split: Count = 1) -> Bytes:
    """What the norms of uncompiled code keep beside 16-bit inputs and outputs: copies in fp32.

    M = T h n / split

    Source: FSDPMemTracker on eager Llama-3-8B: 58 h bytes per token and layer against 34 h of fused kernels, 7 h of
    them the output of the gate's non-linearity (`mlp_bytes`).

    >>> eager_bytes(1, 4096, norm_bytes=17.0) == 17 * 4096
    True
    """
    return tokens * hidden * norm_bytes / sequence_split


def gathered_input_bytes(
    tokens: Count, hidden: Count, *, sequence_split: Count, in_place: Scalar = 1.0, element: Bytes = ELEMENT
) -> Bytes:
    """Unsharded inputs of the two parallel regions of a block, kept for backward.

    M = 2 T h e (1 - in_place / split)

    `in_place` is 1 where they stand for the sharded ones, 0 where those are kept as well. Source: FSDPMemTracker on
    Llama-3-8B under torch's DTensor with sequence parallelism; 0 without it.

    >>> gathered_input_bytes(8192, 4096, sequence_split=8) / 2**20
    112.0
    """
    return 2 * tokens * hidden * element * (1 - in_place / sequence_split) * (sequence_split > 1)


def mlp_gradient_bytes(tokens: Count, width: Count, gated: Scalar, *, element: Bytes = ELEMENT) -> Bytes:
    """What the backward of a feed-forward block holds at its fullest beyond what the forward kept.

    M = T f (1 + gated) e

    At the backward of the non-linearity its output's gradient has taken the output's place, and the gradients of its
    inputs are there. Source: data flow; 63 to 66 h bytes per token of one layer measured on Llama-3-8B and Mistral-7B
    under recomputation (fms-acceleration reference benchmarks).

    >>> mlp_gradient_bytes(1, 14336, gated=1) == 4 * 14336
    True
    """
    return tokens * width * (1 + gated) * element


def waiting_bytes(tokens: Count, hidden: Count, buffers: Count, *, element: Bytes = ELEMENT) -> Bytes:
    """Freed inputs of reductions whose memory is not reused before the device has run them.

    M = n T h e

    Source: torch's allocator defers blocks that another stream uses (Tensor.record_stream); n is what the queue of
    some 1,024 launches holds. Seen in nanotron's scaling sweep: 58 buffers, whatever the model and the stage.

    >>> waiting_bytes(4096, 4096, 58) / 2**30
    1.8125
    """
    return buffers * tokens * hidden * element


def dropout_bytes(tokens: Count, hidden: Count, *, sequence_split: Count = 1, mask: Bytes = MASK) -> Bytes:
    """Masks of the two dropouts on the residual path.

    M = 2 T h mask / split

    Source: Korthikanti et al. 2022, section 4.1 (one byte per element).

    >>> dropout_bytes(4096, 4096) / 2**20
    32.0
    """
    return 2 * tokens * hidden * mask / sequence_split


def layer_input_bytes(tokens: Count, hidden: Count, *, sequence_split: Count = 1, element: Bytes = ELEMENT) -> Bytes:
    """The one tensor that full recomputation keeps of a layer.

    M = T h e / split

    Source: Korthikanti et al. 2022, section 5.

    >>> layer_input_bytes(4096, 4096) / 2**20
    32.0
    """
    return tokens * hidden * element / sequence_split


def selective_bytes(
    tokens: Count,
    hidden: Count,
    key_value_width: Count,
    mlp_width: Count,
    *,
    sequence_split: Count = 1,
    element: Bytes = ELEMENT,
) -> Bytes:
    """Operator-wise recomputation: every second matrix product's output and the attention's are kept.

    M = T (4 h / split + kv / 2 + f) e

    Source: torchtitan's selective activation checkpointing (saves products 1, 3, 5, 7 of a block, the attention
    output and the reduce-scattered outputs); confirmed by FSDPMemTracker on Llama-3-8B within 3 %.

    >>> selective_bytes(1, 4096, 2048, 14336) == 2 * (4 * 4096 + 1024 + 14336)
    True
    """
    return tokens * (4 * hidden / sequence_split + key_value_width / 2 + mlp_width) * element


def korthikanti_bytes(
    tokens: Count, hidden: Count, heads: Count, seq_len: Count, *, tp: Count = 1, byte: Bytes = 1.0
) -> Bytes:
    """The published closed form of a GPT layer in 16 bits with dropout, tensor and sequence parallelism.

    M = T h (34 + 5 a s / h) / t

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), equation 4. f = 4h, unfused attention, dropout masks.

    >>> korthikanti_bytes(2048, 12288, 96, 2048, tp=8) / 2**30
    0.333984375
    """
    return byte * tokens * hidden * (34 + 5 * heads * seq_len / hidden) / tp


def logit_bytes(tokens: Count, vocabulary: Count, *, bytes_per_logit: Bytes) -> Bytes:
    """Logits with what the loss keeps beside them, at the moment of its backward.

    M = T V b

    Source: fused vocabulary-parallel cross-entropy about 6 bytes (16-bit logits, fp32 softmax), torch's on an fp32
    copy about 12 (16-bit logits, fp32 log-probabilities and gradient, 16-bit gradient).

    >>> round(logit_bytes(16384, 128256, bytes_per_logit=12.0) / 2**30, 1)
    23.5
    """
    return tokens * vocabulary * bytes_per_logit
