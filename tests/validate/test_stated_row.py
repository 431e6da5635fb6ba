"""A run written as a row of the table and read again is the same run."""

import pytest

from planner.answer.choices import Choices
from planner.answer.recommend import recommend
from planner.quantities import GIB
from planner.spec.plan import Plan
from planner.validate.columns import Measured
from planner.validate.report import runs_report
from planner.validate.runs import Configuration, read_runs
from planner.validate.stated_row import rows_text, stated_row

CASES = [
    ("llama-3.1-8b", "1xdgx-h100", {"stack": "hf-fsdp"}),
    ("llama-3.1-70b", "8xdgx-h100", {"stack": "torchtitan"}),
    ("llama-3.1-70b", "8xdgx-h100", {"stack": "megatron-core", "fix": "tp=8,recompute=full"}),
    ("mixtral-8x7b", "4xdgx-a100-80gb", {"stack": "megatron-core"}),
    ("llama-3.1-8b", "1xdgx-h100", {"stack": "hf", "method": "lora", "lora_rank": 8, "attention": "sdpa"}),
    ("llama-3.1-8b", "2xdgx-h100", {"stack": "pytorch", "fix": "dp_replicate=2,dp_shard=8", "seq_len": 8192}),
]


def written(path, run, **measured):
    """A run as the only row of a table; what the table cannot say."""
    row, unsaid = stated_row("mine", run)
    path.write_text(rows_text([(row, Measured(**measured))]))
    return unsaid


def best(model, cluster, choices):
    found = recommend(model, cluster, Choices(**choices)).best
    asked = found.question
    return found, Configuration(asked.model, asked.cluster, asked.workload, found.plan, asked.stack)


@pytest.mark.parametrize(("model", "cluster", "choices"), CASES)
def test_a_row_is_read_as_the_run_that_it_was_written_from(model, cluster, choices, tmp_path):
    found, run = best(model, cluster, choices)
    unsaid = written(tmp_path / "runs.csv", run, step_time_s=found.step_time, peak_mem_gib=40, memory_kind="allocated")
    (row,) = runs_report(tmp_path / "runs.csv").rows
    assert unsaid == ()
    assert row.run.assumed == ()
    assert row.run.configuration.plan.as_dict() == {name: int(value) for name, value in found.plan.as_dict().items()}
    assert row.run.configuration.workload == run.workload
    assert row.made.step_time == pytest.approx(float(found.time.total), rel=0.01)
    assert row.run.measured_memory == 40 * GIB


def test_what_no_column_says_is_named(tmp_path):
    _, run = best("llama-3.1-8b", "1xdgx-h100", {"stack": "pytorch", "fix": "pp=2,first_stage_layers=17"})
    unsaid = written(tmp_path / "runs.csv", run)
    assert "first_stage_layers 17 is read as 0" in unsaid


def test_a_run_that_no_row_can_hold_is_said(tmp_path):
    _, run = best("llama-3.1-8b", "1xdgx-h100", {"stack": "pytorch"})
    wrong = Configuration(run.model, run.cluster, run.workload, Plan(tp=3), run.stack)
    (said,) = written(tmp_path / "runs.csv", wrong)
    assert said.startswith("a table cannot hold this run")
    assert read_runs(tmp_path / "runs.csv")[0].skipped
