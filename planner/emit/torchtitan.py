"""torchtitan 0.3.0: a module whose function returns Trainer.Config, and one with random tokens to start with.

Names and rules: torchtitan 0.3.0 (config/configs.py, trainer.py, distributed/parallel_dims.py, pipeline_parallel.py).
It needs torch 2.14: torch.distributed.set_timeout and FSDP over spmd_types are not in 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.emit.job import Files, Program, Trainer
from planner.emit.preface import preface
from planner.emit.python_text import Name, arguments, call, source
from planner.emit.shapes import Unlike
from planner.emit.stage_layers import stage_sizes
from planner.emit.templates import filled
from planner.emit.torchtitan_model import model_code
from planner.spec.model import Model
from planner.spec.plan import Offload, Plan, Recompute, Schedule, Sharding
from planner.spec.plan_file import PlanFile
from planner.spec.workload import Workload

VERSION = "0.3.0"
WRITTEN_FOR = f"torchtitan {VERSION} (torch 2.14 and later)"
CONFIG_MODULE, CONFIG_FUNCTION, DATA_MODULE = "planner_config", "planned", "planner_data"
SCHEDULES = {Schedule.GPIPE: "GPipe", Schedule.ONE_F_ONE_B: "1F1B", Schedule.INTERLEAVED: "Interleaved1F1B"}
RESHARD = {Sharding.ZERO3: "default", Sharding.ZERO3_KEEP: "never"}
"""What becomes of gathered parameters after forward; `default` gathers them again but for those that come next."""
RECOMPUTATION = {Recompute.NONE: "None", Recompute.SELECTIVE: "SelectiveAC.Config()", Recompute.FULL: "FullAC.Config()"}
CONVERTERS = {"fp8": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter"}
"""Precision -> what replaces the linear layers."""
MASK_BLOCK = 128
"""Tokens that context parallelism moves as one (FlexAttention's block of the mask)."""


def files(contents: PlanFile) -> Files:
    """The configuration and the data loader. Raises Unlike where there is no such model: see `refusals`."""
    return {f"{CONFIG_MODULE}.py": _config(contents), f"{DATA_MODULE}.py": _data(contents)}


def program(contents: PlanFile) -> Program:
    """Torchtitan's trainer with the configuration."""
    quantized = ("torchao",) if contents.workload.precision in CONVERTERS else ()
    return Program(
        words=("-m", "torchtitan.train", "--module", CONFIG_MODULE, "--config", CONFIG_FUNCTION),
        requirements=("torch>=2.14", f"torchtitan=={VERSION}", *quantized),
    )


def refusals(contents: PlanFile) -> Iterator[str]:
    """What it cannot express of the model and the job, and of the plan what depends on both."""
    model, plan, workload = contents.model, contents.plan, contents.workload
    try:
        model_code(model, workload.seq_len, int(plan.cp))
    except Unlike as reason:
        yield str(reason)
    yield from _unlike_job(model, workload)
    yield from _unlike_plan(model, plan, workload)


def _unlike_job(model: Model, workload: Workload) -> Iterator[str]:
    if workload.dropout:
        yield "its models have no dropout"
    if workload.precision in CONVERTERS and model.has_experts:
        yield f"{workload.precision} is written for models without experts"


def _unlike_plan(model: Model, plan: Plan, workload: Workload) -> Iterator[str]:
    if plan.sharding == Sharding.NONE and plan.shard_group > 1:
        yield f"it shards over dp_shard x cp = {plan.shard_group} ranks whatever is asked: sharding none needs 1"
    if plan.cp > 1 and workload.seq_len % (MASK_BLOCK * plan.cp):
        yield f"cp {plan.cp} divides sequences in blocks of {MASK_BLOCK} tokens, and {workload.seq_len} are not that"
    if model.tie_word_embeddings and plan.pp > 1:
        yield "a model whose head is tied to its embedding has no pipeline"
    if plan.async_tp and not plan.compiled:
        yield "async_tp is a pass of torch.compile: it needs compiled"
    heads = {layer.attention.num_key_value_heads for layer, _ in model.layer_kinds}
    if any(each % plan.tp for each in heads):
        yield f"tp {plan.tp} has to divide {' and '.join(map(str, sorted(heads)))} key-value heads"
    if model.has_experts and plan.tp > 1 and (plan.ep == 1) != (plan.expert_tp == plan.tp):
        yield f"with tp, experts are whole where ep is above 1, else divided, not ep {plan.ep} x {plan.expert_tp}"


TRAINER = Trainer("torchtitan", "torchtitan", WRITTEN_FOR, files, program, refusals)


def _data(contents: PlanFile) -> str:
    return filled("torchtitan_data", preface=preface(contents, f"torchtitan {VERSION}"))


def _config(contents: PlanFile) -> str:
    plan, workload = contents.plan, contents.workload
    code = model_code(contents.model, workload.seq_len, int(plan.cp))
    sizes = stage_sizes(contents.model.num_hidden_layers, plan) if plan.pp > 1 else []
    return filled(
        "torchtitan_config",
        preface=preface(contents, f"torchtitan {VERSION}"),
        imports="\n".join(sorted([*code.imports, *_recomputation_import(plan), *_converter_import(workload)])),
        world_size=int(plan.world_size),
        registry=code.registry,
        flavor=source(contents.model.name),
        built=_built(workload, compiled=bool(plan.compiled)),
        vocab_size=contents.model.vocab_size,
        training=arguments(_training(plan, workload), 12),
        parallelism=arguments(_parallelism(plan, sizes), 12),
        activation_checkpoint=RECOMPUTATION[Recompute(int(plan.recompute))],
        compile=_compile(plan),
        model_class=code.model_class,
        model=code.source,
        stages=f"\n\n{filled('torchtitan_stages')}" if sizes else "",
    )


def _training(plan: Plan, workload: Workload) -> dict[str, Any]:
    """Batch and precision. A pipeline takes the micro-batches of a step as one local batch."""
    accumulated = plan.num_microbatches if plan.pp > 1 else 1
    half, mixed = "bfloat16", workload.precision != "fp32"
    settings: dict[str, Any] = {
        "local_batch_size": int(plan.micro_batch_size * accumulated),
        "global_batch_size": workload.global_batch_size,
        "seq_len": workload.seq_len,
        "steps": 1000,
        "mixed_precision_param": half if mixed else "float32",
    }
    if workload.state == "16bit":
        settings["dtype"] = half
    if plan.offload == Offload.ALL:
        settings["enable_cpu_offload"] = True
    # what was predicted is a launch without CUDA graphs, which keep memory of their own, and know no pipeline
    return settings | {"disable_cuda_graphs": True}


def _parallelism(plan: Plan, sizes: list[int]) -> dict[str, Any]:
    """Degrees, and what goes with those above 1."""
    settings: dict[str, Any] = {
        "data_parallel_replicate_degree": int(plan.dp_replicate),
        "data_parallel_shard_degree": int(plan.dp_shard),
        "tensor_parallel_degree": int(plan.tp),
        "pipeline_parallel_degree": int(plan.pp),
        "context_parallel_degree": int(plan.cp),
        "expert_parallel_degree": int(plan.ep),
    }
    if plan.sharding != Sharding.NONE:
        settings["fsdp_reshard_after_forward"] = RESHARD[Sharding(int(plan.sharding))]
    if plan.tp > 1:
        settings["enable_sequence_parallel"] = bool(plan.sequence_parallel)
    if plan.pp > 1:
        settings["pipeline_parallel_schedule"] = SCHEDULES[Schedule(int(plan.schedule))]
        settings["pipeline_parallel_microbatch_size"] = int(plan.micro_batch_size)
        settings["module_fqns_per_model_part"] = Name(f"stages({sizes})")
    return settings


def _compile(plan: Plan) -> str:
    """Arguments of CompileConfig."""
    if not plan.compiled:
        return "enable=False"
    return "enable=True, enable_async_tensor_parallel=True" if plan.async_tp else "enable=True"


def _built(workload: Workload, *, compiled: bool) -> str:
    """The model, its linear layers replaced where the precision wants it."""
    if workload.precision not in CONVERTERS:
        return "model()"
    filters = ["lm_head"] if workload.precision == "fp8" else None
    converter = call(f"{CONVERTERS[workload.precision]}.Config", model_compile_enabled=compiled, filter_fqns=filters)
    return f"{source(converter)}.build().convert(model())"


def _converter_import(workload: Workload) -> list[str]:
    name = CONVERTERS.get(workload.precision)
    return [f"from torchtitan.components.quantization import {name}"] if name else []


def _recomputation_import(plan: Plan) -> list[str]:
    name = RECOMPUTATION[Recompute(int(plan.recompute))].partition(".")[0]
    return [] if name == "None" else [f"from torchtitan.distributed.activation_checkpoint import {name}"]
