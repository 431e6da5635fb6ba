"""Runs read from logs: which steps count, what a run's plan is, the row that `planner validate` reads."""

import json

import pytest

from planner.answer.plan_files import write_plan
from planner.answer.steps.reading import import_steps, write_rows
from planner.answer.steps.records import StepsAsked
from planner.errors import FileFormatError, SpecError
from planner.quantities import GIB
from planner.validate.report import runs_report

from .samples import own_start, own_steps, planned

TITAN_HEAD = (
    "[rank0]:[titan] 2025-11-25 19:44:57,595 - root - INFO - Building device mesh with parallelism: pp=1, "
    "dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1\n"
    "[rank0]:[titan] 2025-11-25 19:44:58,595 - root - INFO - Applied full activation checkpointing to the model\n"
    "[rank0]:[titan] 2025-11-25 19:44:58,838 - root - INFO - Trainer is initialized with local batch size 2, global "
    "batch size 32, gradient accumulation steps 2, sequence length 8192, total steps 100 (warmup 2)\n"
)
TITAN = "[rank0]:[titan] 2025-11-25 19:45:01,441 - root - INFO - step: {step:2}  loss:  8.0277  grad_norm:  1.4604  "
TITAN += "memory: 61.25GiB(77.01%)  tps: {tps:,}  tflops: 400.41  mfu: 40.04%\n"
MEGATRON = (
    " [2024-05-01 12:00:00] iteration {step:8}/     100 | consumed samples:         1280 | elapsed time per iteration "
    "(ms): {ms:.1f} | learning rate: 1.000000E-04 | global batch size:   128 | lm loss: 1.042E+01 |\n"
)
ARGUMENTS = {
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "context_parallel_size": 1, "world_size": 8,
    "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 4096, "micro_batch_size": 1,
    "global_batch_size": 128, "use_distributed_optimizer": True, "sequence_parallel": True, "bf16": True,
    "recompute_granularity": "selective", "optimizer": "adam", "lr": 1e-4, "train_iters": 100, "log_interval": 1,
    "seed": 1234, "swiglu": True, "num_experts": None, "fp8": None,
}  # fmt: skip


