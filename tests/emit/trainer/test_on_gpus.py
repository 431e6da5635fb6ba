"""What only GPUs can show: the same parity over NCCL, and memory as the allocator counts it."""

import pytest
import torch

from .conftest import _processes_of, write_plan
from .test_parity import EIGHT, PLANS, filled

GPUS = torch.cuda.device_count()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(GPUS == 0, reason="needs a GPU")]


def test_one_gpu_trains_and_counts_its_memory(run, tmp_path):
    plan = write_plan(tmp_path / "plan", {"micro_batch_size": 16, "recompute": "selective"}, precision="bf16")
    found = run(plan, "--device", "cuda", "--compile")
    assert set(found.exits) == {0}, found.errors
    assert found.losses[-1] < found.losses[0]
    summary = found.records[-1]
    assert 0 < summary["peak_allocated_gib"] <= summary["peak_reserved_gib"] < 8


@pytest.mark.parametrize("name", [*PLANS, *EIGHT])
def test_a_plan_trains_over_nccl_as_one_process_does(run, tmp_path, name):
    plan = write_plan(tmp_path / "plan", filled((PLANS | EIGHT)[name]))
    if _processes_of(plan) > GPUS:
        pytest.skip(f"needs {_processes_of(plan)} GPUs")
    alone = run(write_plan(tmp_path / "alone", {"micro_batch_size": 16}), "--device", "cuda", name="alone")
    found = run(plan, "--device", "cuda", name="plan")
    assert set(found.exits) == {0}, found.errors
    assert found.losses == pytest.approx(alone.losses, abs=1e-4)
    assert found.norms == pytest.approx(alone.norms, rel=1e-3)
