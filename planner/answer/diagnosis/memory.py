"""Causes of running out of memory, and of more memory than expected."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from planner.answer.diagnosis.commands import fits
from planner.answer.diagnosis.records import Case, Cause, Standing, Strength, Taken
from planner.answer.fits import Dial, FitReport, fit_report
from planner.answer.ranked_plan import RankedPlan
from planner.dumps.run_records import Sign
from planner.estimate.interval import TIGHT, Verdict
from planner.explain.breakdown import TermValue
from planner.quantities import GIB, format_bytes, format_seconds
from planner.spec.plan import Offload, Sharding

CONTEXT = 1.0 * GIB
"""What a process takes beside the framework's allocator, about: context, libraries, buffers of collectives."""
FRAGMENTED = 0.05
"""Share of the capacity that lies reserved but unallocated from which it is worth naming."""
SAME_SIZE = 0.03
"""How near a tensor's size has to be to the bytes that could not be allocated."""
ALLOCATOR = (
    "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older versions of torch); no "
    "torch.cuda.empty_cache() in the loop, batches of one shape"
)
FULL = "out of memory"
"""What an error message says, whatever the reason."""
STATES = ("weights", "gradients", "optimizer", "gather_buffers")
ACTIVATIONS = ("activations", "logits")


def _errors(case: Case) -> list[tuple[Taken, Sign]]:
    return case.signs("gpu_memory", "gpu_library_memory")


def _where(file: Taken, sign: Sign) -> str:
    moment = f", in {sign.words['moment']}" if "moment" in sign.words else ""
    return f"{file.path}, line {sign.line}{moment}"


def fragmentation(case: Case) -> Iterator[Cause]:
    """Memory that the allocator holds and cannot use for what is asked."""
    for file, sign in _errors(case):
        figures = sign.figures
        spare = figures.get("unallocated", figures.get("reserved", 0.0) - figures.get("allocated", 0.0))
        tried, capacity = figures.get("tried", 0.0), figures.get("capacity", 0.0)
        if spare > max(tried, FRAGMENTED * capacity, 0.5 * GIB):
            evidence = (
                f"{_where(file, sign)}: {format_bytes(spare)} reserved but unallocated, {format_bytes(tried)} could "
                "not be allocated"
            )
            command = (
                "python -c 'import torch; print(torch.cuda.memory_summary())'  # num_alloc_retries in the run itself"
            )
            yield Cause(
                "memory fragmentation", evidence, ALLOCATOR, command, Strength.SHOWN, gain=spare / (capacity or spare)
            )
            return
    for file, sign in case.signs("allocator_retries"):
        evidence = f"{file.path}, line {sign.line}: {sign.text}"
        yield Cause(
            "memory fragmentation",
            evidence,
            ALLOCATOR,
            "nvidia-smi --query-gpu=memory.used --format=csv -l 5",
            Strength.SHOWN,
            gain=0.3,
        )
        return


def other_process(case: Case) -> Iterator[Cause]:
    """Memory that another process has on the GPU."""
    for file, sign in _errors(case):
        figures = sign.figures
        if not {"capacity", "free", "allocated"} <= figures.keys():
            continue
        held = figures.get("reserved") or figures["allocated"] + figures.get("unallocated", 0.0)
        used = max(figures.get("process", held + CONTEXT), held)
        other = figures["capacity"] - figures["free"] - used
        told = "process" in figures or figures.get("processes", 0) > 1
        if other > (CONTEXT if told else 0.1 * figures["capacity"]):
            evidence = (
                f"{_where(file, sign)}: of {format_bytes(figures['capacity'])} this process holds "
                f"{format_bytes(used)} and {format_bytes(figures['free'])} are free; {format_bytes(other)} are "
                "another's"
            )
            setting = (
                "end the other process; if it is a rank of this job: torch.cuda.set_device(LOCAL_RANK) before the "
                "first tensor, and map_location for checkpoints"
            )
            yield Cause(
                "another process on the GPU",
                evidence,
                setting,
                "nvidia-smi; fuser -v /dev/nvidia*",
                Strength.SHOWN if told else Strength.LIKELY,
                gain=other / figures["capacity"],
            )
            return


def needs_too_much(case: Case) -> Iterator[Cause]:
    """The plan by its own estimate, where it ran out, takes more than expected, or cannot fit."""
    plan, over = case.plan, _over(case)
    if plan is None or not (over or plan.verdict is Verdict.DOES_NOT_FIT):
        return
    report = _report(plan)
    activations, states = (_sum(plan, names) for names in (ACTIVATIONS, STATES))
    first = report.dominant
    cause = "activation memory over budget" if activations >= states else "model states over budget"
    dial = _dial(report)
    says = {
        Verdict.DOES_NOT_FIT: "does not fit",
        Verdict.TIGHT: "is tight",
        Verdict.FITS: "should fit",
    }[plan.verdict]
    evidence = (
        f"{plan.words} {says}: {format_bytes(plan.peak)} expected of {format_bytes(plan.usable)} usable, most of it "
        f"{_named(first)}{over}"
    )
    strength = Strength.SHOWN if plan.verdict is Verdict.DOES_NOT_FIT else Strength.LIKELY
    if plan.verdict is Verdict.FITS:
        strength = Strength.POSSIBLE
    yield Cause(cause, evidence, _turn(dial), fits(plan), strength, gain=plan.peak / plan.usable)


