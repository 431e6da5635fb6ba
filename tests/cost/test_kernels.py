import numpy as np
import pytest

from planner.cost.kernels import (
    UNFUSED_BACKWARD_BYTES,
    activation_traffic,
    attention_time,
    attention_traffic,
    device_or_host_time,
    grouped_matmul_time,
    host_time,
    loss_traffic,
    matmul_efficiency,
    matmul_time,
    memory_bound_time,
    norm_traffic,
    residual_traffic,
    rotary_traffic,
    routing_traffic,
    unfused_attention_time,
)

H100 = {"peak": 989e12, "memory_bandwidth": 0.82 * 3.35e12}


def test_large_product_runs_at_the_efficiency_of_the_peak():
    assert matmul_time(8192, 8192, 8192, efficiency=0.8, **H100) == pytest.approx(2 * 8192**3 / (0.8 * 989e12))


def test_thin_product_waits_for_its_weights():
    # One token: 2 x 4096 x 4096 bytes of weights decide, not 2 x 4096 x 4096 FLOPs.
    assert matmul_time(1, 4096, 4096, efficiency=0.8, **H100) == pytest.approx(
        2 * 4096 * 4096 / H100["memory_bandwidth"], rel=1e-3
    )


def test_fp8_product_moves_half_the_bytes():
    half = matmul_time(1, 8192, 8192, efficiency=0.8, element_bytes=1.0, **H100)
    assert half == pytest.approx(matmul_time(1, 8192, 8192, efficiency=0.8, **H100) / 2)


def test_overhead_is_what_an_empty_product_takes():
    assert matmul_time(0, 4096, 4096, efficiency=0.8, overhead=2e-6, **H100) == pytest.approx(
        2e-6 + 2 * 4096 * 4096 / H100["memory_bandwidth"]
    )


def test_columns_of_products_take_what_each_takes():
    m, n, k = (np.array(values) for values in ([16, 4096, 30000], [512, 4096, 9000], [65536, 4096, 128]))
    column = matmul_time(m, n, k, efficiency=0.7, overhead=2e-6, **H100)
    assert column.tolist() == [
        float(matmul_time(*shape, efficiency=0.7, overhead=2e-6, **H100)) for shape in zip(m, n, k, strict=True)
    ]


def test_shape_factor_is_a_share():
    m, n, k = np.meshgrid([1, 60, 128, 1000, 32768], [1, 64, 4096, 65536], [1, 32, 4096, 65536])
    share = matmul_efficiency(m, n, k, multiprocessors=132)
    assert ((share > 0) & (share <= 1)).all()


def test_shape_factor_approaches_one_for_very_large_products():
    assert matmul_efficiency(2**17, 2**17, 2**17, multiprocessors=132) == pytest.approx(1.0, abs=0.005)


def test_one_tile_more_than_a_wave_costs_almost_a_second_wave():
    # 132 multiprocessors: 12 x 11 tiles of 128 x 256 fill one wave, 12 x 12 need two.
    full = matmul_efficiency(12 * 128, 11 * 256, 4096, multiprocessors=132, wave_exponent=1.0)
    over = matmul_efficiency(12 * 128, 12 * 256, 4096, multiprocessors=132, wave_exponent=1.0)
    assert over < 0.95 * full


def test_deeper_products_are_more_efficient():
    share = matmul_efficiency(4096, 4096, np.array([64, 128, 512, 4096, 65536]), multiprocessors=132)
    assert (np.diff(share) > 0).all()


def test_splitting_a_product_over_tensor_ranks_never_saves_more_than_the_split():
    whole = matmul_time(4096, 14336, 4096, efficiency=matmul_efficiency(4096, 14336, 4096, multiprocessors=132), **H100)
    eighth = matmul_time(4096, 1792, 4096, efficiency=matmul_efficiency(4096, 1792, 4096, multiprocessors=132), **H100)
    assert eighth >= whole / 8


def test_one_group_at_full_share_is_a_plain_product():
    plain = matmul_time(2048, 4096, 4096, efficiency=0.7, overhead=2e-6, **H100)
    grouped = grouped_matmul_time(2048, 4096, 4096, 1, efficiency=0.7, share=1.0, overhead=2e-6, **H100)
    assert grouped == pytest.approx(plain)


