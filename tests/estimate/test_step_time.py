"""Step times on a machine with round figures."""

from dataclasses import fields, replace

import numpy as np
import pytest

from planner.cost.bandwidths import copying_bandwidth
from planner.cost.flops import sc21_flops
from planner.estimate.throughput import forward_flops, throughput
from planner.spec.model import Attention, Experts, Layer, Mlp, Model
from planner.spec.plan import ContextKind, GradientSync, Plan, Recompute, Schedule, Sharding
from planner.spec.workload import Workload


def test_matrix_products_take_flops_over_effective_peak(bench):
    plan = Plan(dp_replicate=8, num_microbatches=8)
    parameters = sum(layer.dense_parameters(4096) for layer in bench.model.layers)
    flops = 6 * parameters * bench.workload.tokens_per_step / 8
    assert bench.time(plan).matmul == pytest.approx(flops / 0.5e15, rel=1e-9)


def test_column_equals_scalar_row_by_row(bench, columns):
    column = bench.time(columns)
    for i, plan in enumerate(columns):
        assert bench.time(plan).total == column.total[i]


def test_every_term_is_finite_and_not_negative(bench, columns):
    time = bench.time(columns)
    for field in fields(time):
        assert np.all(np.isfinite(getattr(time, field.name))), field.name
        assert np.all(getattr(time, field.name) >= 0), field.name


def test_bubble_vanishes_with_one_stage(bench):
    assert bench.time(Plan(dp_replicate=8, num_microbatches=8)).bubble == 0


def test_bubble_of_equal_stages_is_p_minus_one_over_m(bench):
    no_head = replace(bench, model=replace(bench.model, vocab_size=1))
    time = no_head.time(Plan(pp=8, num_microbatches=64, schedule=Schedule.ONE_F_ONE_B))
    busy = time.total - time.bubble - time.pp_exposed
    assert time.bubble / busy == pytest.approx(7 / 64, rel=1e-2)


def test_interleaving_divides_the_bubble(bench):
    plain = bench.time(Plan(pp=4, dp_replicate=2, num_microbatches=32, schedule=Schedule.ONE_F_ONE_B))
    chunks = bench.time(
        Plan(pp=4, dp_replicate=2, num_microbatches=32, schedule=Schedule.INTERLEAVED, virtual_stages=4)
    )
    assert chunks.bubble == pytest.approx(plain.bubble / 4)


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZB_H1])
def test_a_step_lasts_at_least_as_long_as_its_busiest_link_between_stages(bench, slow_network, schedule):
    """Two nodes as two stages over 10 Mb/s: one tensor of 4,096 x 4,096 in 16 bits a micro-batch in each direction."""
    slow = replace(bench, cluster=slow_network)
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    plan = Plan(pp=2, dp_replicate=8, num_microbatches=8, schedule=schedule, virtual_stages=chunks)
    directions = 2 if schedule is Schedule.GPIPE else 1
    assert slow.time(plan).total >= directions * 8 * chunks * 4096 * 4096 * 2 / 1.25e6


def test_full_recomputation_adds_the_forward_less_the_last_product(bench):
    kept, again = (bench.time(Plan(dp_replicate=8, num_microbatches=8, recompute=mode)) for mode in (0, Recompute.FULL))
    forward = kept.matmul / 3 + kept.attention / 3.5 + kept.elementwise / 2.5
    down = 32 * 2 * bench.workload.tokens_per_step / 8 * 4096 * 14336 / 0.5e15
    assert again.recompute == pytest.approx(forward - down, rel=1e-6)
    assert kept.recompute == 0


def test_one_all_reduce_per_step_costs_replicas_the_ring_time(bench):
    no_overlap = replace(bench, stack=replace(bench.stack, overlap_gradients=0.0))
    time = no_overlap.time(Plan(dp_replicate=8, num_microbatches=8))
    assert time.dp_exposed == pytest.approx(2 * 7 / 8 * 4 * bench.model.parameters / 400e9, rel=1e-3)


def test_overlapped_gradients_hide_behind_the_last_backward(bench):
    assert bench.time(Plan(dp_replicate=8, num_microbatches=8)).dp_exposed < 0.02


