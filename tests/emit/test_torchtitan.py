import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from planner.emit.torchtitan import TRAINER
from planner.spec.model import Attention, Experts, LatentAttention, Layer, Mlp, Model
from planner.spec.plan import ContextKind, Offload, Plan, Recompute, Schedule, Sharding

ON_CPU = Path(__file__).with_name("torchtitan_on_cpu.py")


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


needs_torchtitan = pytest.mark.skipif(
    installed("torchtitan") != "0.3.0" or installed("torch") < "2.14", reason="torchtitan 0.3.0 needs torch 2.14"
)

WIDE = Attention(num_attention_heads=8, num_key_value_heads=4, head_dim=32)
LATENT = replace(WIDE, num_key_value_heads=8, head_dim=48, latent=LatentAttention(64, 32, 32, 16, 32))
EXPERTS = Experts(num_experts=8, experts_per_token=2, expert=Mlp(64))
TINY = {
    "llama": Layer(WIDE, Mlp(512), other_parameters=512),
    "qwen3": Layer(WIDE, Mlp(512), other_parameters=512 + 64),
    "qwen3_moe": Layer(WIDE, None, EXPERTS, other_parameters=512 + 64 + 2048),
    "deepseek_v3": Layer(LATENT, Mlp(64), EXPERTS, other_parameters=512 + 96 + 2048),
}


def tiny(model_type, layers=4, name="tiny", tied=False):
    every = (TINY[model_type],) * layers
    if model_type == "deepseek_v3":
        every = (Layer(LATENT, Mlp(512), other_parameters=512 + 96), *every[1:])
    return Model(
        name, 256, 2048, every, tie_word_embeddings=tied, other_parameters=256, max_seq_len=512, model_type=model_type
    )


