import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from planner.emit.megatron import TRAINER, layout
from planner.spec.plan import ContextKind, Offload, Plan, RankOrder, Recompute, Schedule, Sharding
from planner.topology.placement import groups, layouts

SCHEMA = Path(__file__).parents[1] / "data" / "megatron_arguments_d98e8a6_2026-08-22.json"
ON_CPU = Path(__file__).with_name("megatron_on_cpu.py")
MEGATRON = os.environ.get("MEGATRON", "")
needs_megatron = pytest.mark.skipif(not MEGATRON, reason="MEGATRON names no checkout of Megatron-LM")


@cache
def schema():
    known = json.loads(SCHEMA.read_text())
    del known[""]
    return known


def arguments_of(contents):
    """Argument -> its values, each checked against the schema."""
    assert list(TRAINER.refusals(contents)) == []
    text = TRAINER.files(contents)["megatron_arguments.txt"]
    found = {}
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] not in found, f"{words[0]} is given twice"
            found[words[0]] = words[1:]
    for name, values in found.items():
        check(name, values)
    return found


def check(name, values):
    """One argument with its values against what Megatron's parser takes."""
    taken = schema()[name]
    several = "nargs" in taken
    assert (not values) if taken["value"] == "none" else (values and (several or len(values) == 1)), name
    for value in values:
        {"int": int, "float": float}.get(taken["value"], str)(value)
        assert "choices" not in taken or value in taken["choices"], name


def values_of(contents, *names):
    found = arguments_of(contents)
    return [" ".join(found[name]) if name in found else None for name in names]


def test_every_case_has_arguments_that_megatron_knows(contents):
    found = arguments_of(contents)
    plan = contents.plan
    assert found["--tensor-model-parallel-size"] == [str(plan.tp)]
    assert found["--global-batch-size"] == [str(contents.workload.global_batch_size)]


def test_degrees_and_batch(contents_of):
    plan = Plan(tp=4, pp=2, cp=2, dp_shard=2, sharding=1, context_kind=1, sequence_parallel=1, schedule=2)
    contents = contents_of("llama-3.1-8b", replace(plan, micro_batch_size=2, num_microbatches=4), seq_len=8192)
    names = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
    assert values_of(contents, *names, "--cp-comm-type") == ["4", "2", "2", "p2p"]
    assert values_of(contents, "--micro-batch-size", "--global-batch-size", "--seq-length") == ["2", "16", "8192"]
    assert values_of(contents, "--sequence-parallel", "--use-distributed-optimizer") == ["", ""]
    assert values_of(contents, "--num-virtual-stages-per-pipeline-rank") == [None]


@pytest.mark.parametrize(
    ("plan", "written"),
    [
        (Plan(pp=4, schedule=2, num_microbatches=4), {}),
        (
            Plan(pp=4, schedule=Schedule.INTERLEAVED, virtual_stages=2, num_microbatches=4),
            {"--num-virtual-stages-per-pipeline-rank": ["2"]},
        ),
        (
            Plan(pp=4, schedule=2, num_microbatches=4, first_stage_layers=7, last_stage_layers=5),
            {"--pipeline-model-parallel-layout": ["Et*7|t*10|t*10|t*5,L"]},
        ),
    ],
)
def test_stages(contents_of, plan, written):
    found = arguments_of(contents_of("llama-3.1-8b", plan))
    kinds = ("--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout")
    assert {name: found[name] for name in kinds if name in found} == written


def test_a_layout_names_embedding_layers_and_loss():
    assert layout([1, 2]) == "Et*1|t*2,L"


