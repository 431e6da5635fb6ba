"""What a file is taken for, in any mix; hostile files never do harm."""

import json

import pytest

from planner.answer.diagnosis.files import take
from planner.errors import FileFormatError
from tests.answer.diagnosis.conftest import nccl_tests, torchtitan
from tests.answer.diagnosis.test_failures import out_of_memory
from tests.dumps.samples import EXCERPTS

ARGUMENTS = {
    **{"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "context_parallel_size": 1},
    **{"micro_batch_size": 1, "global_batch_size": 64, "seq_length": 4096, "world_size": 16, "data_parallel_size": 2},
    **{"bf16": True, "fp8": None, "use_distributed_optimizer": True, "sequence_parallel": True, "swiglu": True},
    **{"recompute_granularity": None, "num_experts": None, "overlap_grad_reduce": True, "optimizer": "adam"},
    **{
        "num_layers": 32,
        "hidden_size": 4096,
        "lr": 0.0001,
        "train_iters": 100,
        "attention_backend": "AttnBackend.auto",
    },
}
MEGATRON = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in sorted(ARGUMENTS.items()))
STEPS = "".join(
    f" [2024-05-01 12:00:00] iteration {step:8}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): "
    f"{1900 + step} | global batch size:    64 | lm loss: 1.0E+01 |\n"
    for step in range(1, 12)
)
ACCELERATE = """
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_activation_checkpointing: true}
mixed_precision: bf16
num_processes: 8
"""
CONFIG = """{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
"intermediate_size": 128, "vocab_size": 256}"""
CLUSTER = 'nodes = 2\nnode = "dgx-h100"\n'


@pytest.mark.parametrize(
    ("name", "text", "taken_for"),
    [
        ("train.log", torchtitan(5000), "a log of torchtitan (30 figures)"),
        ("job.out", out_of_memory(2), "messages (out of memory)"),
        ("a.txt", nccl_tests(["n1"], 450.0, per_host=8), "nccl-tests"),
        ("meg.log", MEGATRON + STEPS, "arguments of Megatron-LM in its log and a log of Megatron-LM (11 figures)"),
        ("acc.yaml", ACCELERATE, "accelerate configuration"),
        ("config.json", CONFIG, "a model's config.json"),
        ("mine.toml", CLUSTER, "a cluster's TOML"),
        ("train.sh", "torchrun pretrain_gpt.py --tensor-model-parallel-size 8\n", "Megatron-LM arguments"),
        ("1.out", out_of_memory(2) + torchtitan(5000), "a log of torchtitan (30 figures) and messages (out of memory)"),
    ],
)  # fmt: skip
def test_a_file_is_taken_for_what_it_holds(file, name, text, taken_for):
    assert take(file(name, text)).taken_for == taken_for


@pytest.mark.parametrize("path", EXCERPTS, ids=lambda path: path.name)
def test_every_dump_is_recognised(path):
    taken = take(path)
    assert taken.known or taken.problem.startswith("line ")


def test_the_arguments_in_megatron_s_log_are_its_plan(file, judge):
    found = judge(file("meg.log", MEGATRON + STEPS), model="llama-3.1-8b", cluster="2xdgx-h100")
    plan = found.case.plan
    assert (int(plan.plan.tp), int(plan.plan.pp), int(plan.plan.dp)) == (2, 4, 2)
    assert plan.question.workload.global_batch_size == 64
    assert found.case.speed.measured == pytest.approx(64 * 4096 / 1.9075, rel=0.01)


def test_settings_a_log_and_a_cluster_file_go_together(file, judge):
    log = file("t.log", "".join(f"step {step} samples/s: 9.0\n" for step in range(20)))
    cluster = file("mine.toml", CLUSTER.replace("2", "1"))
    options = {"model": "llama-3.1-8b", "seq_len": 2048, "global_batch_size": "64"}
    found = judge(file("acc.yaml", ACCELERATE), log, cluster, **options)
    assert found.case.plan.question.cluster.world_size == 8
    assert found.case.plan.question.workload.seq_len == 2048
    assert found.case.speed.measured == pytest.approx(9 * 2048)
    assert [each.known for each in found.case.files] == [True, True, True]