def calls(text, function):
    """Keyword arguments of a call in source, as text."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    (found,) = [node for node in nodes if ast.unparse(node.func) == function]
    return {each.arg: ast.unparse(each.value) for each in found.keywords}


def config_of(contents):
    assert list(TRAINER.refusals(contents)) == []
    return TRAINER.files(contents)["planner_config.py"]


def test_degrees_stand_under_the_names_of_torchtitan(contents_of):
    plan = Plan(tp=4, cp=2, dp_shard=2, dp_replicate=2, sharding=Sharding.ZERO3, context_kind=ContextKind.ALL_GATHER)
    text = config_of(contents_of("llama-3.1-8b", replace(plan, micro_batch_size=2, num_microbatches=3)))
    degrees = calls(text, "ParallelismConfig")
    assert degrees == {
        "data_parallel_replicate_degree": "2",
        "data_parallel_shard_degree": "2",
        "tensor_parallel_degree": "4",
        "pipeline_parallel_degree": "1",
        "context_parallel_degree": "2",
        "expert_parallel_degree": "1",
        "fsdp_reshard_after_forward": "'default'",
        "enable_sequence_parallel": "False",
    }
    batch = calls(text, "TrainingConfig")
    assert (batch["local_batch_size"], batch["global_batch_size"]) == ("2", "24")


def test_a_pipeline_takes_all_micro_batches_as_one_local_batch(contents_of):
    plan = Plan(pp=4, virtual_stages=2, schedule=Schedule.INTERLEAVED, micro_batch_size=2, num_microbatches=8)
    text = config_of(contents_of("llama-3.1-8b", plan))
    assert calls(text, "TrainingConfig")["local_batch_size"] == "16"
    pipeline = calls(text, "ParallelismConfig")
    assert pipeline["pipeline_parallel_schedule"] == "'Interleaved1F1B'"
    assert pipeline["pipeline_parallel_microbatch_size"] == "2"
    assert pipeline["module_fqns_per_model_part"] == f"stages({[4] * 8})"


def test_the_last_stage_can_be_shorter(contents_of):
    plan = Plan(pp=4, num_microbatches=4, schedule=Schedule.ONE_F_ONE_B, first_stage_layers=7, last_stage_layers=5)
    text = config_of(contents_of("llama-3.1-8b", plan))
    assert calls(text, "ParallelismConfig")["module_fqns_per_model_part"] == "stages([7, 10, 10, 5])"


@pytest.mark.parametrize(
    ("plan", "field", "written"),
    [
        (Plan(recompute=Recompute.NONE), "activation_checkpoint", "None"),
        (Plan(recompute=Recompute.SELECTIVE), "activation_checkpoint", "SelectiveAC.Config()"),
        (Plan(recompute=Recompute.FULL), "activation_checkpoint", "FullAC.Config()"),
        (Plan(compiled=0), "compile", "CompileConfig(enable=False)"),
        (
            Plan(tp=2, sequence_parallel=1, async_tp=1),
            "compile",
            "CompileConfig(enable=True, enable_async_tensor_parallel=True)",
        ),
    ],
)
def test_recomputation_and_compilation(contents_of, plan, field, written):
    assert calls(config_of(contents_of("llama-3.1-8b", plan)), "Trainer.Config")[field] == written


def test_precision_state_and_offloading(contents_of):
    plan = Plan(dp_shard=2, sharding=Sharding.ZERO3, offload=Offload.ALL)
    batch = calls(config_of(contents_of("llama-3.1-8b", plan, precision="fp32")), "TrainingConfig")
    assert (batch["mixed_precision_param"], batch["enable_cpu_offload"]) == ("'float32'", "True")
    batch = calls(config_of(contents_of("llama-3.1-8b", plan, state="16bit")), "TrainingConfig")
    assert batch["dtype"] == "'bfloat16'"
    text = config_of(contents_of("llama-3.1-8b", plan, precision="fp8"))
    assert 'Float8LinearConverter.Config(model_compile_enabled=True, filter_fqns=["lm_head"])' in text.replace("'", '"')


REFUSED = {
    "another family": ("gpt2", Plan(), {}, "no gpt2 model"),
    "a window that counts": ("mistral-7b", Plan(), {"seq_len": 8192}, "full attention"),
    "heads narrower than the model": ("mistral-nemo-12b", Plan(), {}, "as wide as the layers"),
    "a tied head in a pipeline": (
        "llama-3.2-1b",
        Plan(pp=2, schedule=Schedule.ONE_F_ONE_B, num_microbatches=2),
        {},
        "tied",
    ),
    "copied key-value heads": ("llama-3.1-8b", Plan(tp=16), {}, "divide 8 key-value heads"),
    "dropout": ("llama-3.1-8b", Plan(), {"dropout": True}, "dropout"),
    "unsharded ranks of a context group": (
        "llama-3.1-8b",
        Plan(cp=2, context_kind=ContextKind.ALL_GATHER),
        {},
        "sharding none needs 1",
    ),
    "experts divided twice": ("qwen3-30b-a3b", Plan(tp=2, dp_shard=2, ep=2, expert_tp=2, sharding=3), {}, "experts"),
    "fp8 experts": ("qwen3-30b-a3b", Plan(), {"precision": "fp8"}, "fp8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_express_is_refused_in_words(case, contents_of):
    model, plan, job, words = REFUSED[case]
    assert any(words in reason for reason in TRAINER.refusals(contents_of(model, plan, **job)))


def test_a_window_as_long_as_the_sequence_is_none(contents_of):
    assert "n_layers=32" in config_of(contents_of("mistral-7b", Plan(), seq_len=4096))


def test_a_hostile_name_stays_data(contents_of, hostile, tmp_path):
    for name, text in TRAINER.files(hostile(contents_of("llama-3.1-8b", Plan()))).items():
        tree = ast.parse(text)
        assert not any("pwned" in ast.unparse(node) for node in tree.body if not isinstance(node, ast.FunctionDef)), (
            name
        )
    text = config_of(hostile(contents_of("llama-3.1-8b", Plan())))
    assert calls(text, "replace")["flavor"] == repr(hostile(contents_of("llama-3.1-8b", Plan())).model.name)


def test_emitted_python_is_formatted_as_ours(contents_of, tmp_path):
    plan = Plan(pp=4, virtual_stages=2, schedule=Schedule.INTERLEAVED, num_microbatches=8, recompute=1)
    for name, text in TRAINER.files(contents_of("llama-3.1-8b", plan)).items():
        (tmp_path / name).write_text(text)
    for check in (["format", "--check"], ["check", "--isolated", "--select", "E,F,B,UP", "--line-length", "120"]):
        options = ["--isolated", "--line-length", "120"] if check[0] == "format" else []
        run = [sys.executable, "-m", "ruff", *check, *options, str(tmp_path)]
        result = subprocess.run(run, capture_output=True, text=True, check=False)
        if "No module named ruff" in result.stderr:
            pytest.skip("ruff is not installed")
        assert result.returncode == 0, result.stdout


def written(contents, folder):
    folder.mkdir()
    for name, text in TRAINER.files(contents).items():
        (folder / name).write_text(text)
    return folder


PARSE = """
import torch
from torchtitan.config import ConfigManager

