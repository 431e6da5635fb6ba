"""Messages of runs that failed, as the libraries have worded them over the years."""

import pytest

from planner.dumps.signs import KINDS, MOST, read_signs
from planner.quantities import GIB

OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 13.55 GiB already "
    "allocated; 1.26 GiB free; 13.60 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)
OLDEST = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity; 9.46 GiB already "
    "allocated; 19.94 MiB free; 10.02 MiB cached)"
)
NEW = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of "
    "79.11 GiB of which 5.62 MiB is free. Including non-PyTorch memory, this process has 79.10 GiB memory in use. Of "
    "the allocated memory 77.45 GiB is allocated by PyTorch, and 1.05 GiB is reserved by PyTorch but unallocated."
)
MISSPELT = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacty of 23.65 "
    "GiB of which 500.00 MiB is free. Process 12345 has 3.10 GiB memory in use. Process 777 has 20.00 GiB memory in "
    "use. Of the allocated memory 17.45 GiB is allocated by PyTorch, with 24.00 MiB allocated in private pools (e.g., "
    "CUDA Graphs), and 2.05 GiB is reserved by PyTorch but unallocated."
)
WATCHDOG = (
    "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1234, "
    "OpType=_ALLGATHER_BASE, NumelIn=65536, NumelOut=524288, Timeout(ms)=600000) ran for 600032 milliseconds before "
    "timing out."
)
KIND_OF = {
    "HIP out of memory. Tried to allocate 1.00 GiB": "gpu_memory",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12345678 bytes.": "gpu_memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "gpu_library_memory",
    "gpu1:1:2 [0] include/alloc.h:205 NCCL WARN Cuda failure 2 'out of memory'": "gpu_library_memory",
    "[titan] WARNING - 3 CUDA memory allocation retries.": "allocator_retries",
    "  exitcode  : -9 (pid: 12345)": "killed",
    "  traceback : Signal 9 (SIGKILL) received by PID 12345": "killed",
    "./run.sh: line 3: 12345 Killed                  python train.py": "killed",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.": "host_memory",
    "[123.4] Out of memory: Killed process 12345 (python) total-vm:123kB": "host_memory",
    "RuntimeError: DataLoader worker (pid 55) is killed by signal: Killed.": "host_memory",
    "RuntimeError: DataLoader worker (pid(s) 55) exited unexpectedly: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. insufficient shared memory (shm)": "shared_memory",
    "NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes, No space left on device": "shared_memory",
    "x:1:2 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out": "ib_setup",
    "NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory": "locked_memory",
    "x:1:2 [0] NCCL INFO NET/IB : No device found.": "no_rdma_device",
    "NCCL WARN socketStartConnect: Connect to 172.17.0.1<41045> failed : Connection refused": "socket_connect",
    "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.": "rendezvous",
    "RuntimeError: The server socket has failed to listen on any local network address.": "port_in_use",
    "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 26000": "duplicate_gpu",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.": "hardware",
    "torch.distributed.init_process_group(backend='gloo')": "gloo",
    "UserWarning: 1Torch was not compiled with flash attention.": "no_flash",
    "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1234> with status=12 opcode=129 hca mlx5_0": "ib_completion",
    "RuntimeError: Detected mismatch between collectives on ranks.": "desync",
    "export CUDA_LAUNCH_BLOCKING=1": "anomaly",
    "[rank0]: Heartbeat monitor timed out! Process will be terminated": "heartbeat",
    "NCCL WARN Could not enable P2P between dev 0(=26000) and dev 1(=2a000)": "peer_access",
    "RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer": "remote_closed",
    "transport/nvls.cc:250 NCCL WARN NVLS : failed to bind memory": "nvls",
    "NCCL WARN Mismatched NCCL version detected : rank 1 version 22203 rank 0 version 22602": "version_mismatch",
    '"offload_optimizer": {"device": "cpu", "pin_memory": true}': "offload",
}


@pytest.mark.parametrize("line", KIND_OF)
def test_a_message_is_of_its_kind(line):
    assert KIND_OF[line] in [sign.kind for sign in read_signs(line)]


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (OLD, {"tried": 2, "capacity": 15.78, "allocated": 13.55, "free": 1.26, "reserved": 13.6}),
        (NEW, {"capacity": 79.11, "process": 79.1, "allocated": 77.45, "unallocated": 1.05}),
        (MISSPELT, {"tried": 1.96, "capacity": 23.65, "other": 23.1, "allocated": 17.45, "unallocated": 2.05}),
        (OLDEST, {"capacity": 10.92, "allocated": 9.46}),
    ],
)
def test_every_wording_of_torch_gives_its_figures(line, figures):
    (sign,) = read_signs(line)
    assert {name: sign.figures[name] / GIB for name in figures} == pytest.approx(figures)


def test_a_time_out_names_its_rank_and_its_collective():
    (sign,) = read_signs(WATCHDOG)
    assert (sign.kind, sign.rank, sign.words["operation"]) == ("watchdog", 3, "_ALLGATHER_BASE")
    assert sign.figures == {"sequence": 1234, "elements": 65536, "timeout_ms": 600000}


@pytest.mark.parametrize(
    ("frames", "moment"),
    [
        ('File "torch/optim/adamw.py", line 1, in _init_group', "optimizer step"),
        ('File "model.py", line 1, in forward\n  File "loss.py", line 2, in cross_entropy', "loss"),
        ('File "model.py", line 1, in forward\n    attn_weights = softmax(scores)', "attention"),
        ('File "train.py", line 1, in step_\n    loss.backward()', "backward"),
        ('File "train.py", line 1, in main\n    model = AutoModel.from_pretrained(name)', "loading"),
        ('File "model.py", line 1, in forward', "forward"),
    ],
)
def test_the_innermost_frame_tells_the_moment(frames, moment):
    text = f"Traceback (most recent call last):\n  {frames}\n{OLD}"
    assert read_signs(text)[-1].words["moment"] == moment


def test_ordinary_lines_are_no_signs():
    text = (
        "step: 10 loss: 2.0 memory: 40GiB(50%)\nUsing flash attention 2\nP2P/direct pointer\nNVLS multicast support is "
        "available on dev 0\nNCCL version 2.22.3\nConnected all rings\nnode001:1:2 [0] NCCL INFO Using network IB\n"
        "checkpoint saved, exit code 0\nbackend: nccl\n"
    )
    assert read_signs(text) == ()


def test_of_a_message_that_every_rank_prints_some_are_kept():
    assert len(read_signs(f"{NEW}\n" * 500)) == MOST


def test_every_kind_of_message_is_tried_here():
    assert KINDS.keys() == {*KIND_OF.values(), "watchdog"}
