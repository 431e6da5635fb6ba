"""Files as people have them, written for a case."""

import pytest

from planner import Choices, ask
from planner.answer.diagnosis.diagnose import diagnose
from planner.answer.diagnosis.records import Asked
from planner.answer.evaluate import evaluate
from planner.answer.fits import judged_plan
from planner.answer.plan_files import write_plan

HEADER = "#  size   count   type   redop   root   time   algbw   busbw #wrong   time   algbw   busbw #wrong\n"
FACTOR = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "sendrecv": lambda _: 1.0,
}


def nccl_tests(hosts, busbw, *, per_host=1, collective="all_reduce", gpu="NVIDIA H100 80GB HBM3", small=20.0):
    """A log of nccl-tests on some hosts: GB/s from 64 MiB up, microseconds below."""
    ranks = len(hosts) * per_host
    lines = [
        f"# Collective test starting: {collective}_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1 step: 2(factor)",
    ]
    lines.append("# Using devices")
    for rank in range(ranks):
        host = hosts[rank // per_host]
        lines.append(f"#  Rank {rank:2} Group  0 Pid 100 on {host} device {rank % per_host} [0000:06:00] {gpu}")
    rows = []
    for size in (2**12, 2**14, 2**26, 2**28, 2**30):
        time = small if size < 2**20 else size * FACTOR[collective](ranks) / busbw / 1e3
        rate = size / time / 1e3
        row = f"{time:.1f} {rate:.3f} {rate * FACTOR[collective](ranks):.3f} 0"
        rows.append(f"{size} {size // 4} float {'none' if collective != 'all_reduce' else 'sum'} -1 {row} {row}")
    return "\n".join([*lines, HEADER + "\n".join(rows), "# Avg bus bandwidth    : 1", ""])


def torchtitan(tokens_per_s_per_gpu, *, memory=40.0, steps=30):
    """A log of torchtitan, compilation in its first steps."""
    return "".join(
        f"[rank0]:[titan] 2025-01-01 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 7.23  \x1b[33mmemory: "
        f"{memory:.2f}GiB({memory / 79.1:.2%})  \x1b[34mtps: {100 if step < 3 else int(tokens_per_s_per_gpu):,}  "
        "\x1b[36mtflops: 412.36\x1b[39m\n"
        for step in range(1, steps + 1)
    )


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
        return path

    return write


@pytest.fixture
def plan(tmp_path):
    """Writes the plan.json that --fix means, and returns its path and the plan with its estimates."""

    def write(model, cluster, fix, name="plan", **choices):
        question = ask(model, cluster, Choices(fix=fix, **choices))
        ranked = evaluate(question, judged_plan(question))
        return write_plan(ranked, tmp_path / name), ranked

    return write


@pytest.fixture
def judge():
    """Diagnoses files and options."""
    return lambda *files, **options: diagnose(Asked(files=tuple(files), **options))


@pytest.fixture
def fsdp(plan):
    """FSDP over two DGX H100."""
    return plan("llama-3.1-8b", "2xdgx-h100", "dp_shard=16,sharding=zero3,recompute=full,micro_batch_size=2")


def per_gpu(ranked):
    """The tokens per second of one GPU that were to be expected."""
    return float(ranked.speed.tokens_per_s_per_gpu)
