"""Bytes that cross a real link in a step equal the predicted communication volume.

Two network namespaces joined by a veth stand for two nodes; its counter tells what was sent, however busy the machine
is. Gloo's own coefficients: it all-reduces, and so sends twice as much as a ring would, for a reduce-scatter.
"""

import ctypes
import os
import shutil
import subprocess
from contextlib import suppress

import pytest

from planner.estimate.records import Role
from planner.estimate.volume import communication_volume
from planner.spec.plan_file import read_plan_file

from .conftest import DENSE, _process, _processes_of, write_plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"),
]

CLONE_NEWNET = 0x40000000
NODES = ("planner-a", "planner-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINKS = ("veth-a", "veth-b")
TOLERANCE = 0.01
HEADERS = 14 + 20 + 32
"""Bytes of Ethernet, IP and TCP headers (with time stamps) of a packet; an acknowledgement is nothing else."""
STEPS = 6
SETTLED = 2
"""Steps before which sockets are opened and shapes are agreed on."""
CONFIG = DENSE | {"hidden_size": 192, "intermediate_size": 512, "vocab_size": 2048}
BATCH = 8

PIPELINE = {"pp": 2, "num_microbatches": 4}
PLANS = {
    "ddp": ({"dp_replicate": 2}, "dp_replicate"),
    "ddp, 2 micro-batches": ({"dp_replicate": 2, "num_microbatches": 2}, "dp_replicate"),
    "fsdp": ({"dp_shard": 2, "sharding": "zero3"}, "dp_shard"),
    "fsdp, 4 micro-batches": ({"dp_shard": 2, "sharding": "zero3", "num_microbatches": 4}, "dp_shard"),
    "fsdp that keeps parameters": ({"dp_shard": 2, "sharding": "zero3_keep"}, "dp_shard"),
    "fsdp, all recomputed": ({"dp_shard": 2, "sharding": "zero3", "recompute": "full"}, "dp_shard"),
    "fsdp in bf16": ({"dp_shard": 2, "sharding": "zero3"}, "dp_shard"),
    "hsdp": ({"dp_shard": 2, "dp_replicate": 2, "sharding": "zero3"}, "dp_replicate"),
    "tp with sequence parallelism": ({"tp": 2, "sequence_parallel": 1}, "tp"),
    "tp, 2 micro-batches, all recomputed": (
        {"tp": 2, "sequence_parallel": 1, "num_microbatches": 2, "recompute": "full"},
        "tp",
    ),
    "1f1b": (PIPELINE | {"schedule": "one_f_one_b"}, "pp"),
    "interleaved": (PIPELINE | {"schedule": "interleaved", "virtual_stages": 2}, "pp"),
    "cp by all-gather": ({"cp": 2, "context_kind": "all_gather"}, "cp dp_shard"),
    "cp by all-gather, all recomputed": ({"cp": 2, "context_kind": "all_gather", "recompute": "full"}, "cp dp_shard"),
    "cp by Ulysses": ({"cp": 2, "context_kind": "ulysses"}, "cp dp_shard"),
    "tp inside, dp across": ({"tp": 2, "sequence_parallel": 1, "dp_replicate": 2}, "dp_replicate"),
    "tp inside, fsdp across": ({"tp": 2, "sequence_parallel": 1, "dp_shard": 2, "sharding": "zero3"}, "dp_shard"),
    "dp inside, tp across": (
        {"tp": 2, "sequence_parallel": 1, "dp_replicate": 2, "rank_order": "dp_tp_cp_pp"},
        "tp",
    ),
    "tp inside, pp across": (PIPELINE | {"schedule": "one_f_one_b", "tp": 2, "sequence_parallel": 1}, "pp"),
    "fsdp inside, pp across": (PIPELINE | {"schedule": "one_f_one_b", "dp_shard": 2, "sharding": "zero3_keep"}, "pp"),
    "pp inside, fsdp across": (
        PIPELINE | {"schedule": "one_f_one_b", "dp_shard": 2, "sharding": "zero3_keep", "rank_order": "tp_pp_cp_dp"},
        "dp_shard",
    ),
}
"""A plan, and the groups whose ranks sit on both nodes."""


@pytest.fixture(scope="module")
def two_nodes():
    """Two namespaces with a link between them, taken away afterwards."""

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def remove():
        for node in NODES:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", node)

    remove()
    for node in NODES:
        ip("netns", "add", node)
    ip("link", "add", LINKS[0], "netns", NODES[0], "type", "veth", "peer", "name", LINKS[1], "netns", NODES[1])
    for node, address, link in zip(NODES, ADDRESSES, LINKS, strict=True):
        ip("-n", node, "addr", "add", f"{address}/24", "dev", link)
        ip("-n", node, "link", "set", link, "up")
        ip("-n", node, "link", "set", "lo", "up")
    yield
    remove()


def sent_bytes(link):
    """Payload that an interface of this process's namespace has sent; packets are many and small on a busy machine."""
    with open("/proc/thread-self/net/dev", encoding="ascii") as table:
        line = next(line for line in table if line.strip().startswith(f"{link}:"))
    size, packets = (int(word) for word in line.split(":")[1].split()[8:10])
    return size - packets * HEADERS


def on_a_node(rank, world_size, output, counts, arguments):
    """One process of a run inside its node's namespace; the first of each node notes the counter after each step.

    Barriers about the reading: what still waits in a socket belongs to the step before, and no rank is a step ahead.
    """
    local = world_size // 2
    node = rank // local
    with open(f"/var/run/netns/{NODES[node]}", encoding="ascii") as handle:
        assert ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET) == 0
    os.environ["GLOO_SOCKET_IFNAME"] = LINKS[node]
    from torch import distributed

    from planner.emit.trainer import record

    original = record.Recorder.step

    def counted(self, number, *rest, **values):
        distributed.barrier()
        if rank % local == 0:
            with open(f"{counts}.{node}", "a", encoding="ascii") as file:
                file.write(f"{sent_bytes(LINKS[node])}\n")
        distributed.barrier()
        original(self, number, *rest, **values)

    record.Recorder.step = counted
    _process(rank, world_size, 29533, output, arguments, address=ADDRESSES[0])


