"""Runs that are slow, or not: verdicts come from the prediction's own interval, and causes from what is there."""

import pytest

from planner.answer.diagnosis.faults import FAULTS
from planner.answer.diagnosis.records import Standing, Strength
from planner.answer.evaluate import evaluate
from planner.errors import SpecError
from tests.answer.diagnosis.conftest import nccl_tests, per_gpu, torchtitan

SOCKETS = (
    "gpu01:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\ngpu01:1:1 [0] NCCL INFO NET/Socket : Using "
    "[0]eth0:10.0.0.1<0>\ngpu01:1:1 [0] NCCL INFO Using network Socket\ngpu02:1:1 [0] NCCL INFO Using network "
    "Socket\ngpu01:1:2 [0] NCCL INFO ncclCommInitRank comm 0x4 rank 0 nranks 16 cudaDev 0 busId 26000 commId 0x6 - "
    "Init START\ngpu01:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
)


def names(found):
    return [each.cause for each in found.causes]


@pytest.mark.parametrize(("factor", "standing"), [(1.0, Standing.INSIDE), (1.8, Standing.BETTER)])
def test_inside_the_interval_or_faster_is_healthy(file, judge, fsdp, factor, standing):
    path, ranked = fsdp
    found = judge(path, file("train.log", torchtitan(factor * per_gpu(ranked), memory=10)))
    assert found.verdict == "healthy"
    assert found.sentence.startswith("Healthy: speed ")
    assert found.case.speed.standing is standing


def test_the_band_is_the_prediction_s_interval_and_no_fixed_share(judge, fsdp):
    path, ranked = fsdp
    slowest = 16 * per_gpu(ranked) * ranked.step_time / float(ranked.interval.high)
    assert judge(path, measured_tps=f"{1.02 * slowest:.0f}/total").verdict == "healthy"
    slow = judge(path, measured_tps=f"{0.98 * slowest:.0f}/total")
    assert slow.verdict != "healthy"
    assert slow.case.speed.low == pytest.approx(slowest)


def test_a_bare_number_is_of_one_gpu_or_of_all_whichever_is_nearer_and_that_is_said(judge, fsdp):
    path, ranked = fsdp
    bare = judge(path, measured_tps=f"{per_gpu(ranked):.0f}")
    assert bare.verdict == "healthy"
    assert any("taken as that of one GPU" in each for each in bare.case.notes)
    told = judge(path, measured_tps=f"{per_gpu(ranked):.0f}/total")
    assert told.case.speed.factor == pytest.approx(16, rel=0.01)


@pytest.mark.parametrize("text", ["fast", "-3", "0", "12/node", ""])
def test_a_speed_that_is_none_is_refused_with_what_would_be_right(judge, fsdp, text):
    with pytest.raises(SpecError, match=r"--measured-tps: .*1786/gpu"):
        judge(fsdp[0], measured_tps=text)


def test_sockets_in_the_log_of_a_slow_run_are_its_cause(file, judge, fsdp):
    path, ranked = fsdp
    found = judge(path, file("t.log", torchtitan(0.1 * per_gpu(ranked), memory=10)), file("nccl.log", SOCKETS))
    assert found.verdict == "TCP fallback"
    first = found.causes[0]
    assert first.strength is Strength.SHOWN
    assert "NCCL_IB_DISABLE=1" in first.evidence
    assert "NCCL_IB_DISABLE" in first.setting
    assert first.next_command.startswith("mpirun -np 16 -N 8 -x NCCL_DEBUG=INFO")


def test_a_fault_that_gives_the_measured_step_is_possible_without_any_log(judge, fsdp):
    path, ranked = fsdp
    step = evaluate(*FAULTS["TCP fallback"][-1](ranked)).step_time
    found = judge(path, measured_tps=f"{per_gpu(ranked) * ranked.step_time / step:.0f}/gpu")
    assert found.verdict == "TCP fallback"
    assert found.causes[0].strength is Strength.POSSIBLE
    assert found.sentence.startswith("Possibly TCP fallback: speed ")


def test_a_slow_run_on_one_gpu_is_no_matter_of_the_network(judge, plan):
    path, ranked = plan("llama-3.2-1b", "1xh100-sxm", "micro_batch_size=4,recompute=full")
    found = judge(path, measured_tps=f"{0.3 * per_gpu(ranked):.0f}")
    assert found.case.slow
    assert not {"TCP fallback", "slow link", "shared NIC", "no peer access"} & set(names(found))


def test_full_sharding_across_a_slow_link_is_named_with_the_hybrid_plan_that_is_faster(judge, plan):
    fix = "dp_shard=32,sharding=zero3,recompute=selective,micro_batch_size=1"
    path, ranked = plan("llama-3.1-8b", "4xdgx-a100", fix, network="tcp-100")
    alone = judge(path)
    assert alone.verdict == "full sharding across a slow link"
    assert "dp_replicate=4" in alone.causes[0].setting
    measured = judge(path, measured_tps=f"{per_gpu(ranked):.0f}/gpu")
    assert measured.verdict == "healthy"
    assert "full sharding across a slow link" in measured.sentence
    assert names(measured)[0] == "full sharding across a slow link"


