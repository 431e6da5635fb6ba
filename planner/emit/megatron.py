"""Megatron-LM (core 0.20.0): the arguments of pretrain_gpt.py in a file, and a starter that checks and passes them on.

Names and rules: Megatron-LM @d98e8a6 of 2026-08-22, megatron/training/arguments.py (parse_args, validate_args) and the
records of megatron/core whose fields are arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.emit.job import Files, Program, Trainer, Variable
from planner.emit.megatron_model import Words, model_arguments
from planner.emit.preface import preface
from planner.emit.quoting import shell_word
from planner.emit.shapes import Unlike
from planner.emit.stage_layers import is_even, stage_sizes
from planner.emit.templates import filled
from planner.spec.model import Model
from planner.spec.plan import ContextKind, Offload, Plan, RankOrder, Recompute, Schedule, Sharding
from planner.spec.plan_file import PlanFile
from planner.spec.workload import Workload

VERSION = "core 0.20.0"
WRITTEN_FOR = f"Megatron-LM, {VERSION}"
ARGUMENTS, STARTER = "megatron_arguments.txt", "start_megatron.py"
CONTEXT_KINDS = {ContextKind.RING: "p2p", ContextKind.ULYSSES: "a2a", ContextKind.ALL_GATHER: "allgather"}
FSDP = {Sharding.ZERO2: "optim_grads", Sharding.ZERO3: "optim_grads_params"}
"""Shardings that Megatron-FSDP does."""
PRECISIONS: Mapping[str, tuple[Words, ...]] = {
    "bf16": (("--bf16",),),
    "fp16": (("--fp16",),),
    "fp32": (),
    "fp8": (("--bf16",), ("--fp8-format", "hybrid"), ("--fp8-recipe", "tensorwise")),
    "mxfp8": (("--bf16",), ("--fp8-format", "e4m3"), ("--fp8-recipe", "mxfp8")),
    "nvfp4": (("--bf16",), ("--fp4-format", "e2m1"), ("--fp4-recipe", "nvfp4")),
}
OPTIMIZERS: Mapping[str, tuple[Words, ...]] = {
    "adamw": (("--optimizer", "adam"), ("--adam-beta2", "0.95")),
    "sgd": (("--optimizer", "sgd"), ("--sgd-momentum", "0.0")),
    "sgd-momentum": (("--optimizer", "sgd"),),
}
RECOMPUTATION: Mapping[int, tuple[Words, ...]] = {
    Recompute.NONE: (),
    Recompute.SELECTIVE: (("--recompute-granularity", "selective"), ("--recompute-modules", "core_attn")),
    Recompute.FULL: (
        ("--recompute-granularity", "full"),
        ("--recompute-method", "uniform"),
        ("--recompute-num-layers", "1"),
    ),
}
ONE_QUEUE = Variable(
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "1",
    "Megatron demands it of tensor and context parallelism before Blackwell: kernels start in the order of launches",
)


def files(contents: PlanFile) -> Files:
    """The arguments and the starter. Raises Unlike where there is no such model: see `refusals`."""
    return {ARGUMENTS: arguments_text(contents), STARTER: _starter(contents)}


def program(contents: PlanFile) -> Program:
    """The starter; it finds Megatron-LM by the variable MEGATRON."""
    part, plan = contents.cluster.accelerator, contents.plan
    queued = (
        (plan.tp > 1 or plan.cp > 1) and plan.sharding not in FSDP and not part.architecture.startswith("blackwell")
    )
    return Program(
        words=(STARTER,),
        environment=(ONE_QUEUE,) if queued else (),
        requirements=("torch>=2.6", "transformer-engine[pytorch]"),
    )


def refusals(contents: PlanFile) -> Iterator[str]:
    """What it cannot express of the model and the job, and of the plan what depends on both."""
    plan, workload = contents.plan, contents.workload
    try:
        model_arguments(contents.model, workload.seq_len, int(plan.tp))
    except Unlike as reason:
        yield str(reason)
    if not plan.compiled:
        yield "its kernels are fused by hand and cannot all be taken apart: not without compiled"
    if contents.model.has_experts and plan.tp > 1 and not plan.sequence_parallel:
        yield f"experts with tp {plan.tp} need sequence parallelism"
    if plan.cp > 1 and workload.seq_len % (2 * plan.cp):
        yield f"cp {plan.cp} does not divide half of {workload.seq_len} tokens"
    inside = plan.ep * plan.expert_tp if contents.model.has_experts else plan.tp
    if plan.rank_order == RankOrder.TP_CP_PP_DP and plan.pp > 1 and inside != plan.tp * plan.cp:
        yield f"with stages close together tp x cp = {plan.tp * plan.cp} has to be the experts' ranks, {inside}"


TRAINER = Trainer("megatron", "megatron-core", WRITTEN_FOR, files, program, refusals)


def arguments_text(contents: PlanFile) -> str:
    """The arguments, one a line, in groups that comments name."""
    text = preface(contents, WRITTEN_FOR)
    for title, group in groups(contents).items():
        lines = [" ".join([words[0], *map(shell_word, words[1:])]) for words in group]
        text += "".join(f"{line}\n" for line in ("", f"# {title}", *lines)) if group else ""
    return text


def groups(contents: PlanFile) -> dict[str, list[Words]]:
    """The arguments by what they are about."""
    plan, workload, model = contents.plan, contents.workload, contents.model
    return {
        "model": model_arguments(model, workload.seq_len, int(plan.tp)),
        "degrees": [*_degrees(plan, model), *_stages(plan, model)],
        "data-parallel ranks": [*_sharding(plan), *_offload(plan)],
        "activations": list(RECOMPUTATION[int(plan.recompute)]),
        "batch": [
            ("--seq-length", str(workload.seq_len)),
            ("--micro-batch-size", str(plan.micro_batch_size)),
            ("--global-batch-size", str(workload.global_batch_size)),
        ],
        "precision and optimizer": [*PRECISIONS[workload.precision], *_training(workload)],
        "data: random tokens; for your own, --data-path and a tokenizer instead": [
            ("--mock-data",),
            ("--tokenizer-type", "NullTokenizer"),
            ("--split", "99,1,0"),
            ("--no-create-attention-mask-in-dataloader",),
        ],
        "output; --save FOLDER --save-interval STEPS keeps checkpoints": [
            ("--ckpt-format", "fsdp_dtensor" if plan.sharding in FSDP else "torch_dist"),
            ("--eval-iters", "0"),
            ("--log-interval", "1"),
            ("--log-throughput",),
        ],
    }


def _starter(contents: PlanFile) -> str:
    return filled(
        "start_megatron",
        preface=preface(contents, WRITTEN_FOR),
        world_size=int(contents.plan.world_size),
        arguments=ARGUMENTS,
    )


def _degrees(plan: Plan, model: Model) -> Iterator[Words]:
    yield "--tensor-model-parallel-size", str(plan.tp)
    if plan.sequence_parallel:
        yield ("--sequence-parallel",)
    if plan.async_tp:
        yield ("--tp-comm-overlap",)
    yield "--pipeline-model-parallel-size", str(plan.pp)
    if plan.cp > 1:
        yield "--context-parallel-size", str(plan.cp)
        yield "--cp-comm-type", CONTEXT_KINDS[ContextKind(int(plan.context_kind))]
    if model.has_experts:
        yield "--expert-model-parallel-size", str(plan.ep)
        yield "--expert-tensor-parallel-size", str(plan.expert_tp)
    if plan.rank_order == RankOrder.TP_CP_PP_DP:
        yield ("--use-tp-pp-dp-mapping",)


def _stages(plan: Plan, model: Model) -> Iterator[Words]:
    """Layers of the stages: equal ones by their number, others by their layout."""
    if plan.pp == 1:
        return
    if is_even(model.num_hidden_layers, plan):
        if plan.schedule == Schedule.INTERLEAVED:
            yield "--num-virtual-stages-per-pipeline-rank", str(plan.virtual_stages)
    else:
        yield "--pipeline-model-parallel-layout", layout(stage_sizes(model.num_hidden_layers, plan))


def layout(sizes: list[int]) -> str:
    """Stages in Megatron's notation: E embedding, t layer, L loss.

    >>> layout([3, 4, 3])
    'Et*3|t*4|t*3,L'
    """
    return f"E{'|'.join(f't*{size}' for size in sizes)},L"


def _sharding(plan: Plan) -> Iterator[Words]:
    sharding = Sharding(int(plan.sharding))
    if sharding in FSDP:
        yield ("--use-megatron-fsdp",)
        yield "--data-parallel-sharding-strategy", FSDP[sharding]
        yield ("--init-model-with-meta-device",)
        yield ("--no-gradient-accumulation-fusion",)
    if sharding != Sharding.NONE or plan.offload != Offload.NONE:
        yield ("--use-distributed-optimizer",)
        yield ("--overlap-param-gather",)
    if plan.dp * plan.cp > 1 or sharding != Sharding.NONE or plan.offload != Offload.NONE:
        yield ("--overlap-grad-reduce",)
    if sharding != Sharding.NONE and plan.dp_replicate > 1:
        yield "--num-distributed-optimizer-instances", str(plan.dp_replicate)


def _offload(plan: Plan) -> Iterator[Words]:
    if plan.offload == Offload.OPTIMIZER:
        yield ("--optimizer-cpu-offload",)
        yield ("--use-precision-aware-optimizer",)


def _training(workload: Workload) -> Iterator[Words]:
    yield from OPTIMIZERS[workload.optimizer]
    yield "--lr", "3e-4"
    yield "--min-lr", "3e-5"
    yield "--lr-decay-style", "cosine"
    yield "--lr-warmup-iters", "100"
    yield "--train-iters", "1000"
    yield "--weight-decay", "0.1"
    dropout = "0.1" if workload.dropout else "0.0"
    yield "--hidden-dropout", dropout
    yield "--attention-dropout", dropout
    if workload.attention == "math":
        yield "--attention-backend", "unfused"
