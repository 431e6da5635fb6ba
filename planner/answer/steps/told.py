"""What files and options tell of a run: its plan, model, machines and software, and what nobody tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.answer.diagnosis.files import take
from planner.answer.evaluate import evaluate
from planner.answer.importing import judged
from planner.answer.plan_files import read_plan
from planner.answer.question import ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.software import profile_of
from planner.answer.steps.records import StepsAsked
from planner.catalogue.hardware import accelerator
from planner.catalogue.hardware import cluster as read_cluster
from planner.catalogue.stacks import stack
from planner.dumps.own_record import OwnSettings, own_settings
from planner.dumps.run_records import TrainingLog
from planner.dumps.titan_log import read_titan_head
from planner.emit.reading.settings import Settings
from planner.errors import PlannerError, SpecError
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.spec.cluster import Cluster
from planner.spec.plan import Schedule, Sharding
from planner.validate.columns import Stated
from planner.validate.complete import SkippedRun
from planner.validate.run_cluster import run_cluster

OWN_STACK = "pytorch"
STACKS = {
    "the planner's own trainer": OWN_STACK,
    "torchtitan": "torchtitan",
    "Megatron-LM": "megatron-core",
    "nanotron": "nanotron",
    "DeepSpeed": "hf-deepspeed",
    "Hugging Face Trainer": "hf",
}
"""Trainer of a log -> the stack that it is."""
PROCESSORS = ("cpu", "x86_64", "aarch64", "arm64", "amd64")
"""How records of runs on the host's processor name the device."""
PLAN, MODEL, CLUSTER = "the plan (--plan plan.json)", "the model (--model)", "the cluster (--cluster)"


@dataclass(frozen=True, eq=False)
class Told:
    """What is known of a run. `missing` names what is needed for a prediction and for a whole row of the table."""

    asked: StepsAsked
    ranked: RankedPlan | None = None
    settings: Settings | None = None
    """Those of a file of settings that was named as the plan."""
    own_cluster: Cluster | None = None
    ranks: int = 0
    sequences: int = 0
    seq_len: int = 0
    stack: str = ""
    gpu: str = ""
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def of_nothing(asked: StepsAsked) -> Told:
    """What the options alone tell. Raises SpecError or FileFormatError for options that are wrong."""
    named = stack(asked.stack, where="--stack").name if asked.stack else ""
    cluster = read_cluster(asked.cluster) if asked.cluster else None
    told = Told(asked, own_cluster=cluster, stack=named)
    if asked.plan is None:
        return told
    taken = take(asked.plan)
    if taken.settings:
        return replace(told, settings=taken.settings)
    return replace(told, ranked=_with_stack(read_plan(taken.path), named))


def of_log(path: Path, text: str, log: TrainingLog, given: Told) -> Told:
    """What a log tells beside the options; where they contradict each other, there is no prediction, and a note."""
    told = replace(given, stack=given.stack or STACKS.get(log.trainer, ""), gpu=_accelerator(log.device))
    if told.ranked is None:
        told = _of_settings(path, text, log, told)
    if told.ranked:
        told = _checked(told, log)
    ranks = told.ranks or log.world_size or 0
    sequences = told.sequences or log.global_batch_size or 0
    return replace(told, ranks=ranks, sequences=sequences)


def _with_stack(ranked: RankedPlan, name: str) -> RankedPlan:
    """The plan under another stack, if one is named."""
    if not name or name == ranked.question.stack.name:
        return ranked
    software = stack(name)
    question = replace(ranked.question, stack=software, profile=profile_of(ranked.question.cluster, software))
    return evaluate(question, ranked.plan)


def _of_settings(path: Path, text: str, log: TrainingLog, told: Told) -> Told:
    """The plan by the settings that the log itself states, or a file of settings beside it."""
    try:
        own = own_settings(text)
        if own:
            return _of_own(own, log, told)
        settings = told.settings or _logged_settings(path, text)
        if settings:
            return _of_framework(path, settings, log, told)
    except PlannerError as error:
        return replace(told, missing=(PLAN,), notes=(*told.notes, str(error)))
    return replace(told, missing=(PLAN,))


def _of_own(own: OwnSettings, log: TrainingLog, told: Told) -> Told:
    """The plan of a record of the planner's own trainer, on the cluster that is named or that its device tells."""
    job = own.workload
    ranks = int(own.plan.world_size)
    told = replace(told, ranks=ranks, sequences=job.global_batch_size, seq_len=job.seq_len)
    cluster = told.own_cluster or _cluster_of(log.device, ranks)
    if cluster is None:
        return replace(told, missing=(CLUSTER,))
    question = replace(ask(own.model, cluster, Choices(stack=told.stack, precision=job.precision)), workload=job)
    problem = Problem.of(question.model, question.cluster, question.workload, question.stack)
    for broken in reasons(own.plan, problem)[:1]:
        raise SpecError(f"the plan is not legal on {cluster.name}: {broken}")
    return replace(told, ranked=evaluate(question, own.plan))