def test_a_pipeline_of_few_micro_batches_has_its_bubble_named(judge, plan):
    fix = "pp=8,tp=1,dp_replicate=1,num_microbatches=8,micro_batch_size=1,schedule=1f1b"
    path, _ = plan("llama-3.1-8b", "1xdgx-h100", fix, global_batch_size=8)
    assert "pipeline bubble" in names(judge(path))


def test_tensor_parallelism_across_nodes_is_named(judge, plan):
    path, _ = plan("llama-3.1-8b", "16xaws-g5", "tp=8,dp_shard=16,sharding=zero1,micro_batch_size=1,recompute=full")
    assert "tensor parallelism over a slow link" in names(judge(path))


def test_recomputing_where_there_is_room_is_named(judge, fsdp):
    found = judge(fsdp[0])
    cause = next(each for each in found.causes if each.cause == "too much recompute")
    assert "recompute=none" in cause.setting or "recompute=selective" in cause.setting
    assert cause.limit


def test_offload_is_named(judge, plan):
    path, _ = plan("llama-3.2-1b", "8xa100-sxm-80gb", "dp_shard=8,sharding=zero3,micro_batch_size=1", offload="all")
    assert "offload on" in names(judge(path))


def test_attention_without_a_fused_kernel_is_named_by_settings_or_log(file, judge, plan):
    path, _ = plan("llama-3.2-1b", "8xa100-sxm-80gb", "dp_shard=8,micro_batch_size=1", attention="math")
    assert "eager attention" in names(judge(path))
    log = file("run.log", "UserWarning: 1Torch was not compiled with flash attention.\n" + torchtitan(5000))
    assert names(judge(log)) == ["eager attention"]


def test_gloo_is_named_and_where_nccl_runs_beside_it_only_possible(file, judge):
    shown = judge(file("a.log", "dist.init_process_group(backend='gloo')\n"))
    assert (shown.verdict, shown.causes[0].strength) == ("gloo instead of NCCL", Strength.SHOWN)
    beside = judge(file("b.log", "[Gloo] Rank 0 is connected to 7 peer ranks.\n" + torchtitan(5000)))
    assert beside.verdict == "nothing to compare"
    assert beside.causes[0].strength is Strength.POSSIBLE


def test_steps_that_grow_and_steps_that_jump_are_told_apart(file, judge):
    def log(times):
        return "".join(f"step {step} step_time: {time:.3f} s\n" for step, time in enumerate(times))

    growing = judge(file("grow.log", log([1 + step / 40 for step in range(60)])))
    jumping = judge(file("jump.log", log([8.0 if step % 10 == 7 else 1.0 for step in range(60)])))
    even = judge(file("even.log", log([1.0] * 60)))
    assert [names(each) for each in (growing, jumping, even)] == [
        ["steps grow as the run goes on"],
        ["uneven steps"],
        [],
    ]


def test_another_accelerator_than_the_plan_s_is_named(file, judge, fsdp):
    path, ranked = fsdp
    log = "CUDA capacity: NVIDIA A100-SXM4-80GB with 79.15GiB memory\n" + torchtitan(0.4 * per_gpu(ranked), memory=10)
    assert judge(path, file("t.log", log)).verdict == "another accelerator than planned"


def test_more_memory_than_planned_is_no_fault_while_there_is_room(file, judge, fsdp):
    path, ranked = fsdp
    found = judge(path, file("t.log", torchtitan(per_gpu(ranked), memory=45)))
    assert found.verdict == "healthy"
    assert "more memory than planned" in names(found)
    full = judge(path, file("f.log", torchtitan(0.5 * per_gpu(ranked), memory=78)))
    assert "memory fragmentation" in names(full)


def test_a_network_measured_well_takes_the_blame_from_the_network(file, judge, fsdp):
    path, ranked = fsdp
    fine = file("all_reduce.log", nccl_tests(["a", "b"], 350.0, per_host=8))
    found = judge(path, fine, measured_tps=f"{0.6 * per_gpu(ranked):.0f}/gpu")
    assert [check.slow for check in found.case.checks] == [False]
    assert found.causes[0].cause not in ("slow link", "TCP fallback", "shared NIC")


def test_tensor_parallelism_inside_nvlink_is_no_slow_link(judge, plan):
    path, _ = plan("llama-3.1-8b", "2xdgx-h100", "tp=8,pp=1,dp_shard=2,sharding=zero1,micro_batch_size=4", seq_len=8192)
    assert "tensor parallelism over a slow link" not in names(judge(path))


def test_a_run_that_no_plan_explains_is_not_held_against_one_that_does_not_fit(judge):
    found = judge(model="llama-3.1-8b", cluster="2xrtx-4090", measured_tps="900")
    assert found.comparisons == ()
    assert found.verdict == "nothing to compare"
    assert any("it is trained otherwise" in each for each in found.case.notes)


@pytest.mark.parametrize("text", ["26,5GiB", "1,2345GiB", ",5GiB"])
def test_a_comma_parts_thousands_only(judge, fsdp, text):
    with pytest.raises(SpecError, match="--measured-mem"):
        judge(fsdp[0], measured_mem=text)
