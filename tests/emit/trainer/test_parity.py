"""Every strategy trains as one process does: the same losses and gradient norms, step by step.

The norm matters: Adam does not feel gradients that are all too large or too small by one factor.
"""

import pytest

from .conftest import DENSE, EXPERTS, LATENT, STEPS, write_plan

BATCH = 16
TOLERANCE = 1e-4

PLANS = {
    "ddp": {"dp_replicate": 2},
    "ddp, 4 micro-batches": {"dp_replicate": 2, "num_microbatches": 4},
    "ddp, reduced with every micro-batch": {"dp_replicate": 2, "num_microbatches": 2, "gradient_sync": "every"},
    "fsdp": {"dp_shard": 2, "sharding": "zero3"},
    "fsdp, 4 micro-batches": {"dp_shard": 2, "sharding": "zero3", "num_microbatches": 4},
    "fsdp, reduced once": {"dp_shard": 2, "sharding": "zero3", "num_microbatches": 4, "gradient_sync": "once"},
    "fsdp that keeps parameters": {"dp_shard": 2, "sharding": "zero3_keep"},
    "fsdp on the host": {"dp_shard": 2, "sharding": "zero3", "offload": "all"},
    "fsdp, full recomputation": {"dp_shard": 2, "sharding": "zero3", "recompute": "full"},
    "fsdp, selective recomputation": {"dp_shard": 2, "sharding": "zero3", "recompute": "selective"},
    "hsdp": {"dp_shard": 2, "dp_replicate": 2, "sharding": "zero3"},
    "tp": {"tp": 2},
    "tp 4 with sequence parallelism": {"tp": 4, "sequence_parallel": 1},
    "tp with recomputation": {"tp": 2, "sequence_parallel": 1, "recompute": "selective", "num_microbatches": 2},
    "tp + fsdp": {"tp": 2, "dp_shard": 2, "sharding": "zero3", "sequence_parallel": 1},
    "tp + dp": {"tp": 2, "dp_replicate": 2, "sequence_parallel": 1},
    "tp + dp, replicas inside": {"tp": 2, "dp_replicate": 2, "rank_order": "dp_tp_cp_pp"},
    "gpipe": {"pp": 2, "schedule": "gpipe", "num_microbatches": 4},
    "1f1b": {"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 4},
    "1f1b, uneven stages": {
        **{"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 4},
        **{"first_stage_layers": 3, "last_stage_layers": 1},
    },
    "interleaved": {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "num_microbatches": 4},
    "pp + fsdp": {"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 4, "dp_shard": 2, "sharding": "zero3_keep"},
    "pp + dp": {"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 2, "dp_replicate": 2},
    "pp + dp, stages close together": {
        **{"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 2, "dp_replicate": 2},
        "rank_order": "tp_pp_cp_dp",
    },
    "pp + tp": {"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 4, "tp": 2, "sequence_parallel": 1},
    "cp by all-gather": {"cp": 2, "context_kind": "all_gather"},
    "cp 4 by Ulysses": {"cp": 4, "context_kind": "ulysses"},
    "cp by all-gather, selective recomputation": {"cp": 2, "context_kind": "all_gather", "recompute": "selective"},
    "cp by Ulysses, full recomputation": {"cp": 2, "context_kind": "ulysses", "recompute": "full"},
    "cp + fsdp": {"cp": 2, "context_kind": "all_gather", "dp_shard": 2, "sharding": "zero3"},
    "cp + tp": {"cp": 2, "context_kind": "all_gather", "tp": 2, "sequence_parallel": 1},
}
EIGHT = {
    "fsdp 8": {"dp_shard": 8, "sharding": "zero3"},
    "dp + tp + pp": {
        **{"dp_replicate": 2, "tp": 2, "sequence_parallel": 1},
        **{"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 4},
    },
    "fsdp + tp + pp, interleaved, all recomputed": {
        **{"dp_shard": 2, "sharding": "zero3_keep", "tp": 2, "sequence_parallel": 1, "recompute": "full"},
        **{"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "num_microbatches": 4},
    },
    "hsdp + tp": {"dp_shard": 2, "dp_replicate": 2, "sharding": "zero3", "tp": 2, "sequence_parallel": 1},
    "fsdp + cp + tp": {
        **{"dp_shard": 2, "sharding": "zero3", "cp": 2, "context_kind": "all_gather"},
        **{"tp": 2, "sequence_parallel": 1},
    },
    "pp 4 + dp": {"pp": 4, "schedule": "gpipe", "num_microbatches": 4, "dp_replicate": 2},
}
WITH_EXPERTS = {
    "ep": {"dp_shard": 2, "ep": 2},
    "ep + fsdp": {"dp_shard": 4, "ep": 2, "sharding": "zero3"},
    "ep, selective recomputation": {"dp_shard": 2, "ep": 2, "sharding": "zero3", "recompute": "selective"},
    "experts on tensor ranks": {"tp": 2, "sequence_parallel": 1},
    "experts divided": {"tp": 2, "expert_tp": 2, "sequence_parallel": 1},
    "experts divided, without sequence parallelism": {"tp": 2, "expert_tp": 2},
    "ep over dp and tp": {"tp": 2, "dp_shard": 2, "ep": 4, "sharding": "zero3", "sequence_parallel": 1},
    "ep + pp": {"dp_shard": 2, "ep": 2, "pp": 2, "schedule": "one_f_one_b", "num_microbatches": 2},
}
WITH_LATENT_ATTENTION = {
    "tp": {"tp": 2, "sequence_parallel": 1},
    "tp without sequence parallelism": {"tp": 2, "expert_tp": 2},
    "ep + fsdp": {"dp_shard": 2, "ep": 2, "sharding": "zero3"},
    "cp": {"cp": 2, "context_kind": "all_gather"},
    "pp": {"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 2},
}


def filled(plan):
    """The plan with micro-batches that make the batch."""
    ranks = plan.get("dp_shard", 1) * plan.get("dp_replicate", 1)
    return plan | {"micro_batch_size": BATCH // ranks // plan.get("num_microbatches", 1)}


@pytest.fixture(scope="module")
def references():
    """Results of one process, by model and workload."""
    return {}


@pytest.fixture
def trains_alike(run, references, tmp_path):
    """Run a plan and one process on the same model, and compare; `only` are options of the plan's run alone."""

    def compare(plan, *options, only=(), config=DENSE, tolerance=TOLERANCE, **workload):
        key = repr((sorted(config.items()), sorted(workload.items()), options))
        if key not in references:
            alone = write_plan(tmp_path / "alone", {"micro_batch_size": BATCH}, config=config, **workload)
            references[key] = run(alone, *options, name="alone")
        found = run(
            write_plan(tmp_path / "plan", filled(plan), config=config, **workload), *options, *only, name="plan"
        )
        wanted = references[key]
        assert len(wanted.losses) == STEPS, wanted.errors
        assert wanted.losses[-1] < wanted.losses[0] - 0.1
        assert set(found.exits) == {0}, found.errors
        assert found.losses == pytest.approx(wanted.losses, abs=tolerance)
        assert found.norms == pytest.approx(wanted.norms, rel=10 * tolerance)
        return found

    return compare


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_trains_as_one_process_does(trains_alike, name):
    trains_alike(PLANS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", EIGHT)
def test_a_plan_of_eight_processes_trains_as_one_does(trains_alike, name):
    trains_alike(EIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_compiled_blocks_train_as_eager_ones_do(trains_alike, recompute):
    plan = {"tp": 2, "sequence_parallel": 1, "dp_shard": 2, "sharding": "zero3", "recompute": recompute}
    trains_alike(plan, only=("--compile",))


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_a_mixture_of_experts_trains_as_one_process_does(trains_alike, name):
    # Without Adam, whose first steps turn rounding of tiny gradients into whole steps and so flip a token's experts.
    trains_alike(WITH_EXPERTS[name], "--lr", "0.3", config=EXPERTS, optimizer="sgd-momentum")


@pytest.mark.parametrize("name", WITH_LATENT_ATTENTION)
def test_latent_attention_trains_as_in_one_process(trains_alike, name):
    trains_alike(WITH_LATENT_ATTENTION[name], "--lr", "0.3", config=LATENT, optimizer="sgd-momentum")


@pytest.mark.parametrize(("schedule", "chunks"), [("zb_v", 1), ("dualpipe_v", 1), ("interleaved_zb", 2)])
def test_schedules_of_torch_that_split_backward_train_as_one_process_does(trains_alike, schedule, chunks):
    kind = {"schedule": "interleaved", "virtual_stages": 2} if chunks > 1 else {"schedule": "gpipe"}
    trains_alike({"pp": 2, "num_microbatches": 4, **kind}, only=("--schedule", schedule))


def test_an_interleaved_plan_runs_under_a_schedule_without_chunks(trains_alike):
    plan = {"pp": 2, "num_microbatches": 4, "schedule": "interleaved", "virtual_stages": 2}
    trains_alike(plan, only=("--schedule", "one_f_one_b"))


@pytest.mark.parametrize(
    "plan",
    [
        {"dp_replicate": 2},
        {"dp_shard": 2, "sharding": "zero3"},
        {"tp": 2, "sequence_parallel": 1},
        {"pp": 2, "schedule": "one_f_one_b", "num_microbatches": 4},
    ],
    ids=["ddp", "fsdp", "tp", "pp"],
)
def test_a_head_tied_to_the_embedding_stays_one_parameter(trains_alike, plan):
    trains_alike(plan, config=DENSE | {"tie_word_embeddings": True})


@pytest.mark.parametrize("plan", [{"dp_replicate": 2}, {"dp_shard": 2, "sharding": "zero3"}], ids=["ddp", "fsdp"])
def test_adapters_train_as_in_one_process(trains_alike, plan):
    trains_alike(plan, method="lora")


@pytest.mark.parametrize("optimizer", ["sgd", "sgd-momentum"])
def test_plain_gradient_descent_trains_alike(run, tmp_path, optimizer):
    alone = run(write_plan(tmp_path / "a", {"micro_batch_size": BATCH}, optimizer=optimizer), "--lr", "0.3")
    plan = filled({"dp_shard": 2, "sharding": "zero3"})
    found = run(write_plan(tmp_path / "b", plan, optimizer=optimizer), "--lr", "0.3", name="b")
    assert found.losses == pytest.approx(alone.losses, abs=TOLERANCE)


@pytest.mark.parametrize(
    "workload",
    [{"precision": "bf16"}, {"precision": "fp16"}, {"precision": "bf16", "state": "16bit"}],
    ids=["bf16", "fp16", "16-bit states"],
)
def test_sixteen_bits_follow_fp32_closely(trains_alike, run, tmp_path, workload):
    exact = run(write_plan(tmp_path / "exact", {"micro_batch_size": BATCH}), name="exact")
    plan = filled({"dp_shard": 2, "sharding": "zero3"})
    found = run(write_plan(tmp_path / "rounded", plan, **workload), name="rounded")
    assert set(found.exits) == {0}, found.errors
    assert found.losses == pytest.approx(exact.losses, abs=0.02)
    assert found.losses != exact.losses