@pytest.mark.parametrize(
    ("plan", "given", "missing"),
    [
        (Plan(dp_replicate=4), ("--overlap-grad-reduce",), ("--use-distributed-optimizer", "--use-megatron-fsdp")),
        (Plan(), (), ("--overlap-grad-reduce", "--use-distributed-optimizer")),
        (Plan(dp_shard=4, sharding=1), ("--use-distributed-optimizer", "--overlap-param-gather"), ()),
        (Plan(dp_shard=2, dp_replicate=2, sharding=1), ("--num-distributed-optimizer-instances",), ()),
        (Plan(dp_shard=4, sharding=2), ("--use-megatron-fsdp",), ("--num-distributed-optimizer-instances",)),
        (Plan(dp_shard=4, sharding=3), ("--use-megatron-fsdp", "--init-model-with-meta-device"), ()),
        (Plan(offload=Offload.OPTIMIZER), ("--optimizer-cpu-offload", "--use-precision-aware-optimizer"), ()),
    ],
)
def test_sharding_and_offloading(contents_of, plan, given, missing):
    found = arguments_of(contents_of("llama-3.1-8b", plan))
    assert set(given) <= found.keys()
    assert not set(missing) & found.keys()


def test_recomputation(contents_of):
    found = arguments_of(contents_of("llama-3.1-8b", Plan(recompute=Recompute.FULL)))
    assert found["--recompute-method"] == ["uniform"]
    found = arguments_of(contents_of("llama-3.1-8b", Plan(recompute=Recompute.SELECTIVE)))
    assert found["--recompute-modules"] == ["core_attn"]


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "sgd-momentum"])
def test_precisions_and_optimizers_are_known(contents_of, precision, optimizer):
    arguments_of(contents_of("llama-3.1-8b", Plan(), precision=precision, optimizer=optimizer, attention="math"))