def _of_framework(path: Path, settings: Settings, log: TrainingLog, told: Told) -> Told:
    """The plan of a framework's settings, for the model and the cluster that are named."""
    batch = {"global_batch_size": log.global_batch_size} if log.global_batch_size else {}
    job: Mapping[str, Any] = {**settings.job, **batch}
    ranks = settings.world_size or log.world_size or 0
    told = replace(told, ranks=ranks, sequences=job.get("global_batch_size", 0), seq_len=job.get("seq_len", 0))
    options = {MODEL: told.asked.model, CLUSTER: told.asked.cluster}
    missing = tuple(name for name, given in options.items() if given is None)
    if missing:
        return replace(told, missing=missing)
    software = replace(settings, job=job, stack=told.asked.stack or settings.stack)
    made = judged(path, software, model=told.asked.model, cluster=told.asked.cluster)
    return replace(told, ranked=made.ranked, notes=(*told.notes, *made.remarks))


def _logged_settings(path: Path, text: str) -> Settings | None:
    """What Megatron-LM and torchtitan print of their settings before the first step."""
    head = read_titan_head(text)
    if head is None:
        return take(path).settings if " .." in text else None
    pipeline, tp = head.plan.get("pp", 1) > 1, head.plan.get("tp", 1)
    plan = {
        "sharding": Sharding.ZERO3_KEEP if pipeline else Sharding.ZERO3,
        "schedule": Schedule.ONE_F_ONE_B if pipeline else Schedule.NONE,
        "sequence_parallel": int(tp > 1),
        **head.plan,
    }
    untold = ("the log does not name the pipeline's schedule: 1F1B is taken",) if pipeline else ()
    degrees = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    world = 1
    for name in degrees:
        world *= head.plan.get(name, 1)
    return Settings(
        what="torchtitan's log",
        stack="torchtitan",
        plan=plan,
        job=head.job,
        world_size=world if "dp_shard" in head.plan else 0,
        experts_by_ep_or_tp=True,
        untold=untold,
    )


def _checked(told: Told, log: TrainingLog) -> Told:
    """The plan's own figures; no plan where the log contradicts it."""
    assert told.ranked is not None
    asked = told.ranked.question
    pairs = (
        ("processes", log.world_size, asked.cluster.world_size),
        ("sequences per step", log.global_batch_size, asked.workload.global_batch_size),
    )
    against = [
        f"of {logged:,} {what}, the plan of {planned:,}"
        for what, logged, planned in pairs
        if logged not in (None, planned)
    ]
    part = asked.cluster.accelerator.name
    if _is_another(log.device, part):
        against.append(f"of a run on {log.device}, the plan is for {part}")
    if against:
        said = f"the log is {against[0]}: it is another run's"
        return replace(told, ranked=None, missing=(PLAN,), notes=(*told.notes, said))
    batch, seq_len = asked.workload.global_batch_size, asked.workload.seq_len
    stack_name = asked.stack.name
    return replace(told, ranks=asked.cluster.world_size, sequences=batch, seq_len=seq_len, stack=stack_name)


def on_processor(device: str) -> bool:
    """Whether a run was on the host's processor: the memory that it reports is then the whole process'."""
    return device.lower() in PROCESSORS or "cpu" in device.lower()


def _is_another(device: str, part: str) -> bool:
    """Whether a device is surely another than a plan's; logs do not always tell memory or board of a chip."""
    found = _accelerator(device)
    if on_processor(device):
        return bool(_accelerator(part))
    return bool(found) and found.split("-")[0] != part.split("-")[0]


def _accelerator(device: str) -> str:
    """The catalogue's name of a device as drivers name it; empty where it has none."""
    words = device.replace("NVIDIA ", "").split()
    for count in range(len(words), 0, -1):
        try:
            return accelerator(" ".join(words[:count])).name
        except SpecError:
            continue
    return ""


def _cluster_of(device: str, ranks: int) -> Cluster | None:
    """The usual machines of a device with so many processes; None where the catalogue has none."""
    name = _accelerator(device)
    if not name:
        return None
    try:
        return run_cluster(Stated(gpu=name, n_gpus=ranks))[0]
    except SkippedRun:
        return None