def write(path, text):
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The plan.json of a run on eight H100, and the plan."""
    best = planned()
    return write_plan(best, tmp_path_factory.mktemp("plan")), best


def test_a_record_of_the_own_trainer_becomes_a_row_that_validates(plan, tmp_path):
    path, best = plan
    took = 1.1 * best.step_time
    log = write(tmp_path / "run.jsonl", own_start(path) + "\n" + own_steps([9 * took] + [took] * 29))
    found = import_steps([log])
    (run,) = found.runs
    assert run.missing == ()
    assert run.times.median == pytest.approx(took)
    assert (run.times.warm_up, len(run.times.counted)) == (3, 27)
    assert run.memory["reserved"] == 61.3 * GIB
    assert run.predicted_step_time == pytest.approx(best.step_time)
    assert run.error == pytest.approx(1 / 1.1 - 1)
    (row,) = runs_report(write_rows(found, tmp_path / "runs.csv")).rows
    assert row.made.skipped == ""
    assert row.run.assumed == ()
    assert row.run.measured_step_time == pytest.approx(took)
    assert row.run.measured_memory == pytest.approx(61.3 * GIB)
    assert row.made.step_time == pytest.approx(best.step_time, rel=1e-6)


def test_a_plan_json_tells_what_a_log_does_not(plan, tmp_path):
    path, best = plan
    log = write(tmp_path / "any.log", "".join(f"step {n} | step time: 2.5 s\n" for n in range(1, 31)))
    (run,) = import_steps([log], StepsAsked(plan=path)).runs
    assert (run.ranked.name, run.ranks) == (best.name, 8)
    assert run.tokens_per_step == best.question.workload.tokens_per_step
    (alone,) = import_steps([log]).runs
    assert "plan.json" in alone.missing[0]
    assert alone.row[0].model == ""


def test_a_log_that_contradicts_the_plan_gets_no_prediction(plan, tmp_path):
    path, _ = plan
    log = write(tmp_path / "other.log", "".join(MEGATRON.format(step=n, ms=900) for n in range(1, 9)))
    (run,) = import_steps([log], StepsAsked(plan=path)).runs
    assert run.ranked is None
    assert run.notes == ("the log is of 128 sequences per step, the plan of 64: it is another run's",)
    host = write(tmp_path / "host.jsonl", own_start(path, device="x86_64") + "\n" + own_steps([1.0] * 8))
    (run,) = import_steps([host], StepsAsked(plan=path)).runs
    assert "the plan is for h100-sxm" in run.notes[0]
    assert run.memory == {}


def test_torchtitan_states_mesh_and_batch_and_its_rate_is_turned_into_seconds(tmp_path):
    text = TITAN_HEAD + "".join(TITAN.format(step=step, tps=100 if step < 3 else 8192) for step in range(1, 31))
    log = write(tmp_path / "titan.log", text)
    (run,) = import_steps([log], StepsAsked(model="llama-3.1-8b", cluster="1xdgx-h100")).runs
    assert run.times.median == pytest.approx(32 * 8192 / (8 * 8192))
    assert run.times.basis == "from tokens/s/gpu"
    assert (run.ranked.name, run.ranked.question.workload.seq_len) == ("FSDP 8", 8192)
    row = run.row[0]
    assert (row.stack, row.recompute_mode, row.micro_batch, row.grad_accum) == ("torchtitan", "full", 2, 2)
    (alone,) = import_steps([log]).runs
    assert alone.times.median == run.times.median
    assert alone.missing == ("the model (--model)", "the cluster (--cluster)")


def test_megatron_lists_its_arguments_and_checkpoints_are_named(tmp_path):
    text = "".join(f"  {name} {'.' * 20} {value}\n" for name, value in ARGUMENTS.items())
    for step in range(1, 41):
        text += "saving checkpoint at iteration 29 to /data\n" if step == 30 else ""
        text += MEGATRON.format(step=step, ms=30000 if step == 30 else 8000 + step)
    log = write(tmp_path / "megatron.log", text)
    (run,) = import_steps([log], StepsAsked(model="llama-2-7b", cluster="1xdgx-h100")).runs
    assert [odd.words for odd in run.times.odd] == ["step 30: 30 s (checkpoint)"]
    assert run.times.median == pytest.approx(8.023, abs=2e-3)
    assert run.row[0].tp == 2
    assert run.row[0].recompute_mode == "selective"
    assert run.row[0].sharding == "zero1"


def test_runs_appended_to_one_record_are_kept_apart(plan, tmp_path):
    path, _ = plan
    text = "".join(own_start(path) + "\n" + own_steps([each] * 10) for each in (2.0, 3.0))
    found = import_steps([write(tmp_path / "run.jsonl", text)])
    assert [run.times.median for run in found.runs] == [2.0, 3.0]
    assert [run.stated.id for run in found.runs] == ["run", "run-2"]


def test_files_without_steps_are_named_and_do_not_hide_the_others(tmp_path):
    good = write(tmp_path / "good.log", "step 1 | step time: 2.5 s\nstep 2 | step time: 2.5 s\n")
    empty = write(tmp_path / "empty.log", "job started\n")
    found = import_steps([good, empty, tmp_path / "gone.log"])
    assert len(found.runs) == 1
    assert "empty.log: holds no step of a training run" in found.failed[0]
    assert "cannot be read" in found.failed[1]
    with pytest.raises(FileFormatError, match="holds no step"):
        import_steps([empty])
    rate = write(tmp_path / "rate.log", TITAN.format(step=1, tps=100))
    with pytest.raises(FileFormatError, match="not the tokens of a step"):
        import_steps([rate])


def test_wrong_options_are_errors_and_not_notes(tmp_path):
    log = write(tmp_path / "a.log", "step 1 | step time: 2.5 s\n")
    for asked in (
        StepsAsked(stack="no-such"),
        StepsAsked(cluster="3xnothing"),
        StepsAsked(plan=tmp_path / "gone.json"),
    ):
        with pytest.raises(SpecError):
            import_steps([log], asked)


HOSTILE = {
    "other types": {"model": 3, "plan": [], "seq_len": "x"},
    "a huge model": {"model": {"hidden_size": 1, "vocab_size": 1, "layers": [0] * 20_000, "causal": True}},
    "nothing": {},
    "a negative degree": {"plan": {"tp": -1}},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_record_keeps_its_times_and_says_what_is_wrong(kind, tmp_path):
    start = json.dumps({"event": "start", "device": "\x1b[2J", "world_size": -3, "settings": HOSTILE[kind]})
    (run,) = import_steps([write(tmp_path / "run.jsonl", start + "\n" + own_steps([1.0] * 9))]).runs
    assert run.times.median == 1.0
    assert run.ranked is None
    assert run.missing