@pytest.fixture
def bytes_per_step(two_nodes, processes, tmp_path):
    """A function that runs a plan over the link: bytes that each of the two nodes sends in a step."""

    def measure(plan):
        size, counts, record = _processes_of(plan), tmp_path / "counts", tmp_path / "run.jsonl"
        arguments = [str(plan), "--device", "cpu", "--steps", str(STEPS), "--record", str(record)]
        rest = (size, tmp_path / "out", counts, arguments)
        started = [processes.Process(target=on_a_node, args=(rank, *rest)) for rank in range(size)]
        for process in started:
            process.start()
        for process in started:
            process.join(300)
        said = "".join((tmp_path / f"out.{rank}").read_text() for rank in range(size))
        assert [process.exitcode for process in started] == [0] * size, said
        read = [[int(line) for line in (tmp_path / f"counts.{node}").read_text().split()] for node in (0, 1)]
        return [(each[-1] - each[SETTLED]) / (STEPS - 1 - SETTLED) for each in read]

    return measure


@pytest.mark.parametrize("name", PLANS)
def test_the_bytes_on_the_wire_are_those_predicted(bytes_per_step, tmp_path, name):
    plan, groups = PLANS[name]
    sequences = BATCH // (plan.get("dp_shard", 1) * plan.get("dp_replicate", 1) * plan.get("num_microbatches", 1))
    workload = {"precision": "bf16" if "bf16" in name else "fp32"}
    path = write_plan(tmp_path / "plan", plan | {"micro_batch_size": sequences}, config=CONFIG, **workload)
    contents = read_plan_file(path)
    measured = bytes_per_step(path)
    for role, sent in zip((Role.FIRST, Role.LAST), measured, strict=True):
        volume = communication_volume(
            contents.model, contents.plan, contents.workload, contents.stack, role=role, library="gloo"
        )
        predicted = _processes_of(path) // 2 * sum(float(getattr(volume, group).total) for group in groups.split())
        print(f"{name}: {role.name.lower()} sent {sent:,.0f}, predicted {predicted:,.0f}: {sent / predicted - 1:+.2%}")
        assert sent == pytest.approx(predicted, rel=TOLERANCE)