config = ConfigManager().parse_args()
with torch.device("meta"):
    model = config.model_spec.model.build()
print("parameters", sum(each.numel() for each in model.parameters()))
"""
BUILT = {
    "llama-3.1-8b": Plan(dp_shard=8, sharding=Sharding.ZERO3, micro_batch_size=2),
    "llama-3.1-405b": Plan(
        tp=8, pp=16, schedule=Schedule.INTERLEAVED, virtual_stages=4, num_microbatches=32, dp_shard=8, sharding=4
    ),
    "llama-3.2-1b": Plan(tp=2, sequence_parallel=1),
    "qwen3-32b": Plan(dp_replicate=2, dp_shard=4, sharding=Sharding.ZERO3),
    "qwen3-30b-a3b": Plan(dp_shard=8, ep=8, sharding=Sharding.ZERO3),
    "deepseek-v3": Plan(
        pp=8, dp_shard=16, ep=16, sharding=4, schedule=2, num_microbatches=16, first_stage_layers=7, last_stage_layers=6
    ),
    "gpt-oss-20b": Plan(dp_shard=8, ep=4, sharding=Sharding.ZERO3),
}


@needs_torchtitan
@pytest.mark.parametrize("name", BUILT)
def test_torchtitan_takes_the_configuration_and_builds_a_model_of_as_many_parameters(name, contents_of, tmp_path):
    contents = contents_of(name, BUILT[name])
    folder = written(contents, tmp_path / "run")
    (folder / "parse.py").write_text(PARSE)
    words = TRAINER.program(contents).words[2:]
    environment = os.environ | {"WORLD_SIZE": str(contents.plan.world_size)}
    run = [sys.executable, "parse.py", *words]
    result = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    parameters = int(result.stdout.split("parameters ")[1])
    assert parameters == pytest.approx(contents.model.parameters, rel=1e-6)


@needs_torchtitan
def test_another_number_of_processes_ends_in_one_line(contents_of, tmp_path):
    contents = contents_of("llama-3.1-8b", Plan(dp_shard=8, sharding=3))
    folder = written(contents, tmp_path / "run")
    run = [sys.executable, "-c", "import planner_config; planner_config.planned()"]
    environment = os.environ | {"WORLD_SIZE": "4"}
    result = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.stderr.strip().splitlines()[-1] == "the plan is for 8 processes, not for 4"


TRAINED = {
    "fsdp": ("llama", Plan(dp_shard=2, sharding=Sharding.ZERO3, num_microbatches=2, recompute=Recompute.SELECTIVE)),
    "tensor parallelism": ("llama", Plan(tp=2, sequence_parallel=1, recompute=Recompute.FULL)),
    "context parallelism": ("llama", Plan(cp=2, context_kind=ContextKind.ALL_GATHER, sharding=Sharding.ZERO3)),
    "replicas": ("qwen3", Plan(dp_replicate=2)),
    "pipeline": ("llama", Plan(pp=2, schedule=Schedule.ONE_F_ONE_B, num_microbatches=4)),
    "uneven pipeline": ("llama", Plan(pp=2, schedule=2, num_microbatches=4, first_stage_layers=3, last_stage_layers=1)),
    "interleaved pipeline": ("qwen3", Plan(pp=2, virtual_stages=2, schedule=Schedule.INTERLEAVED, num_microbatches=4)),
    "divided experts": ("qwen3_moe", Plan(tp=2, expert_tp=2)),
    "latent attention": ("deepseek_v3", Plan(dp_shard=2, sharding=Sharding.ZERO3_KEEP)),
}


@pytest.mark.slow
@needs_torchtitan
@pytest.mark.parametrize("case", TRAINED)
def test_torchtitan_trains_the_plan_on_cpus(case, contents_of, tmp_path):
    model_type, plan = TRAINED[case]
    contents = contents_of(tiny(model_type), replace(plan, compiled=0), seq_len=256)
    folder = written(contents, tmp_path / "run")
    module = ["--module", "planner_config", "--config", "planned"]
    steps = ["--training.steps", "2", "--metrics.log_freq", "1"]
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(plan.world_size)]
    result = subprocess.run(
        [*run, str(ON_CPU), *module, *steps],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    losses = [float(loss) for loss in re.findall(r"loss:\s+(-?[\d.]+)", result.stdout + result.stderr)]
    assert any(7 < loss < 9 for loss in losses)
    assert all(7 < loss < 9 for loss in losses if loss > 0)
