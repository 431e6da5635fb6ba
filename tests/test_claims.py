"""Two practitioners' guides, checked by computation; and what independent derivations found wrong once."""

from dataclasses import replace

import pytest

import planner
from planner.spec.plan import Offload, Recompute, Schedule, Sharding

FSDP = planner.Plan(sharding=Sharding.ZERO3, recompute=Recompute.FULL)


def evaluated(model, cluster, plan, *, batch, seq_len=4096, **choices):
    """A plan's estimates; micro-batches follow from the batch (sequences per step)."""
    question = planner.ask(model, cluster, planner.Choices(seq_len=seq_len, global_batch_size=batch, **choices))
    return planner.evaluate(question, replace(plan, num_microbatches=batch // plan.micro_batch_size // plan.dp))


def test_claim_a3_64_gpus_on_10_gigabit_are_slower_than_4_with_nvlink():
    many = evaluated(
        "llama-2-7b",
        "8xdgx-a100",
        planner.Plan(dp_shard=64, sharding=Sharding.ZERO1, recompute=Recompute.FULL),
        batch=64,
        network="tcp-10",
    )
    few = evaluated("llama-2-7b", "4xa100-sxm-80gb", replace(FSDP, dp_shard=4), batch=4)
    assert many.speed.tokens_per_s < few.speed.tokens_per_s


def test_claim_a4_nvlink_gains_more_over_pcie_the_wider_tensor_parallelism_is():
    gains = []
    for tp in (2, 4, 8):
        plan = planner.Plan(tp=tp, recompute=Recompute.FULL)
        nvlink, pcie = (
            evaluated("llama-2-7b", f"{tp}xa100-{form}-80gb", plan, batch=8).step_time for form in ("sxm", "pcie")
        )
        gains.append(pcie / nvlink)
    assert gains == sorted(gains)
    assert gains[0] > 1.2
    assert gains[-1] > 2


def test_claim_a6_a_pipeline_of_16_keeps_80_percent_with_60_micro_batches_or_fewer_interleaved():
    def kept(batch, **fields):
        run = evaluated("llama-2-70b", "2xdgx-h100", planner.Plan(pp=16, **fields), batch=batch)
        return 1 - float(run.time.bubble / run.time.total)

    plain = {"schedule": Schedule.ONE_F_ONE_B}
    assert kept(60, **plain) == pytest.approx(0.8, abs=0.03)
    assert kept(16, **plain) < 0.6
    assert kept(32, schedule=Schedule.INTERLEAVED, virtual_stages=5) > 0.85


def test_claims_b1_b8_b14_full_training_in_mixed_precision_does_not_fit_where_it_was_said_to():
    ddp = planner.Plan(dp_replicate=8, recompute=Recompute.FULL)
    assert evaluated("llama-2-7b", "1xdgx-a100", ddp, batch=8).verdict.name == "DOES_NOT_FIT"
    assert evaluated("llama-2-7b", "1xdgx-a100", ddp, batch=8, state="16bit").verdict.name == "FITS"
    assert evaluated("llama-2-13b", "1xdgx-a100", ddp, batch=8).verdict.name == "DOES_NOT_FIT"
    one_box = replace(FSDP, dp_shard=8)
    assert evaluated("llama-2-70b", "1xdgx-h100", one_box, batch=8).verdict.name == "DOES_NOT_FIT"
    assert evaluated("llama-2-70b", "1xdgx-h100", one_box, batch=8, method="lora").verdict.name == "FITS"


def test_claim_b9_weights_kept_gathered_do_not_cure_70b_of_running_out_of_memory():
    shard = replace(FSDP, dp_shard=32)
    released, kept = (
        evaluated("llama-2-70b", "4xdgx-a100", replace(shard, sharding=kind), batch=32).verdict.name
        for kind in (Sharding.ZERO3, Sharding.ZERO3_KEEP)
    )
    assert [released, kept] == ["FITS", "DOES_NOT_FIT"]


def test_claim_b15_70b_on_four_consumer_cards_is_for_qlora_or_for_a_terabyte_of_host_memory():
    plan = replace(FSDP, dp_shard=4)
    qlora = evaluated("llama-2-70b", "4xrtx-4090", plan, batch=4, seq_len=1024, method="qlora")
    full = evaluated("llama-2-70b", "4xrtx-4090", replace(plan, offload=Offload.ALL), batch=4, seq_len=1024)
    assert qlora.verdict.name == "FITS"
    assert 4 * float(full.memory.host) > 1e12


def test_zero2_that_accumulates_reduces_with_every_micro_batch_or_holds_whole_gradients():
    plan = planner.Plan(dp_shard=16, sharding=Sharding.ZERO2)
    once, often = (evaluated("llama-3.1-8b", "2xdgx-h100", plan, batch=batch, network="tcp-10") for batch in (16, 128))
    whole = float(often.memory.gradients) >= 2 * 8.03e9
    assert whole or float(often.time.dp_exposed) > 4 * float(once.time.dp_exposed)


def test_hardware_utilisation_counts_selectively_recomputed_products():
    plan = planner.Plan(dp_shard=8, sharding=Sharding.ZERO3, recompute=Recompute.SELECTIVE)
    rates = evaluated("llama-3.1-8b", "1xdgx-h100", plan, batch=64, stack="torchtitan").speed
    assert rates.hfu > 1.02 * rates.mfu


def test_scores_that_are_not_kept_are_computed_again():
    plan = planner.Plan(dp_shard=8, sharding=Sharding.ZERO3, recompute=Recompute.SELECTIVE)
    flash, scores = (
        evaluated("llama-3.1-8b", "1xdgx-h100", plan, batch=64, attention=kind, stack="torchtitan")
        for kind in ("flash", "math")
    )
    assert float(scores.memory.activations) > 2 * float(flash.memory.activations) or float(
        scores.time.recompute
    ) > 1.5 * float(flash.time.recompute)


def test_qlora_gathers_as_many_bytes_as_it_sends():
    lora, qlora = (
        evaluated("llama-2-70b", "1xdgx-a100", replace(FSDP, dp_shard=8), batch=8, method=name).memory.gather_buffers
        for name in ("lora", "qlora")
    )
    assert float(qlora) < 0.6 * float(lora)


def test_dropout_takes_time():
    question = planner.ask("gpt2-xl", "1xdgx-a100", planner.Choices(global_batch_size=8))
    plan = planner.Plan(dp_replicate=8)
    without, with_it = (
        planner.evaluate(replace(question, workload=replace(question.workload, dropout=value)), plan)
        for value in (False, True)
    )
    assert with_it.step_time > without.step_time


def test_cards_without_peer_access_keep_their_bandwidth_from_4_to_8():
    plan = replace(FSDP, recompute=Recompute.NONE)
    four, eight = (
        float(evaluated("llama-3.2-1b", f"{n}xrtx-4090", replace(plan, dp_shard=n), batch=n).time.dp_exposed)
        for n in (4, 8)
    )
    assert eight / four == pytest.approx((7 / 8) / (3 / 4), rel=0.1)


def test_adapters_are_as_many_as_peft_counts():
    memory = evaluated("llama-2-7b", "1xa100-sxm-80gb", planner.Plan(), batch=2, method="lora", lora_rank=16).memory
    assert float(memory.gradients) / 4 == pytest.approx(39_976_960, rel=0.01)
