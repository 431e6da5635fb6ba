"""Runs that ran out of memory, hang, or end with an error."""

import pytest

from planner.answer.diagnosis.records import Strength
from planner.errors import SpecError
from planner.quantities import GIB
from tests.answer.diagnosis.conftest import per_gpu, torchtitan

WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={number}, OpType={call}, NumelIn=65536, NumelOut=524288, Timeout(ms)=600000) ran for 600032 "
    "milliseconds before timing out.\n"
)


def names(found):
    return [each.cause for each in found.causes]


def out_of_memory(tried, *, capacity=79.11, free=0.01, process=79.0, allocated=77.0, unallocated=0.5, frames=""):
    """torch's message, in its present wording."""
    return (
        f"Traceback (most recent call last):\n{frames}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"{tried:.2f} GiB. GPU 0 has a total capacity of {capacity:.2f} GiB of which {free:.2f} GiB is free. "
        f"Including non-PyTorch memory, this process has {process:.2f} GiB memory in use. Of the allocated memory "
        f"{allocated:.2f} GiB is allocated by PyTorch, and {unallocated:.2f} GiB is reserved by PyTorch but "
        "unallocated.\n"
    )


@pytest.fixture
def large(plan):
    """A plan whose activations do not fit, and that fits with recomputation."""
    fix = "dp_shard=8,sharding=zero3,recompute=none,micro_batch_size=4"
    return plan("llama-3.1-8b", "1xdgx-a100", fix, seq_len=4096, global_batch_size=256)


def test_memory_that_is_reserved_and_not_used_is_fragmentation(file, judge):
    found = judge(file("e.txt", out_of_memory(2, allocated=60, unallocated=17)))
    assert found.verdict == "memory fragmentation"
    assert "expandable_segments:True" in found.causes[0].setting
    assert "memory fragmentation" not in names(judge(file("f.txt", out_of_memory(2))))


def test_memory_of_another_process_is_told_from_one_s_own(file, judge):
    found = judge(file("e.txt", out_of_memory(2, process=40, allocated=38)))
    assert found.verdict == "another process on the GPU"
    assert "39.1 GiB are another's" in found.causes[0].evidence


def test_a_plan_that_does_not_fit_names_its_largest_item_and_the_dial(file, judge, large):
    path, ranked = large
    found = judge(file("e.txt", out_of_memory(2)), path)
    assert found.verdict == "activation memory over budget"
    assert found.causes[0].strength is Strength.SHOWN
    assert "--fix recompute=" in found.causes[0].setting
    assert judge(path).verdict == "activation memory over budget"
    assert ranked.peak > ranked.usable


def test_states_that_do_not_fit_are_named_as_states(judge, plan):
    path, _ = plan("llama-3.1-8b", "8xa100-sxm-40gb", "dp_replicate=8,sharding=ddp,recompute=full,micro_batch_size=1")
    found = judge(path)
    assert found.verdict in ("states are not sharded", "model states over budget")
    assert {"states are not sharded", "model states over budget"} <= set(names(found))


@pytest.mark.parametrize(("width", "words"), [(4, "fp32 logits"), (2, "16-bit logits")])
def test_bytes_that_could_not_be_allocated_are_recognised_as_logits(file, judge, plan, width, words):
    path, ranked = plan("llama-3.1-8b", "8xh100-sxm", "dp_shard=8,sharding=zero3,recompute=full,micro_batch_size=4")
    tokens = 4 * ranked.question.workload.seq_len
    size = tokens * ranked.question.model.vocab_size * width / GIB
    frames = '  File "loss.py", line 3, in cross_entropy\n'
    found = judge(file("e.txt", out_of_memory(size, frames=frames)), path)
    cause = next(each for each in found.causes if each.cause == "logits in one piece")
    assert words in cause.evidence
    assert "in loss" in cause.evidence


def test_bytes_of_the_whole_model_mean_that_layers_are_not_wrapped(file, judge, plan):
    path, ranked = plan("llama-3.1-8b", "8xh100-sxm", "dp_shard=8,sharding=zero3,recompute=full,micro_batch_size=1")
    found = judge(file("e.txt", out_of_memory(ranked.question.model.parameters * 2 / GIB)), path)
    assert "the whole model in one piece" in names(found)


def test_the_moment_of_the_error_decides_what_to_turn_where_there_is_no_plan(file, judge):
    def setting(frames):
        return judge(file("e.txt", out_of_memory(1, frames=frames))).causes[-1].setting

    assert "optimizer states" in setting('  File "torch/optim/adamw.py", line 1, in _init_group\n')
    assert "logits" in setting('  File "loss.py", line 3, in cross_entropy\n')
    assert "meta device" in setting("    model = AutoModel.from_pretrained(name)\n")


