"""What a run does beside training: checkpoints, elasticity, tiny models, data of one's own, and refusals."""

import json
import os
import signal
import time
from array import array
from pathlib import Path

import pytest

from .conftest import DENSE, EXPERTS, Result, _free_port, _process, write_plan
from .test_parity import filled

FSDP_TP = {"dp_shard": 2, "sharding": "zero3", "tp": 2, "sequence_parallel": 1}


def test_a_run_that_was_saved_resumes_to_the_same_loss(run, tmp_path):
    plan = write_plan(tmp_path / "plan", filled(FSDP_TP))
    whole = run(plan, steps=5)
    folder = ("--checkpoint", str(tmp_path / "saved"), "--save-every", "1")
    run(plan, *folder, steps=3, name="first")
    rest = run(plan, *folder, steps=5, name="rest")
    assert rest.steps("step") == [3, 4]
    assert rest.losses == pytest.approx(whole.losses[3:], abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["step-000000004", "step-000000005"]


@pytest.mark.parametrize(
    "other",
    [
        {"dp_shard": 2, "sharding": "zero3"},
        {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "num_microbatches": 4},
        {"micro_batch_size": 16},
    ],
    ids=["fsdp", "pipeline", "one process"],
)
def test_a_run_resumes_under_another_plan(run, tmp_path, other):
    folder = ("--checkpoint", str(tmp_path / "saved"))
    plan = write_plan(tmp_path / "plan", filled(FSDP_TP))
    whole = run(plan, steps=5)
    run(plan, *folder, steps=3, name="first")
    rest = run(write_plan(tmp_path / "other", filled(other)), *folder, steps=5, name="rest")
    assert set(rest.exits) == {0}, rest.errors
    assert rest.losses == pytest.approx(whole.losses[3:], abs=1e-4)


def test_a_half_written_checkpoint_is_passed_over(run, tmp_path):
    folder = tmp_path / "saved"
    plan = write_plan(tmp_path / "plan", {"micro_batch_size": 16})
    run(plan, "--checkpoint", str(folder), steps=2, name="first")
    (folder / "step-000000009.part").mkdir()
    assert run(plan, "--checkpoint", str(folder), steps=3, name="rest").steps("step") == [2]


@pytest.fixture
def interrupted(processes, tmp_path):
    """A function that starts a run of two processes which saves after every step, and sends one a signal in between."""

    def start(plan, folder, how):
        record, port = tmp_path / "interrupted.jsonl", _free_port()
        options = ["--steps", "100000", "--checkpoint", str(folder), "--save-every", "1", "--lr", "0.01"]
        arguments = [str(plan), "--device", "cpu", "--record", str(record), *options]
        both = [processes.Process(target=_process, args=(r, 2, port, tmp_path / "out", arguments)) for r in (0, 1)]
        for process in both:
            process.start()
        while not (record.exists() and '"step": 2' in record.read_text()):
            time.sleep(0.02)
            assert all(process.is_alive() for process in both)
        os.kill(both[1].pid, how)
        for process in both:
            process.join(60)
        return [process.exitcode for process in both], Result.of(record)

    return start


def test_a_run_that_is_killed_resumes_to_the_same_loss(run, interrupted, tmp_path):
    plan, folder = write_plan(tmp_path / "plan", filled({"dp_shard": 2, "sharding": "zero3"})), tmp_path / "saved"
    exits, _ = interrupted(plan, folder, signal.SIGKILL)
    assert exits[1] == -signal.SIGKILL
    done = max(int(path.name.removeprefix("step-")) for path in folder.glob("step-?????????"))
    whole = run(plan, steps=done + 2, name="whole")
    rest = run(plan, "--checkpoint", str(folder), steps=done + 2, name="rest")
    assert rest.steps("step") == [done, done + 1]
    assert rest.losses == pytest.approx(whole.losses[-2:], abs=1e-5)


def test_a_run_that_is_asked_to_stop_saves_first(interrupted, tmp_path):
    plan, folder = write_plan(tmp_path / "plan", filled({"dp_replicate": 2})), tmp_path / "saved"
    exits, result = interrupted(plan, folder, signal.SIGTERM)
    assert exits == [0, 0]
    assert sorted(path.name for path in folder.iterdir())[-1] == f"step-{result.steps('step')[-1] + 1:09d}"


def test_gradients_that_are_not_finite_end_the_run_before_anything_is_saved(run, tmp_path):
    folder = tmp_path / "saved"
    plan = write_plan(tmp_path / "plan", {"micro_batch_size": 4}, optimizer="sgd")
    found = run(plan, "--lr", "1e38", "--clip", "0", "--checkpoint", str(folder), "--save-every", "100", steps=20)
    assert found.exits == [2]
    assert "no longer finite" in found.errors.splitlines()[-1]
    assert not folder.exists()


def test_a_checkpoint_that_is_damaged_is_named(run, tmp_path):
    folder = tmp_path / "saved"
    plan = write_plan(tmp_path / "plan", {"micro_batch_size": 4})
    run(plan, "--checkpoint", str(folder), steps=2, name="first")
    for part in (folder / "step-000000002").glob("*.distcp"):
        part.write_bytes(b"")
    found = run(plan, "--checkpoint", str(folder), steps=3, name="rest")
    assert found.exits == [2]
    assert "step-000000002 cannot be loaded" in found.errors.splitlines()[-1]


def test_an_elastic_try_out_keeps_the_global_batch(run, tmp_path):
    plan = write_plan(tmp_path / "plan", filled({"dp_replicate": 2, "num_microbatches": 4}))
    both = [run(plan, "--shrink", "--elastic", world_size=ranks, name=f"{ranks}") for ranks in (1, 2)]
    assert both[0].losses == pytest.approx(both[1].losses, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"num_microbatches": []}, "plan.num_microbatches: []"), ({"dp_replicate": 0}, "plan.dp_replicate: 0")],
)
def test_a_field_of_another_type_is_named(run, tmp_path, change, reason):
    path = write_plan(tmp_path / "plan", {"micro_batch_size": 2})
    contents = json.loads(path.read_text())
    contents["plan"] |= change
    path.write_text(json.dumps(contents))
    found = run(path, world_size=1)
    assert (found.exits, len(found.errors.splitlines())) == ([2], 1)
    assert reason in found.errors