FAMILIES = {
    "llama-3.2-1b": {"--swiglu": [], "--num-query-groups": ["8"]},
    "qwen2.5-7b": {"--add-qkv-bias": [], "--disable-bias-linear": []},
    "qwen3-8b": {"--qk-layernorm": []},
    "gpt2": {"--position-embedding-type": ["learned_absolute"], "--normalization": ["LayerNorm"]},
    "nemotron-4-340b": {"--squared-relu": [], "--apply-layernorm-1p": [], "--rotary-percent": ["0.5"]},
    "starcoder2-7b": {"--normalization": ["LayerNorm"], "--position-embedding-type": ["rope"]},
    "mixtral-8x7b": {"--num-experts": ["8"], "--moe-router-topk": ["2"], "--moe-ffn-hidden-size": ["14336"]},
    "qwen1.5-moe-a2.7b": {"--moe-shared-expert-intermediate-size": ["5632"], "--moe-shared-expert-gate": []},
    "deepseek-v3": {
        "--moe-layer-freq": ["[0]*3+[1]*58"],
        "--ffn-hidden-size": ["18432"],
        "--moe-ffn-hidden-size": ["2048"],
        "--qk-head-dim": ["128"],
        "--qk-pos-emb-head-dim": ["64"],
        "--q-lora-rank": ["1536"],
    },
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_described_by_their_own_arguments(name, contents_of):
    found = arguments_of(contents_of(name, Plan(), seq_len=1024))
    assert {key: found.get(key) for key in FAMILIES[name]} == FAMILIES[name]


def test_experts_state_both_of_their_degrees(contents_of):
    plan = Plan(tp=2, dp_shard=4, ep=4, sharding=1, sequence_parallel=1)
    names = ("--expert-model-parallel-size", "--expert-tensor-parallel-size")
    assert values_of(contents_of("mixtral-8x7b", plan), *names) == ["4", "1"]


def test_the_vocabulary_is_padded_no_more_than_its_matrix_products_need(contents_of):
    tied = ("--untie-embeddings-and-output-weights",)
    padded = "--make-vocab-size-divisible-by"
    assert values_of(contents_of("llama-3.1-8b", Plan(tp=8)), padded, *tied) == ["32", ""]
    assert values_of(contents_of("gpt2", Plan(tp=2), seq_len=1024), padded, *tied) == ["128", None]


REFUSED = {
    "another family": ("bert-base", Plan(), {"seq_len": 512}, "no bert model"),
    "a window that counts": ("mistral-7b", Plan(), {"seq_len": 8192}, "window"),
    "kernels that are not fused": ("llama-3.1-8b", Plan(compiled=0), {}, "compiled"),
    "experts without sequence parallelism": ("mixtral-8x7b", Plan(tp=2, expert_tp=2), {}, "sequence parallelism"),
    "more positions than there are": ("gpt2", Plan(), {"seq_len": 2048}, "1024 positions"),
    "stages close together beside context groups": (
        "llama-3.1-8b",
        Plan(pp=2, cp=2, schedule=2, num_microbatches=2, context_kind=1, rank_order=RankOrder.TP_CP_PP_DP),
        {},
        "stages close together",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_express_is_refused_in_words(case, contents_of):
    model, plan, job, words = REFUSED[case]
    assert any(words in reason for reason in TRAINER.refusals(contents_of(model, plan, **job)))


def test_one_queue_of_kernels_where_megatron_demands_it(contents_of):
    def names(plan):
        return [each.name for each in TRAINER.program(contents_of("llama-3.1-8b", plan)).environment]

    assert names(Plan(tp=2)) == ["CUDA_DEVICE_MAX_CONNECTIONS"]
    assert names(Plan(dp_shard=2, sharding=1)) == []
    assert names(Plan(tp=2, dp_shard=2, sharding=Sharding.ZERO3)) == []


def started(folder, **environment):
    run = [sys.executable, "start_megatron.py", "--train-iters", "7"]
    plain = {key: value for key, value in os.environ.items() if key not in ("MEGATRON", "WORLD_SIZE")}
    return subprocess.run(run, cwd=folder, env=plain | environment, capture_output=True, text=True, check=False)


def test_the_starter_hands_its_arguments_and_those_of_the_command_line_on(contents_of, hostile, tmp_path):
    contents = hostile(contents_of("deepseek-v3", Plan(dp_shard=8, ep=8, sharding=1)))
    for name, text in TRAINER.files(contents).items():
        (tmp_path / name).write_text(text)
    fork = tmp_path / "a fork's $(folder)"
    fork.mkdir()
    (fork / "pretrain_gpt.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    assert "the plan is for 8 processes, not for 4" in started(tmp_path, WORLD_SIZE="4").stderr
    assert "MEGATRON is not set" in started(tmp_path, WORLD_SIZE="8").stderr
    assert "no pretrain_gpt.py" in started(tmp_path, WORLD_SIZE="8", MEGATRON=str(tmp_path)).stderr
    given = json.loads(started(tmp_path, WORLD_SIZE="8", MEGATRON=str(fork)).stdout)
    assert given[-2:] == ["--train-iters", "7"]
    assert given[given.index("--moe-layer-freq") + 1] == "[0]*3+[1]*58"
    assert not list(tmp_path.rglob("pwned*"))
    assert not any("pwned" in word for word in given)


def on_cpu(mode, contents, tmp_path):
    for name, text in TRAINER.files(contents).items():
        (tmp_path / name).write_text(text)
    words = shlex.split((tmp_path / "megatron_arguments.txt").read_text(), comments=True)
    variables = {each.name: each.value for each in TRAINER.program(contents).environment}
    environment = os.environ | {"WORLD_SIZE": str(contents.plan.world_size), "RANK": "0"} | variables
    run = [sys.executable, str(ON_CPU), mode, *words]
    result = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return int(result.stdout.strip().splitlines()[-1].split()[-1])


CHECKED = {
    "tensor, pipeline, data": (
        "llama-3.1-70b",
        Plan(tp=8, pp=4, dp_shard=2, sharding=1, sequence_parallel=1, schedule=2, num_microbatches=8),
    ),
    "uneven chunks": (
        "llama-3.1-405b",
        Plan(tp=8, pp=16, virtual_stages=4, schedule=3, num_microbatches=16, sequence_parallel=1),
    ),
    "all-to-all": ("llama-3.1-8b", Plan(cp=4, context_kind=ContextKind.ULYSSES, dp_shard=2, sharding=1)),
    "gathered keys": ("llama-3.1-8b", Plan(cp=4, context_kind=ContextKind.ALL_GATHER, dp_shard=2, sharding=1)),
    "fsdp": ("llama-3.1-8b", Plan(dp_shard=8, sharding=Sharding.ZERO3, recompute=Recompute.FULL)),
    "zero2": ("llama-3.1-8b", Plan(dp_shard=8, sharding=Sharding.ZERO2)),
    "instances": ("llama-3.1-8b", Plan(dp_shard=4, dp_replicate=2, sharding=1)),
    "offloaded": ("llama-3.1-8b", Plan(offload=Offload.OPTIMIZER)),
    "experts": ("mixtral-8x7b", Plan(tp=2, dp_shard=4, ep=8, sharding=1, sequence_parallel=1)),
    "latent attention": (
        "deepseek-v3",
        Plan(
            pp=8,
            dp_shard=16,
            ep=16,
            sharding=1,
            schedule=2,
            num_microbatches=16,
            first_stage_layers=7,
            last_stage_layers=6,
        ),
    ),
    "other order": (
        "llama-3.1-8b",
        Plan(tp=2, pp=2, dp_shard=2, sharding=1, schedule=2, num_microbatches=2, rank_order=1),
    ),
}


@needs_megatron
@pytest.mark.parametrize("case", CHECKED)
def test_megatron_itself_takes_the_arguments(case, contents_of, tmp_path):
    model, plan = CHECKED[case]
    assert on_cpu("check", contents_of(model, plan), tmp_path) == plan.dp


@needs_megatron
@pytest.mark.parametrize("name", [*FAMILIES, "deepseek-moe-16b", "qwen3-30b-a3b", "stablelm-3b", "phi-4"])
def test_megatron_builds_a_model_of_as_many_parameters(name, contents_of, tmp_path):
    contents = contents_of(name, Plan(), seq_len=1024)
    model = contents.model
    block = int(arguments_of(contents)["--make-vocab-size-divisible-by"][0])
    padding = -model.vocab_size % block * model.hidden_size * (1 if model.tie_word_embeddings else 2)
    assert on_cpu("parameters", contents, tmp_path) == model.parameters + padding


@pytest.mark.parametrize("order", [RankOrder.TP_CP_DP_PP, RankOrder.TP_CP_PP_DP])
@pytest.mark.parametrize("degrees", [(2, 2, 1, 4, 1, 1), (2, 2, 2, 2, 1, 1), (2, 3, 2, 2, 4, 1), (4, 2, 1, 4, 2, 4)])
def test_ranks_lie_as_megatron_lays_them(order, degrees):
    parallel_state = pytest.importorskip("megatron.core.parallel_state", exc_type=ImportError)
    tp, pp, cp, dp, ep, expert_tp = degrees
    if order == RankOrder.TP_CP_PP_DP and ep * expert_tp != 1 and ep * expert_tp != tp * cp:
        ep = expert_tp = 1
    words = "tp-cp-ep-dp-pp" if order == RankOrder.TP_CP_DP_PP else "tp-cp-ep-pp-dp"
    laid = layouts(Plan(tp=tp, pp=pp, cp=cp, dp_shard=dp, ep=ep, expert_tp=expert_tp, rank_order=order))
    dense = parallel_state.RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order=words)
    inside = ep * expert_tp
    experts = parallel_state.RankGenerator(tp=expert_tp, ep=ep, dp=tp * cp * dp // inside, pp=pp, cp=1, order=words)
    expected = {"tp": ("tp", dense), "pp": ("pp", dense), "cp": ("cp", dense), "dp_shard": ("dp-cp", dense)}
    if inside > 1:
        expected |= {"ep": ("ep", experts), "expert_tp": ("tp", experts), "expert_shard": ("dp", experts)}
    for axis, (token, generator) in expected.items():
        ours = {tuple(row) for row in np.sort(groups(laid[axis]), axis=1).tolist()}
        assert ours == {tuple(sorted(row)) for row in generator.get_ranks(token)}, axis
