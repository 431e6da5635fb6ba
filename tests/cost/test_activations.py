"""Activations of a layer: the items against published sums and an independent tracker of tensors."""

import pytest

from planner.cost.activations import (
    attention_bytes,
    dropout_bytes,
    eager_bytes,
    korthikanti_bytes,
    layer_input_bytes,
    logit_bytes,
    mlp_bytes,
    norm_bytes,
    routed_bytes,
    row_sum_bytes,
    score_bytes,
    selective_bytes,
)

SEQ_LEN, HIDDEN, HEADS = 2048, 12288, 96
LLAMA_8B = 4096


def gpt_layer(tp, *, sequence_split):
    """A layer of GPT-3 on one tensor rank: unfused attention, dropout, f = 4h."""
    part = HIDDEN / tp
    return (
        norm_bytes(SEQ_LEN, HIDDEN, sequence_split=sequence_split)
        + attention_bytes(SEQ_LEN, part, 2 * part, part)
        + score_bytes(SEQ_LEN, SEQ_LEN, HEADS / tp)
        + mlp_bytes(SEQ_LEN, 4 * part, gated=0)
        + dropout_bytes(SEQ_LEN, HIDDEN, sequence_split=sequence_split)
    )


def llama_layer():
    """Bytes of one token in a layer of Llama-3-8B under fused attention."""
    kept = norm_bytes(1, LLAMA_8B) + attention_bytes(1, LLAMA_8B, 2048, LLAMA_8B) + row_sum_bytes(1, 32)
    return kept + mlp_bytes(1, 14336, gated=1)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_items_of_a_gpt_layer_add_up_to_the_published_sum(tp):
    assert gpt_layer(tp, sequence_split=tp) == pytest.approx(korthikanti_bytes(SEQ_LEN, HIDDEN, HEADS, SEQ_LEN, tp=tp))


def test_without_sequence_parallelism_ten_of_34_bytes_are_held_by_every_tensor_rank():
    # Korthikanti et al. 2022, equation 2: s b h (10 + 24 / t + 5 a s / h t).
    published = SEQ_LEN * HIDDEN * (10 + 24 / 8 + 5 * HEADS * SEQ_LEN / HIDDEN / 8)
    assert gpt_layer(8, sequence_split=1) == pytest.approx(published)


def test_a_token_of_llama_8b_keeps_34_hidden_sizes_of_bytes_and_58_uncompiled():
    # FSDPMemTracker counts 58 h per token and layer of the uncompiled model.
    assert llama_layer() / LLAMA_8B == pytest.approx(34, rel=0.01)
    silu = mlp_bytes(1, 14336, gated=1, unfused=1) - mlp_bytes(1, 14336, gated=1)
    assert (llama_layer() + silu + eager_bytes(1, LLAMA_8B, norm_bytes=17.0)) / LLAMA_8B == pytest.approx(58, rel=0.01)


def test_more_recomputation_keeps_less():
    selective = selective_bytes(1, LLAMA_8B, 2048, 14336)
    assert layer_input_bytes(1, LLAMA_8B) < selective < llama_layer()


def test_full_recomputation_keeps_one_tensor_of_the_layers_width_that_sequence_parallelism_divides():
    assert layer_input_bytes(4096, 8192) == 2 * 4096 * 8192
    assert layer_input_bytes(4096, 8192, sequence_split=8) == 2 * 512 * 8192


def test_a_gated_block_keeps_half_as_much_again_as_a_plain_one_of_its_width():
    assert mlp_bytes(7, 1000, gated=1) / mlp_bytes(7, 1000, gated=0) == 1.5


def test_scores_grow_with_the_square_of_the_sequence_and_fused_attention_does_not_keep_them():
    assert score_bytes(8192, 8192, 32) == 16 * score_bytes(2048, 2048, 32)
    fused = attention_bytes(8192, 4096, 2048, 4096) + row_sum_bytes(8192, 32)
    assert score_bytes(8192, 8192, 32) > 50 * fused


def test_tokens_are_kept_where_they_arrive_at_experts_and_where_they_leave():
    assert routed_bytes(2 * 4096, 4096) == 2 * (2 * 4096) * 4096 * 2


def test_logits_of_a_large_vocabulary_outweigh_a_layer():
    assert logit_bytes(1, 128256, bytes_per_logit=12.0) > 10 * llama_layer()
