import numpy as np
import pytest

from planner.cost.flops import (
    MATMUL_BACKWARD,
    attention_flops,
    flops_utilization,
    korthikanti_flops,
    matmul_flops,
    palm_flops,
    parameter_flops,
    sc21_flops,
    visible_context,
)

GPT3 = {"seq_len": 2048, "layers": 96, "hidden": 12288, "vocabulary": 51200}
HEADS = 96


def gpt_layer(batch, seq_len, hidden, heads):
    """Forward of a GPT layer by our own terms: MLP four times as wide, no grouped queries, unskipped attention."""
    tokens = batch * seq_len
    products = ((3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden))
    core = attention_flops(batch, seq_len, heads, hidden // heads, hidden // heads, causal=0.0)
    return sum(matmul_flops(tokens, n, k) for n, k in products) + core


def gpt_step(batch, *, recompute, seq_len, layers, hidden, vocabulary):
    head = matmul_flops(batch * seq_len, vocabulary, hidden)
    layer = gpt_layer(batch, seq_len, hidden, HEADS)
    return layers * layer * (1 + recompute + MATMUL_BACKWARD) + head * (1 + MATMUL_BACKWARD)


def test_sc21_formula_is_the_sum_of_our_terms_with_full_recomputation():
    assert gpt_step(1536, recompute=1, **GPT3) == pytest.approx(sc21_flops(1536, **GPT3), rel=1e-12)


def test_korthikanti_formula_is_the_sum_of_our_terms_without_recomputation():
    assert gpt_step(64, recompute=0, **GPT3) == pytest.approx(korthikanti_flops(64, **GPT3), rel=1e-12)


def test_palm_formula_adds_the_unmasked_attention_of_all_layers_to_six_flops_per_parameter():
    tokens = 4 * 8192
    attention = 3 * 32 * attention_flops(4, 8192, 32, 128, 128, causal=0.0)
    assert palm_flops(8e9, tokens, 32, 32 * 128, 8192) == pytest.approx(parameter_flops(8e9, tokens) + attention)


def test_gpt3_step_takes_the_published_number_of_flops():
    # SC'21, section 5.1: 1,024 GPUs, batch 1,536, 140 TFLOP/s each and 300 billion tokens in 34 days (8 T P / n X).
    assert sc21_flops(1536, **GPT3) * 300e9 / (1536 * 2048) / (1024 * 140e12) / 86400 == pytest.approx(34, rel=0.25)


@pytest.mark.parametrize("window", [1, 2, 7, 100, 127, 128, 500])
def test_visible_context_is_the_mean_number_of_keys_that_the_causal_mask_leaves(window):
    query, key = np.arange(128)[:, None], np.arange(128)[None, :]
    allowed = (key <= query) & (key > query - window)
    assert visible_context(128, window=window) == pytest.approx(allowed.sum() / 128)


@pytest.mark.parametrize("window", [1, 3, 9, 127, 255, 999])
def test_visible_context_counts_neighbours_on_both_sides_without_a_causal_mask(window):
    query, key = np.arange(128)[:, None], np.arange(128)[None, :]
    allowed = abs(query - key) <= (window - 1) // 2
    assert visible_context(128, 0.0, window) == pytest.approx(allowed.sum() / 128)


def test_causal_attention_does_half_the_work_of_the_full_square_at_long_sequences():
    full, half = (attention_flops(1, 65536, 8, 128, 128, causal=c) for c in (0.0, 1.0))
    assert half / full == pytest.approx(0.5, rel=1e-4)


def test_sliding_window_makes_attention_linear_in_the_sequence():
    short, long = (attention_flops(1, s, 8, 128, 128, window=1024) for s in (32768, 65536))
    assert long / short == pytest.approx(2.0, rel=0.02)


def test_window_longer_than_the_sequence_changes_nothing():
    assert attention_flops(2, 4096, 8, 128, 128, window=8192) == attention_flops(2, 4096, 8, 128, 128)


def test_latent_attention_counts_the_key_and_value_dimensions_apart():
    mla = attention_flops(1, 4096, 128, 192, 128)
    assert mla == pytest.approx(attention_flops(1, 4096, 128, 160, 160))


def test_flops_of_a_column_are_those_of_each_row():
    seq_len = np.array([512, 4096, 131072])
    column = attention_flops(1, seq_len, 32, 128, 128, window=4096)
    assert column.tolist() == [attention_flops(1, s, 32, 128, 128, window=4096) for s in seq_len.tolist()]


def test_utilization_is_that_of_the_published_gpt3_run():
    # Korthikanti et al. 2022, table 5: 175B on 64 A100, batch 64, 13.75 s with selective recomputation: 51.6 % MFU.
    assert flops_utilization(korthikanti_flops(64, **GPT3), 13.75, 312e12, ranks=64) == pytest.approx(0.516, abs=0.015)