def test_what_is_missing_for_a_comparison_is_said_and_figures_are_shown_all_the_same(file, judge):
    found = judge(file("t.log", torchtitan(5000)))
    assert found.verdict == "nothing to compare"
    assert found.readings["tokens_per_s_per_gpu"][0] == 5000
    assert any("--model and --cluster" in note for note in found.case.notes)


def test_without_a_plan_the_best_one_is_held_against_the_run_and_that_is_said(judge):
    found = judge(model="llama-3.2-1b", cluster="1xh100-sxm", measured_tps="60000")
    assert any("no plan is told" in note for note in found.case.notes)
    assert found.case.speed is not None


HOSTILE = {
    "empty.log": b"",
    "blank.log": b" \n\t\n",
    "binary.bin": bytes(range(256)) * 400,
    "one_line.txt": b"x" * 3_000_000,
    "unclosed.json": b'{"plan": {"tp": 1',
    "deep.json": b"[" * 100_000,
    "deep.yaml": b"- " * 5000,
    "list.json": b"[1, 2, 3]",
    "plan.json": b'{"schema_version": 1, "plan": {"tp": "many"}}',
    "config.json": b'{"model_type": "llama", "hidden_size": -4}',
    "nodes.toml": b'nodes = "two"\n',
    "module.py": b"def f(:\n",
    "huge_numbers.log": b"step 1 tokens/s: 9e999\nstep 99999999999999999999 tokens/s: 1e308\nmemory: 9e99GiB(1%)\n" * 3,
    "cut.log": nccl_tests(["n1", "n2"], 40.0).encode()[:900],
    "zeros.log": b"step: 1 tps: 0 memory: 0.00GiB(0%)\nstep: 2 tps: 0\n",
    "oom_odd.txt": b"CUDA out of memory. Tried to allocate 1.2.3 GiB (GPU 0; ... GiB total capacity; 0 bytes free)\n",
    "escapes.log": b"\x1b[31m\x1b]0;x" * 500,
    "utf16.log": "step 1 tokens/s: 5\nstep 2 tokens/s: 5\n".encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence_and_the_rest_goes_on(file, judge, name):
    path, error = file(f"bad/{name}", HOSTILE[name]), file("e.txt", out_of_memory(2, allocated=60, unallocated=17))
    found = judge(path, error)
    assert found.verdict == "memory fragmentation"
    taken = found.case.files[0]
    assert taken.known or (taken.problem and "\n" not in taken.problem)
    found.as_dict()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_alone_raises_nothing_but_one_line(file, judge, name):
    path = file(name, HOSTILE[name])
    if take(path).known:
        assert judge(path, model="llama-3.2-1b", cluster="1xh100-sxm").sentence
        return
    with pytest.raises(FileFormatError) as raised:
        judge(path, model="llama-3.2-1b", cluster="1xh100-sxm")
    assert str(raised.value).startswith(f"{path}: ")


def test_a_file_that_is_not_there_is_named(judge, tmp_path):
    with pytest.raises(FileFormatError, match=r"none\.log: cannot be read: No such file"):
        judge(tmp_path / "none.log")


def test_a_plan_that_is_named_as_such_has_to_be_one(file, judge):
    with pytest.raises(FileFormatError):
        judge(plan=file("plan.json", '{"schema_version": 1, "plan": {"tp": "many"}}'))


@pytest.mark.parametrize("text", ["just notes\n", torchtitan(5000)])
def test_a_file_that_is_no_plan_is_refused_as_one(file, judge, text):
    with pytest.raises(FileFormatError, match=r"plan\.txt: "):
        judge(plan=file("plan.txt", text))


def test_options_that_a_plan_json_overrules_are_named(judge, fsdp):
    path, _ = fsdp
    found = judge(path, seq_len=2048, fix="tp=8", measured_tps="5000/gpu")
    assert f"--fix and --seq-len left aside: {path} tells it" in found.case.notes


def test_a_plan_that_is_malformed_is_no_file_to_judge_by(judge, fsdp):
    path, _ = fsdp
    contents = json.loads(path.read_text())
    contents["plan"]["tp"] = -1
    path.write_text(json.dumps(contents))
    with pytest.raises(FileFormatError, match="tp"):
        judge(path)