def test_a_process_that_the_host_killed_ran_out_of_host_memory(file, judge, plan):
    killed = file("k.txt", "  exitcode  : -9 (pid: 12345)\n  traceback : Signal 9 (SIGKILL) received by PID 12345\n")
    found = judge(killed)
    assert (found.verdict, found.causes[0].strength) == ("host out of memory", Strength.LIKELY)
    certain = judge(file("s.txt", "slurmstepd: error: Detected 1 oom_kill event in StepId=3.0.\n"))
    assert certain.causes[0].strength is Strength.SHOWN
    path, _ = plan("llama-3.2-1b", "8xa100-sxm-80gb", "dp_shard=8,sharding=zero3,micro_batch_size=1", offload="all")
    offloaded = next(each for each in judge(killed, path).causes if each.cause == "host out of memory")
    assert "offloading takes" in offloaded.evidence


def test_a_small_shm_of_a_container_is_named_with_docker_s_option(file, judge):
    text = "NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes, No space left on device\n"
    found = judge(file("e.txt", text))
    assert found.verdict == "/dev/shm too small"
    assert "--shm-size" in found.causes[0].setting


def test_of_ranks_that_wait_in_one_collective_the_silent_one_is_named(file, judge):
    text = "".join(WATCHDOG.format(rank=rank, number=5324, call="_ALLGATHER_BASE") for rank in (0, 1, 3))
    found = judge(file("h.txt", "world_size: 4\n" + torchtitan(5000) + text))
    assert found.verdict == "a rank fell behind"
    assert "rank 2 said nothing" in found.causes[0].evidence


def test_ranks_in_different_collectives_call_different_ones(file, judge):
    text = WATCHDOG.format(rank=0, number=77, call="ALLREDUCE") + WATCHDOG.format(rank=1, number=76, call="BROADCAST")
    found = judge(file("h.txt", text))
    assert found.verdict == "ranks call different collectives"
    assert "rank 1 waits in BROADCAST number 76" in found.causes[0].evidence


def test_a_job_that_stops_at_its_first_collective_does_not_reach_its_peers(file, judge):
    found = judge(file("h.txt", WATCHDOG.format(rank=0, number=1, call="ALLREDUCE")))
    assert found.verdict == "ranks do not reach each other"
    assert "NCCL_SOCKET_IFNAME" in found.causes[0].setting


def test_docker_s_bridge_is_recognised_by_its_address(file, judge):
    text = "NCCL WARN socketStartConnect: Connect to 172.17.0.1<41045> failed : Connection refused\n"
    assert "NCCL_SOCKET_IFNAME=^docker0,lo" in judge(file("c.txt", text)).causes[0].setting


@pytest.mark.parametrize(
    ("line", "verdict", "setting"),
    [
        (
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 hca mlx5_3",
            "wrong GID or HCA",
            "NCCL_IB_GID_INDEX",
        ),
        ("NCCL WARN Call to ibv_modify_qp failed with error Invalid argument", "wrong GID or HCA", "NCCL_IB_HCA"),
        ("NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory", "locked memory limited", "ulimit -l"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "hardware error", "drain"),
        ("RuntimeError: EADDRINUSE, message: address already in use", "port in use", "MASTER_PORT"),
        (
            "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device",
            "two ranks on one GPU",
            "LOCAL_RANK",
        ),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED", "no room for libraries", "1 to 2 GiB"),
    ],
)
def test_an_error_that_names_its_cause_is_taken_at_its_word(file, judge, line, verdict, setting):
    found = judge(file("e.txt", f"{line}\n"))
    assert found.verdict == verdict
    assert setting in found.causes[0].setting
    assert "e.txt, line 1" in found.causes[0].evidence


def test_an_error_outweighs_a_speed_that_is_as_expected(file, judge, fsdp):
    path, ranked = fsdp
    text = torchtitan(per_gpu(ranked), memory=10) + WATCHDOG.format(rank=0, number=900, call="ALLREDUCE")
    assert judge(path, file("t.log", text)).verdict == "a rank fell behind"


def test_measured_memory_is_compared_with_what_the_device_reports(judge, fsdp):
    path, ranked = fsdp
    found = judge(path, measured_mem=f"{ranked.peak / GIB:.2f}GiB")
    assert found.verdict == "healthy"
    assert found.case.memory.expected == pytest.approx(ranked.peak / GIB)
    assert judge(path, measured_mem=f"{ranked.peak / 1e9:.2f}GB").case.memory.factor == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("text", ["much", "-1GiB", "0", "3 furlongs"])
def test_a_memory_that_is_none_is_refused_with_what_would_be_right(judge, fsdp, text):
    with pytest.raises(SpecError, match=r"--measured-mem: .*26\.5GiB"):
        judge(fsdp[0], measured_mem=text)


def test_out_of_memory_with_a_known_plan_names_its_fits_command(file, judge):
    path = file("oom.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB.\n")
    found = judge(path, model="llama-3.1-8b", cluster="2xrtx-4090")
    assert all("MODEL CLUSTER" not in each.next_command for each in found.causes)