def _over(case: Case) -> str:
    """What says that memory was short; empty where nothing does."""
    for file, sign in _errors(case):
        return f"; out of memory at {_where(file, sign)}"
    if nearly_full(case):
        return f"; measured {case.memory.measured:.1f} GiB" if case.memory else ""
    return ""


def nearly_full(case: Case) -> bool:
    """Whether a run takes more memory than expected, and nearly all that there is."""
    if case.plan is None or case.memory is None or case.memory.standing is not Standing.WORSE:
        return False
    return case.memory.measured * GIB > TIGHT * case.plan.usable


@lru_cache(maxsize=4)
def _report(plan: RankedPlan) -> FitReport:
    return fit_report(plan)


def _sum(plan: RankedPlan, names: tuple[str, ...]) -> float:
    return sum(float(getattr(plan.memory, name)) for name in names)


def _named(item: TermValue) -> str:
    return f"{item.term.title} ({format_bytes(item.value)})"


def _dial(report: FitReport) -> Dial | None:
    """The fastest single change that fits well; else the one that is fullest least."""
    dials = [dial for dial in report.dials if dial.ranked.peak < report.ranked.peak]
    fitting = [dial for dial in dials if dial.ranked.verdict is Verdict.FITS]
    if fitting:
        kept = [dial for dial in fitting if dial.ranked.question.workload == report.ranked.question.workload]
        return min(kept or fitting, key=lambda dial: dial.ranked.step_time)
    return min(dials, key=lambda dial: dial.ranked.peak, default=None)


def _turn(dial: Dial | None) -> str:
    if dial is None:
        return "no single change helps: more GPUs to shard over, a shorter sequence or a smaller model"
    other = dial.ranked
    left = f"{format_bytes(other.peak)} of {format_bytes(other.usable)} per GPU"
    return f"{dial.words} ({dial.options}): {left}, {format_seconds(other.step_time)} per step"


def allocation(case: Case) -> Iterator[Cause]:
    """A tensor of the very size that could not be allocated."""
    if case.plan is None:
        return
    for file, sign in _errors(case):
        tried = sign.figures.get("tried", 0.0)
        if tried < 0.1 * GIB:
            continue
        for cause, size, words, setting in _tensors(case.plan):
            if abs(tried - size) <= SAME_SIZE * size:
                evidence = f"{_where(file, sign)}: {format_bytes(tried)} could not be allocated, the size of {words}"
                yield Cause(
                    cause,
                    evidence,
                    setting,
                    fits(case.plan),
                    Strength.LIKELY,
                    gain=tried / case.plan.usable,
                )
                return


def _tensors(plan: RankedPlan) -> Iterator[tuple[str, float, str, str]]:
    """Cause, size, name and remedy of the large tensors that a run may make in one piece."""
    asked, each = plan.question, plan.plan
    model, job = asked.model, asked.workload
    tokens = each.micro_batch_size * job.seq_len / each.cp
    for width, name in ((4, "fp32"), (2, "16-bit")):
        yield (
            "logits in one piece",
            float(tokens * model.vocab_size * width / each.tp),
            f"the {name} logits of a micro-batch ({int(tokens):,} x {model.vocab_size:,})",
            "a loss in chunks (Liger's or torchtune's chunked cross-entropy, loss parallelism with tp), a smaller "
            "micro-batch",
        )
    heads = model.layers[0].attention.num_attention_heads
    for width, name in ((4, "fp32"), (2, "16-bit")):
        scores = each.micro_batch_size * heads * job.seq_len * job.seq_len * width / each.tp
        yield (
            "eager attention",
            float(scores),
            f"the {name} attention scores of a layer ({heads} heads x {job.seq_len:,} x {job.seq_len:,})",
            "attn_implementation=flash_attention_2 or sdpa; no output_attentions, no dense mask",
        )
    for width, name in ((4, "fp32"), (2, "16-bit")):
        yield (
            "the whole model in one piece",
            float(model.parameters * width / (each.tp * each.pp)),
            f"all parameters of the model in {name}",
            "wrap each layer by itself (fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP, fully_shard of every block)",
        )