def test_sharded_weights_are_gathered_for_every_micro_batch(bench):
    slow = replace(bench, profile=replace(bench.profile, overlap_penalty=1.0))
    few, many = (
        slow.time(Plan(dp_shard=8, sharding=Sharding.ZERO3, micro_batch_size=b, num_microbatches=8 // b))
        for b in (8, 1)
    )
    assert many.dp_exposed == pytest.approx(8 * few.dp_exposed, rel=0.02)


def test_a_slower_link_never_helps(bench, columns, slow_links):
    assert np.all(replace(bench, cluster=slow_links).time(columns).total >= bench.time(columns).total)


def test_tensor_parallelism_pays_four_all_reduces_per_layer(bench):
    time = bench.time(Plan(tp=8, num_microbatches=64))
    boundary = 4096 * 4096 * 2
    assert time.tp_exposed == pytest.approx(64 * 32 * 4 * 2 * 7 / 8 * boundary / 400e9, rel=1e-6)


def test_asynchronous_tensor_parallelism_hides_the_collectives(bench):
    plain, overlapped = (bench.time(Plan(tp=8, num_microbatches=64, async_tp=a)) for a in (0, 1))
    assert overlapped.tp_exposed < plain.tp_exposed


@pytest.mark.parametrize("kind", [ContextKind.RING, ContextKind.ULYSSES, ContextKind.ALL_GATHER])
def test_context_parallelism_divides_the_compute(bench, kind):
    whole = bench.time(Plan(dp_replicate=8, num_microbatches=8))
    split = bench.time(Plan(cp=8, context_kind=kind, num_microbatches=64))
    assert split.matmul == pytest.approx(whole.matmul)
    assert split.attention == pytest.approx(whole.attention)
    assert split.cp_exposed > 0


@pytest.mark.parametrize(
    ("recompute", "keeps", "collectives"),
    [
        (Recompute.NONE, 1.0, 2),
        (Recompute.SELECTIVE, 1.0, 3),
        (Recompute.FULL, 1.0, 3),
        (Recompute.NONE, 0.0, 3),
        (Recompute.FULL, 0.0, 4),
    ],
)
def test_gathered_keys_are_waited_for_and_their_gradients_scattered(bench, recompute, keeps, collectives):
    bench = replace(bench, stack=replace(bench.stack, keeps_gathered_keys=keeps))
    plan = Plan(cp=8, context_kind=ContextKind.ALL_GATHER, num_microbatches=64, recompute=recompute)
    keys_and_values = 4096 * 2 * 8 * 128 * 2
    assert bench.time(plan).cp_exposed == pytest.approx(
        64 * 32 * collectives * 7 / 8 * keys_and_values / copying_bandwidth(400e9, 8)
    )


def test_one_rank_gathers_nothing(bench):
    plans = Plan(context_kind=np.array([ContextKind.NONE, ContextKind.ALL_GATHER]), dp_replicate=8, num_microbatches=8)
    time = bench.time(plans)
    assert time.cp_exposed.tolist() == [0.0, 0.0]
    assert time.total[0] == time.total[1]


def test_experts_compute_only_what_tokens_visit(bench):
    expert = Mlp(1024)
    sparse = Layer(Attention(32, 8, 128), None, Experts(64, 4, expert))
    dense = Layer(Attention(32, 8, 128), Mlp(4096))
    bench = replace(bench, profile=replace(bench.profile, memory_efficiency=100.0))
    models = (Model("m", 4096, 32000, (layer,) * 4) for layer in (sparse, dense))
    times = [replace(bench, model=model).time(Plan(dp_replicate=8, num_microbatches=8)) for model in models]
    router = 6 * 4 * bench.workload.tokens_per_step / 8 * 4096 * 64 / 0.5e15
    assert times[0].matmul == pytest.approx(times[1].matmul + router, rel=1e-6)


def test_parts_of_a_tensor_cross_a_slow_network_faster_than_the_whole(bench, slow_network):
    plan = Plan(tp=8, pp=2, num_microbatches=64, schedule=Schedule.ONE_F_ONE_B)
    whole = replace(bench, cluster=slow_network)
    apart = replace(whole, stack=replace(bench.stack, scatters_sends=1.0))
    assert apart.time(plan).pp_exposed == pytest.approx(whole.time(plan).pp_exposed / 8, rel=1e-2)


def test_summing_gradients_passes_over_those_of_the_rank_with_every_micro_batch(bench):
    plan = Plan(tp=2, dp_replicate=4, num_microbatches=16)
    summed = replace(bench, stack=replace(bench.stack, accumulation_bytes=6.0))
    held = sum(layer.dense_parameters(4096) / 2 + layer.other_parameters for layer in bench.model.layers)
    assert summed.time(plan).matmul - bench.time(plan).matmul == pytest.approx(16 * held * 6 / 2e12)
    frozen = replace(bench.workload, method="lora")
    assert replace(summed, workload=frozen).time(plan).matmul == replace(bench, workload=frozen).time(plan).matmul


def test_frozen_weights_need_no_gradient_of_their_own(bench):
    plan = Plan(dp_replicate=8, num_microbatches=8)
    lora = replace(bench, workload=Workload(64, 4096, method="lora"))
    assert lora.time(plan).matmul == pytest.approx(bench.time(plan).matmul * 2 / 3, rel=1e-6)


def test_eight_bits_halve_the_matrix_products(bench):
    plan = Plan(dp_replicate=8, num_microbatches=8)
    fp8 = replace(bench, workload=Workload(64, 4096, precision="fp8"))
    assert fp8.time(plan).matmul == pytest.approx(bench.time(plan).matmul / 2)
    assert fp8.time(plan).attention == bench.time(plan).attention


def test_a_slow_host_sets_the_pace_of_small_kernels(bench):
    slow_host = replace(bench, profile=replace(bench.profile, launch_time=1e-3))
    plan = Plan(dp_replicate=8, num_microbatches=8)
    assert slow_host.time(plan).host > bench.time(plan).host == 0


def test_forward_flops_give_the_published_formula_under_its_conventions():
    """SC'21 counts four forwards (one recomputed), the whole attention square, f = 4h."""
    h, s, layers, vocab, batch = 12288, 2048, 96, 51200, 1536
    layer = Layer(Attention(96, 96, 128), Mlp(4 * h, gated=False))
    model = Model("gpt-3", h, vocab, (layer,) * layers)
    forward = forward_flops(model, Workload(batch, s))
    head = 2 * batch * s * h * vocab
    masked_half = 2 * batch * s * h * layers * (s - 1)
    assert 4 * (forward - head + masked_half) + 3 * head == pytest.approx(sc21_flops(batch, s, layers, h, vocab))


def test_mfu_never_exceeds_the_kernels_efficiency(bench, columns):
    time = bench.time(columns)
    speed = throughput(bench.model, columns, bench.workload, bench.cluster, stack=bench.stack, time=time)
    assert np.all(speed.mfu < 0.5)
    assert np.all(speed.hfu >= speed.mfu)


def test_accumulation_without_no_sync_reduces_with_every_micro_batch(bench):
    serial = replace(bench, profile=replace(bench.profile, overlap_penalty=1.0))
    once, every = (
        serial.time(Plan(dp_replicate=8, num_microbatches=8, gradient_sync=s)) for s in (0, GradientSync.EVERY)
    )
    assert every.dp_exposed == pytest.approx(8 * once.dp_exposed, rel=0.01)


def test_sharded_gradients_summed_locally_are_reduced_once(bench):
    serial = replace(bench, profile=replace(bench.profile, overlap_penalty=1.0))
    plan = Plan(dp_shard=8, sharding=Sharding.ZERO3, num_microbatches=8)
    every, once = (serial.time(replace(plan, gradient_sync=sync)) for sync in (0, GradientSync.ONCE))
    reductions = 7 * 7 / 8 * 4 * bench.model.parameters / copying_bandwidth(400e9, 8)
    assert every.dp_exposed - once.dp_exposed == pytest.approx(reductions, rel=0.01)
