"""Training state per rank: published bytes per parameter, adapters, what ZeRO-3 gathers."""

import pytest

from planner.cost.states import (
    adapter_parameters,
    gathered_bytes,
    held_bytes,
    mixed_precision_bytes,
    quantized_bytes,
    reduction_bytes,
)


def test_over_many_ranks_weights_and_gradients_are_what_the_distributed_optimizer_leaves():
    # Megatron-LM: 18 bytes per parameter on one rank, 6 + 12/d on d.
    assert mixed_precision_bytes(2.0, 4.0, 4.0, 8.0) == 18
    assert mixed_precision_bytes(2.0, 4.0, 4.0, 8.0, group=1e9) == pytest.approx(6)


def test_zero_stages_of_the_paper_hold_what_its_first_figure_shows():
    # Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 ranks take 120, 31.4, 16.6 and 1.9 GB.
    parameters, ranks = 7.5e9, 64
    weights, gradients, states = (
        [held_bytes(parameters, each, group) for group in (1, ranks)] for each in (2.0, 2.0, 12.0)
    )
    stages = [
        weights[0] + gradients[0] + states[0],
        weights[0] + gradients[0] + states[1],
        weights[0] + gradients[1] + states[1],
        weights[1] + gradients[1] + states[1],
    ]
    assert [size / 1e9 for size in stages] == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


def test_adapters_on_queries_and_values_of_a_7b_model_are_four_million_parameters():
    assert 32 * 2 * adapter_parameters(4096, 4096, rank=8) == 4_194_304


def test_four_bit_weights_with_their_scales_take_a_little_more_than_half_a_byte():
    assert quantized_bytes() == pytest.approx(4.127 / 8, abs=1e-4)
    assert quantized_bytes(block=1e9, double_block=1e9) == pytest.approx(0.5)


def test_gathered_weights_are_two_layers_beside_the_root():
    layer, root = 218e6, 1051e6
    both = gathered_bytes(layer, root, weight_bytes=2.0)
    assert both - gathered_bytes(layer, 0.0, weight_bytes=2.0) == 2 * root
    assert both - gathered_bytes(0.0, root, weight_bytes=2.0) == 2 * 2 * layer


def test_a_reduction_holds_the_gradients_and_the_buffers_that_carry_them():
    assert reduction_bytes(1e9, gradient_bytes=2.0, reduce_bytes=4.0) == 1e9 * (2 + 2 * 4)
    assert reduction_bytes(1e9, gradient_bytes=2.0, reduce_bytes=4.0, buffers=1.0) == 1e9 * (2 + 4)