def host_memory(case: Case) -> Iterator[Cause]:
    """Processes that the host's kernel, or its scheduler, killed for memory."""
    for file, sign in case.signs("host_memory", "killed"):
        certain = sign.kind == "host_memory"
        offload = bool(case.plan and case.plan.plan.offload != Offload.NONE) or bool(case.signs("offload"))
        need = _host_need(case.plan)
        setting = (
            "offload less (pinned copies take 18 to 24 bytes a parameter), or ask the scheduler for more host memory"
            if offload
            else "load the checkpoint once and not on every rank (meta device, fsdp_cpu_ram_efficient_loading, "
            "low_cpu_mem_usage), fewer data-loader workers, more host memory from the scheduler (--mem=0)"
        )
        yield Cause(
            "host out of memory",
            f"{file.path}, line {sign.line}: {sign.text}{need}",
            setting,
            "dmesg -T | grep -i -e oom -e 'killed process'; free -g; sacct -j JOB --format=MaxRSS,ReqMem",
            Strength.SHOWN if certain else Strength.LIKELY,
            gain=0.9,
        )
        return


def _host_need(plan: RankedPlan | None) -> str:
    if plan is None or not float(plan.memory.host):
        return ""
    node = plan.question.cluster.node
    need = float(plan.memory.host) * node.gpus_per_node
    has = f" of {format_bytes(float(node.host_memory))}" if node.host_memory else ""
    return f"; offloading takes {format_bytes(need)}{has} of a host"


def shared_memory(case: Case) -> Iterator[Cause]:
    """A container whose /dev/shm is too small."""
    for file, sign in case.signs("shared_memory"):
        yield Cause(
            "/dev/shm too small",
            f"{file.path}, line {sign.line}: {sign.text}",
            "docker run --shm-size=16g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory at /dev/shm",
            "df -h /dev/shm",
            Strength.SHOWN,
            gain=0.9,
        )
        return


def libraries(case: Case) -> Iterator[Cause]:
    """Libraries that find no memory beside the framework's allocator."""
    for file, sign in case.signs("gpu_library_memory"):
        yield Cause(
            "no room for libraries",
            f"{_where(file, sign)}: {sign.text}",
            "leave 1 to 2 GiB free: a smaller micro-batch, torch.cuda.set_per_process_memory_fraction(0.9), "
            "NCCL_BUFFSIZE or fewer process groups",
            "nvidia-smi --query-gpu=memory.used,memory.total --format=csv",
            Strength.SHOWN,
            gain=0.7,
        )
        return


def plainly_full(case: Case) -> Iterator[Cause]:
    """An out-of-memory message alone: what it says, and what turns most."""
    for file, sign in _errors(case):
        figures = sign.figures
        said = ", ".join(f"{format_bytes(figures[name])} {words}" for name, words in SAID.items() if name in figures)
        yield Cause(
            FULL,
            f"{_where(file, sign)}: {said or sign.text}",
            MOMENTS.get(sign.words.get("moment", ""), MOMENTS["backward"]),
            f"{fits(case.plan) if case.plan else 'planner fits MODEL CLUSTER --fix ...'}"
            "  # the plan's items, moment by moment, and what each change gives",
            Strength.POSSIBLE,
            gain=0.1,
        )
        return


SAID = {"tried": "asked for", "capacity": "capacity", "allocated": "allocated", "free": "free"}
MOMENTS = {
    "optimizer step": "optimizer states come with the first step: shard them (ZeRO-1, FSDP), adamw-8bit, or "
    "offload them",
    "loss": "logits and loss are the peak: a chunked or fused cross-entropy, loss parallelism, a smaller micro-batch",
    "attention": "attention scores in memory: flash attention (attn_implementation=flash_attention_2 or sdpa)",
    "loading": "the model does not fit as it is loaded: build it on the meta device, shard before materialising, "
    "load in 16 bits",
    "forward": "activations: half the micro-batch with twice the accumulation, recomputation (activation "
    "checkpointing)",
    "backward": "activations: half the micro-batch with twice the accumulation, recomputation (activation "
    "checkpointing); states: shard them (FSDP)",
}
"""Moment of the error -> what turns most."""


def not_sharded(case: Case) -> Iterator[Cause]:
    """Full replicas of a model whose states alone are more than a GPU has."""
    if case.plan is None:
        return
    plan = case.plan.plan
    if plan.sharding != Sharding.NONE or plan.dp < 2:
        return
    states = _sum(case.plan, STATES)
    if states > case.plan.usable:
        yield Cause(
            "states are not sharded",
            f"weights, gradients and optimizer states are {format_bytes(states)} on every one of {plan.dp} replicas",
            "shard them: FSDP (sharding=zero3), ZeRO-1 at least",
            fits(case.plan),
            Strength.SHOWN,
            gain=states / case.plan.usable,
        )


RULES = (
    not_sharded,
    needs_too_much,
    fragmentation,
    other_process,
    allocation,
    host_memory,
    shared_memory,
    libraries,
    plainly_full,
)
