"""Sweeps through the public names: each curve must bend the way that physics and practice say."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import planner
from planner.estimate.records import Role
from planner.spec.plan import ContextKind, GradientSync, Offload, Recompute, Schedule, Sharding

FSDP = planner.Plan(sharding=Sharding.ZERO3, recompute=Recompute.FULL)


def evaluated(model, cluster, plan, *, batch, seq_len=4096, **choices):
    """A plan's estimates; micro-batches follow from the batch (sequences per step)."""
    question = planner.ask(model, cluster, planner.Choices(seq_len=seq_len, global_batch_size=batch, **choices))
    return planner.evaluate(question, replace(plan, num_microbatches=batch // plan.micro_batch_size // plan.dp))


def best(model, cluster, **choices):
    """The plan that is recommended."""
    return planner.recommend(model, cluster, planner.Choices(**choices), top=1).best


def speed(ranked):
    """Tokens per second and GPU."""
    return float(ranked.speed.tokens_per_s_per_gpu)


def test_weak_scaling_of_full_sharding_falls_smoothly_to_16384_gpus():
    nodes = [2**power for power in range(12)]
    runs = [
        evaluated("llama-3.1-8b", f"{n}xdgx-h100", replace(FSDP, dp_shard=8 * n), batch=16 * n, seq_len=8192)
        for n in nodes
    ]
    speeds = [speed(run) for run in runs]
    assert all(0.6 * before < after <= before for before, after in pairwise(speeds))
    assert speeds[-1] < 0.6 * speeds[0]


# Smallest: where the plan that is fastest on many nodes fits; on fewer, states leave it no room.
@pytest.mark.parametrize(("model", "smallest"), [("llama-3.1-8b", 1), ("llama-3.1-70b", 16)])
def test_weak_scaling_of_the_best_plan_never_gains_and_loses_little(model, smallest):
    nodes = (smallest, 16 * smallest, 256 * smallest)
    speeds = [speed(best(model, f"{n}xdgx-h100", seq_len=8192, global_batch_size=32 * n)) for n in nodes]
    assert all(0.9 * before < after <= 1.01 * before for before, after in pairwise(speeds))


def test_attention_takes_over_as_sequences_grow():
    plan = replace(FSDP, dp_shard=8)
    runs = [evaluated("llama-3.1-8b", "1xdgx-h100", plan, batch=8, seq_len=2**k) for k in (10, 12, 14, 16, 18)]
    shares = [float(run.time.attention / run.time.total) for run in runs]
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[-1] > 0.6


def test_context_parallelism_appears_with_long_sequences():
    degrees = [
        best("llama-3.1-8b", "8xdgx-h100", seq_len=2**power, global_batch_size=max(2**22 >> power, 1)).plan.cp
        for power in (11, 17, 20)
    ]
    assert degrees[0] == 1
    assert degrees[1] >= 2
    assert degrees[2] >= 4


def test_tensor_parallelism_costs_more_at_every_doubling_and_most_across_the_node():
    exposed = []
    for tp in (1, 2, 4, 8, 16):
        plan = replace(FSDP, tp=tp, dp_shard=64 // tp, sequence_parallel=int(tp > 1))
        exposed.append(float(evaluated("llama-3.1-70b", "8xdgx-h100", plan, batch=64, seq_len=8192).time.tp_exposed))
    inside, across = exposed[:4], exposed[4]
    assert exposed[0] == 0
    assert inside == sorted(inside)
    assert across > 2 * exposed[3]


def test_larger_micro_batches_fill_a_small_model_s_kernels_and_its_memory():
    runs = [
        evaluated(
            "qwen2.5-0.5b",
            "1xdgx-h100",
            planner.Plan(dp_replicate=8, micro_batch_size=size, compiled=0),
            batch=256,
            seq_len=512,
        )
        for size in (1, 2, 4, 8, 16, 32)
    ]
    times, peaks = [run.step_time for run in runs], [run.peak for run in runs]
    assert times == sorted(times, reverse=True)
    assert peaks == sorted(peaks)
    assert float(runs[0].time.host) > 0.5 * times[0]
    assert float(runs[-1].time.host) == 0


def test_a_faster_network_never_slows_the_best_plan_and_changes_its_kind():
    networks = ("tcp-1", "tcp-10", "roce-25x1", "roce-100x1", "roce-400x1", "roce-100x8", "roce-400x8", "ib-xdr800x8")
    plans = [best("llama-2-13b", "4xdgx-h100", network=name, global_batch_size=512) for name in networks]
    assert all(after.step_time <= 1.001 * before.step_time for before, after in pairwise(plans))
    exposed = [float((plan.time.dp_exposed + plan.time.pp_exposed) / plan.step_time) for plan in plans]
    assert exposed[1] > 2 * exposed[-1]
    assert plans[1].name != plans[-1].name


@pytest.mark.parametrize(
    ("sharding", "volume"), [(Sharding.ZERO1, 1.0), (Sharding.ZERO3_KEEP, 1.0), (Sharding.ZERO3, 1.5)]
)
def test_on_a_slow_network_the_step_takes_as_long_as_its_bytes(sharding, volume):
    ddp, sharded = planner.Plan(tp=8, dp_replicate=4), planner.Plan(tp=8, dp_shard=4, sharding=sharding)
    replicas, shards = (
        evaluated("llama-2-7b", "4xdgx-a100", plan, batch=4, network="tcp-1", stack="deepspeed").time
        for plan in (ddp, sharded)
    )
    assert float(shards.dp_exposed / replicas.dp_exposed) == pytest.approx(volume, rel=0.05)


def test_full_sharding_repeats_its_transfers_with_every_micro_batch_and_replicas_do_not():
    sharded, replicas = replace(FSDP, dp_shard=4, tp=8), planner.Plan(dp_replicate=4, tp=8)
    once, often = (
        [
            float(evaluated("llama-3.2-1b", "4xdgx-a100", plan, batch=batch, network="tcp-1").time.dp_exposed)
            for plan in (sharded, replicas)
        ]
        for batch in (4, 32)
    )
    assert often[0] == pytest.approx(8 * once[0], rel=0.02)
    assert often[1] == pytest.approx(once[1], rel=0.02)


def test_uc84_full_sharding_needs_several_100_gb_per_second_a_node():
    plan = replace(FSDP, dp_shard=64, micro_batch_size=2)
    slow, usable, ideal = (
        speed(evaluated("llama-2-13b", "8xdgx-a100", plan, batch=128, network=f"roce-100x{n}")) for n in (1, 4, 8)
    )
    fastest = speed(evaluated("llama-2-13b", "8xdgx-a100", plan, batch=128, network="ib-xdr800x8"))
    assert slow < 0.5 * fastest
    assert usable > 0.75 * fastest
    assert ideal > 0.9 * fastest


def test_more_memory_never_slows_the_best_plan():
    question = planner.ask("llama-3.1-8b", "1xdgx-h100")
    times = []
    for factor in (0.5, 0.75, 1.0, 1.5, 3.0):
        pools = []
        for pool in question.cluster.pools:
            part = pool.node.accelerator
            part = replace(part, memory=factor * part.memory, usable_memory=factor * part.usable_memory)
            pools.append(replace(pool, node=replace(pool.node, accelerator=part)))
        machines = replace(question.cluster, pools=tuple(pools))
        times.append(best(question.model, machines, seq_len=8192, global_batch_size=32).step_time)
    assert times == sorted(times, reverse=True)


def test_generations_differ_by_less_than_their_peaks_and_by_more_than_their_memory():
    plan = replace(FSDP, dp_shard=8)
    a100, h100, b200 = (
        speed(evaluated("llama-3.1-8b", f"1xdgx-{name}", plan, batch=64)) for name in ("a100", "h100", "b200")
    )
    assert 3350 / 2039 < h100 / a100 < 989 / 312
    assert 1.5 < b200 / h100 < 2250 / 989


def test_the_slowest_part_sets_the_pace_of_a_mixed_cluster(tmp_path):
    mixed = tmp_path / "mixed.toml"
    mixed.write_text('[[pools]]\nnodes = 1\nnode = "dgx-h100"\n[[pools]]\nnodes = 1\nnode = "dgx-a100"\n')
    plan = replace(FSDP, dp_shard=16)
    both, slow = (evaluated("llama-3.1-8b", cluster, plan, batch=64) for cluster in (str(mixed), "2xdgx-a100"))
    assert both.step_time >= 0.99 * slow.step_time


def test_a_mixture_is_slower_than_its_active_and_faster_than_its_total_size():
    plan = replace(FSDP, dp_shard=8)
    active, total = (speed(evaluated(name, "1xdgx-h100", plan, batch=64)) for name in ("qwen2.5-3b", "qwen3-32b"))
    mixture = speed(evaluated("qwen3-30b-a3b", "1xdgx-h100", replace(plan, ep=8), batch=64))
    assert total < mixture < active


def test_experts_are_divided_by_their_own_degrees_not_by_tensor_parallelism():
    plan = planner.Plan(tp=2, ep=4, dp_shard=4, sharding=Sharding.ZERO1, sequence_parallel=1)
    whole, halved = (
        evaluated("mixtral-8x7b", "1xdgx-h100", replace(plan, expert_tp=n), batch=16).memory for n in (1, 2)
    )
    experts = 32 * 8 * 3 * 4096 * 14336
    fewer = experts / 4 - experts / 8
    assert float(whole.weights - halved.weights) == pytest.approx(4 * fewer, rel=0.01)


def test_the_fullest_stage_counts_not_the_average():
    plan = planner.Plan(pp=4, schedule=Schedule.ONE_F_ONE_B, dp_shard=2, sharding=Sharding.ZERO1)
    run = evaluated("llama-3.1-8b", "1xdgx-h100", plan, batch=64)
    asked = run.question
    moments = planner.memory_timeline(asked.model, run.plan, asked.workload, asked.stack)
    fullest = {role: max(float(use.peak) for (of, _), use in moments.items() if of is role) for role in Role}
    assert run.peak == max(fullest.values())
    assert run.peak > 1.1 * np.mean(list(fullest.values()))


def test_adapters_spare_the_weight_gradients_and_most_of_the_state():
    plan = planner.Plan(dp_replicate=8, recompute=Recompute.FULL)
    full, lora = (evaluated("llama-3.1-8b", "1xdgx-h100", plan, batch=64, method=name) for name in ("full", "lora"))
    assert float(lora.time.matmul / full.time.matmul) == pytest.approx(2 / 3, rel=0.03)
    assert 0.7 < lora.step_time / full.step_time < 1
    state = [float(run.memory.weights + run.memory.gradients + run.memory.optimizer) for run in (full, lora)]
    assert state[1] / state[0] == pytest.approx(2 / 16, rel=0.1)


@pytest.mark.parametrize("cluster", ["1xdgx-h100", "1xdgx-b200"])
def test_fp8_gains_but_less_than_twice(cluster):
    plan = replace(FSDP, dp_shard=8)
    bf16, fp8 = (evaluated("llama-3.1-8b", cluster, plan, batch=64, precision=name) for name in ("bf16", "fp8"))
    assert 1.1 < speed(fp8) / speed(bf16) < 1.7
    assert 1 < float(bf16.time.matmul / fp8.time.matmul) < 2


@pytest.mark.parametrize("stack", ["torchtitan", "megatron-core"])
def test_more_recomputation_takes_more_time_and_less_memory(stack):
    plan = planner.Plan(dp_shard=8, sharding=Sharding.ZERO3)
    runs = [
        evaluated("llama-3.1-8b", "1xdgx-h100", replace(plan, recompute=mode), batch=64, attention="math", stack=stack)
        for mode in Recompute
    ]
    times, peaks = [run.step_time for run in runs], [run.peak for run in runs]
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)
    assert times[-1] < 1.4 * times[0]


def test_offloading_moves_state_to_the_host_and_takes_time():
    plan = replace(FSDP, dp_shard=8)
    runs = [evaluated("llama-3.1-8b", "1xdgx-h100", replace(plan, offload=kind), batch=64) for kind in Offload]
    assert [run.step_time for run in runs] == sorted(run.step_time for run in runs)
    assert [run.peak for run in runs] == sorted((run.peak for run in runs), reverse=True)
    hosts = [float(run.memory.host) for run in runs]
    assert hosts[0] == 0
    assert hosts[1] == hosts[2] == pytest.approx(16 / 8 * 8.03e9, rel=0.01)


def test_reducing_hybrid_shards_once_beats_full_sharding_on_a_slow_network():
    full = planner.Plan(dp_shard=16, sharding=Sharding.ZERO3)
    hybrid = planner.Plan(dp_shard=8, dp_replicate=2, sharding=Sharding.ZERO3, gradient_sync=GradientSync.ONCE)
    times = [
        evaluated("llama-3.1-8b", "2xdgx-h100", plan, batch=64, network="roce-100x1").step_time
        for plan in (full, hybrid)
    ]
    assert times[1] < 0.5 * times[0]


def test_a_ring_and_ulysses_divide_activations_alike():
    whole, ring, ulysses = (
        evaluated(
            "llama-3.1-8b",
            "1xdgx-h100",
            planner.Plan(cp=cp, context_kind=kind, dp_shard=8 // cp, sharding=Sharding.ZERO3),
            batch=8,
            seq_len=32768,
        ).memory
        for cp, kind in ((1, ContextKind.NONE), (4, ContextKind.RING), (4, ContextKind.ULYSSES))
    )
    assert float(ring.activations) == pytest.approx(float(whole.activations) / 4, rel=0.05)
    assert np.isclose(float(ring.activations), float(ulysses.activations), rtol=0.05)