def test_many_experts_with_few_tokens_wait_for_their_weights():
    # 256 experts, 8 tokens each: the weights of all of them are read.
    time = grouped_matmul_time(2048, 4096, 7168, 256, efficiency=0.7, share=1.0, **H100)
    assert time == pytest.approx(256 * 7168 * 4096 * 2 / H100["memory_bandwidth"], rel=0.01)


def test_fused_attention_reaches_the_published_rate_of_flash_attention_3():
    # Shah et al. 2024, figure 5: 638 TFLOP/s forward at 4k, head size 128, not causal, 16k tokens, hidden size 2,048.
    flops = 4 * 4 * 4096**2 * 2048
    traffic = attention_traffic(16384, 2048, 4096, 2048)
    time = attention_time(flops, traffic, efficiency=638 / 989, **H100)
    assert flops / time / 1e12 == pytest.approx(638)


def test_short_attention_waits_for_its_operands():
    traffic = attention_traffic(1024, 4096, 8192, 4096)
    time = attention_time(4 * 1024 * 4096, traffic, efficiency=0.6, **H100)
    assert time == pytest.approx(traffic / H100["memory_bandwidth"])


def test_unfused_attention_is_several_times_slower_than_fused_at_long_sequences():
    scores = 32 * 8192**2
    fused = attention_time(2 * 128 * scores, 0.0, efficiency=0.55, **H100)
    unfused = unfused_attention_time(4 * 128 * scores, scores, efficiency=0.8, **H100)
    assert 3 < unfused / fused < 12


def test_standard_attention_on_h100_is_slow_as_published_without_the_cost_of_dropout():
    # Shah et al. 2024, figure 5: standard attention 133 TFLOP/s at 4k (head size 128). Without dropout and mask some
    # 10 bytes move per score: scores written, softmax read and written in 32 bits, read once more.
    scores = 4 * 16 * 4096**2
    time = unfused_attention_time(4 * 128 * scores, scores, efficiency=0.75, bytes_per_score=10.0, **H100)
    assert 4 * 128 * scores / time / 1e12 == pytest.approx(133, rel=0.25)


def test_backward_of_unfused_attention_moves_more_than_forward():
    forward = unfused_attention_time(0.0, 1e9, efficiency=0.8, **H100)
    backward = unfused_attention_time(0.0, 1e9, efficiency=0.8, bytes_per_score=UNFUSED_BACKWARD_BYTES, **H100)
    assert backward / forward == pytest.approx(19 / 13)


def test_elementwise_traffic_of_a_llama_layer_by_hand():
    # Per token, h = 4096, f = 14336, 32 + 8 heads of 128: two norms, two residuals, SwiGLU, rotation, in 16 bits.
    total = 2 * norm_traffic(1, 4096) + 2 * residual_traffic(1, 4096)
    total += activation_traffic(1, 14336, gated=1) + rotary_traffic(1, 40 * 128)
    assert total == 2 * 4 * 4096 + 2 * 6 * 4096 + 6 * 14336 + 4 * 40 * 128


def test_plain_activation_moves_two_thirds_of_a_gated_one():
    assert activation_traffic(7, 1000, gated=0) / activation_traffic(7, 1000, gated=1) == pytest.approx(2 / 3)


def test_one_expert_per_token_still_routes_in_and_out():
    assert routing_traffic(1, 1024, 1) == 4 * 1024 * 2


def test_fused_loss_moves_little_of_what_the_fp32_copy_does():
    fused, copied = (loss_traffic(8192, 128256, bytes_per_logit=b) for b in (8.0, 28.0))
    assert memory_bound_time(copied, 2.7e12) / memory_bound_time(fused, 2.7e12) == pytest.approx(3.5)


def test_host_sets_the_pace_of_tiny_layers():
    # Megatron's functional tests: 12 layers of h = 512, about 0.1 ms of device work, 4 ms and more measured.
    assert device_or_host_time(1e-4, host_time(600, 7e-6)) == pytest.approx(4.2e-3)
    assert device_or_host_time(5e-3, host_time(600, 7e-6)) == 5e-3