def test_replicas_follow_the_number_of_processes_at_the_same_batch(run, tmp_path):
    plan = write_plan(tmp_path / "plan", filled({"dp_replicate": 4, "num_microbatches": 1}))
    alone = run(write_plan(tmp_path / "alone", {"micro_batch_size": 16}), name="alone")
    found = run(plan, "--elastic", world_size=2, name="half")
    assert found.losses == pytest.approx(alone.losses, abs=1e-4)


def test_a_wrong_number_of_processes_is_refused_in_one_line(run, tmp_path):
    found = run(write_plan(tmp_path / "plan", filled({"dp_shard": 4, "sharding": "zero3"})), world_size=2)
    assert found.exits == [2, 2]
    assert found.errors.strip().endswith("but 2 were started")
    assert len(found.errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("plan", "config"),
    [
        ({"tp": 2, "dp_shard": 2, "sharding": "zero3", "sequence_parallel": 1, "micro_batch_size": 4}, DENSE),
        ({"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "num_microbatches": 8}, DENSE),
        ({"dp_shard": 4, "ep": 4, "sharding": "zero3", "micro_batch_size": 2}, EXPERTS),
    ],
    ids=["tp + fsdp", "interleaved", "ep"],
)
def test_a_large_model_shrinks_to_one_with_the_same_degrees(run, tmp_path, plan, config):
    large = config | {"hidden_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 64, "vocab_size": 128256}
    found = run(write_plan(tmp_path / "plan", plan, config=large, seq_len=4096), "--shrink", steps=2)
    assert set(found.exits) == {0}, found.errors
    kept = found.records[0]["settings"]["plan"]
    assert {name: kept[name] for name in ("tp", "pp", "dp_shard", "ep", "virtual_stages")} == {
        name: plan.get(name, 1) for name in ("tp", "pp", "dp_shard", "ep", "virtual_stages")
    }
    assert found.records[0]["settings"]["model"]["hidden_size"] <= 128


def test_a_summary_stands_beside_the_prediction(run, tmp_path):
    path = write_plan(tmp_path / "plan", {"micro_batch_size": 2})
    contents = json.loads(path.read_text()) | {"prediction": {"step_time_s": 0.25, "peak_memory_gib": 3.5}}
    path.write_text(json.dumps(contents))
    found = run(path, "--timing-warmup", "2")
    summary = found.records[-1]
    assert (summary["event"], summary["steps"]) == ("summary", 3)
    assert summary["predicted"] == {"step_time_s": 0.25, "peak_memory_gib": 3.5}
    assert summary["step_time_s"] == sorted(found.steps("step_time_s")[2:])[1]
    assert summary["tokens_per_s"] == pytest.approx(2 * 64 / summary["step_time_s"])
    assert "predicted 0.25 s" in found.errors


def test_tokens_of_a_file_are_read_and_learnt(run, tmp_path):
    tokens = tmp_path / "tokens.bin"
    tokens.write_bytes(array("H", [i % 7 for i in range(64 * 40 + 1)]).tobytes())
    plan = write_plan(tmp_path / "plan", {"micro_batch_size": 16})
    assert run(plan, "--data", str(tokens), steps=10).losses[-1] < 3.0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (array("H", range(64)).tobytes(), "need 65 of 2 bytes each"),
        (array("H", [1] * 1000).tobytes() + b"x", "are not whole tokens"),
        (array("H", [9999] * 1000).tobytes(), "outside the vocabulary"),
        (b"", "cannot be read"),
    ],
    ids=["too short", "half a token", "unknown token", "empty"],
)
def test_tokens_that_cannot_serve_are_refused_in_one_line(run, tmp_path, content, reason):
    tokens = tmp_path / "tokens.bin"
    tokens.write_bytes(content)
    found = run(write_plan(tmp_path / "plan", {"micro_batch_size": 4}), "--data", str(tokens))
    assert found.exits == [2]
    assert reason in found.errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sharding": "zero1"}, "sharding zero1 is not supported; possible: none, zero3, zero3_keep"),
        ({"schedule": "zb_h1"}, "schedule zb_h1 is not supported"),
        ({"offload": "optimizer"}, "offload optimizer is not supported"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_in_one_line(run, tmp_path, change, reason):
    path = write_plan(tmp_path / "plan", {"micro_batch_size": 2})
    contents = json.loads(path.read_text())
    contents["plan"] |= change
    path.write_text(json.dumps(contents))
    found = run(path, world_size=1)
    assert found.exits == [2]
    assert reason in found.errors
    assert len(found.errors.splitlines()) == 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"plan": {}, "workload": {}}'])
def test_a_file_that_is_no_plan_is_refused_in_one_line(run, tmp_path, text):
    broken = tmp_path / "broken.json"
    broken.write_text(text)
    found = run(broken, world_size=1)
    assert found.exits == [2]
    assert len(found.errors.splitlines()) == 1


def test_every_option_of_the_trainer_is_documented():
    from planner.emit.trainer.arguments import parse

    text = (Path(__file__).parents[3] / "docs" / "trainer.md").read_text(encoding="utf-8")
    options = {name.replace("_", "-") for name in vars(parse(["plan.json"])) if name != "plan"}
    assert {name for name in options if f"`--{name}`" not in text} == set()
