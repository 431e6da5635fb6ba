"""A plan from a framework's settings: what they leave open is filled in from the model and the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.answer.evaluate import evaluate
from planner.answer.nearest import Software, fix_text
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.emit.reading.recognise import read_settings
from planner.emit.reading.settings import Settings
from planner.emit.stage_layers import stage_sizes
from planner.errors import SpecError
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.spec.plan import PLAN_KINDS, PLAN_SWITCHES, GradientSync, Offload, Plan, Schedule, Sharding
from planner.spec.plan_file import DEGREES

SCHEMA_VERSION = 1
JOB_OPTIONS = ("seq_len", "global_batch_size", "precision", "state", "optimizer", "attention")
"""What settings say of a job, and options set."""


@dataclass(frozen=True)
class Import:
    """What was read of a file, and, where model and cluster are known, the plan with its prediction.

    `command` judges the plan without the file, and changes of it; empty where the search passes the plan over.
    """

    path: Path
    settings: Settings
    ranked: RankedPlan | None
    remarks: tuple[str, ...]
    command: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "file": str(self.path),
            "what": self.settings.what,
            "stack": self.settings.stack,
            "told": told(self.settings),
            "remarks": list(self.remarks),
            "command": self.command or None,
            "plan": self.ranked and self.ranked.as_dict(),
        }


def import_plan(path: Path, *, model: str | None = None, cluster: str | None = None) -> Import:
    """The plan that a file of settings describes, for a model and a cluster.

    The model is the config.json beside the file where none is named. Raises FileFormatError where the file cannot be
    read or is none that is known, SpecError where its degrees do not suit the model or the cluster.
    """
    return judged(path, read_settings(path), model=model, cluster=cluster)


def judged(path: Path, settings: Settings, *, model: str | None = None, cluster: str | None = None) -> Import:
    """As `import_plan`, of settings that were read from a file already."""
    named = model or (str(settings.model) if settings.model else None)
    if named is None or cluster is None:
        missing = [name for name, given in (("--model", named), ("--cluster", cluster)) if given is None]
        remark = f"name {' and '.join(missing)} for a prediction"
        return Import(path, settings, None, (*settings.untold, remark))
    question = ask(named, cluster, _choices(settings))
    try:
        plan, remarks = _plan(settings, question)
    except SpecError as error:
        raise SpecError(str(error), where=str(path)) from error
    question = _with_batch(question, plan, settings)
    problem = Problem.of(question.model, question.cluster, question.workload, question.stack)
    broken = reasons(plan, problem)
    if broken:
        raise SpecError(f"the settings make no plan that the planner can judge: {broken[0]}", where=str(path))
    ranked = evaluate(question, plan)
    return Import(path, settings, ranked, (*settings.untold, *remarks), fits_command(ranked))


def told(settings: Settings) -> dict[str, Any]:
    """The fields of plan and job that settings tell, as plans are written."""
    fields = {name: _written(name, value) for name, value in settings.plan.items()}
    ranks = {"world_size": settings.world_size} if settings.world_size else {}
    return {**fields, **ranks, **settings.job}


def fits_command(ranked: RankedPlan) -> str:
    """The `planner fits` line that judges a plan without its file; empty where the search passes the plan over."""
    asked = ranked.question
    fix = fix_text(ranked.plan, Software(asked.model, asked.cluster, asked.workload, asked.stack, asked.profile))
    offload = Offload(int(ranked.plan.offload)).name.lower()
    return replace(asked, choices=replace(asked.choices, fix=fix, offload=offload)).command("fits") if fix else ""


def _written(name: str, value: int) -> Any:
    if name in PLAN_KINDS:
        return PLAN_KINDS[name](value).name.lower()
    return bool(value) if name in PLAN_SWITCHES else int(value)


def _choices(settings: Settings) -> Choices:
    chosen = {name: settings.job[name] for name in JOB_OPTIONS if name in settings.job}
    return Choices(stack=settings.stack, **chosen)


def _plan(settings: Settings, question: Question) -> tuple[Plan, list[str]]:
    """The whole plan, and what to know of it."""
    fields = dict(settings.plan)
    for name in DEGREES:
        if fields.get(name, 1) < 1:
            raise SpecError(f"{name} should be at least 1, not {fields[name]}")
    world, remarks = question.cluster.world_size, []
    if settings.world_size and settings.world_size != world:
        remarks.append(f"the settings are for {settings.world_size} processes, the cluster has {world} GPUs")
    plan = Plan(**fields)
    plan = _with_ranks(plan, fields, question)
    plan = _with_experts(plan, settings, question)
    plan, more = _with_stages(plan, settings, question)
    plan = _with_synchronisation(_with_micro_batches(plan, fields, settings, question), fields, question)
    return plan, [*remarks, *more, *_job_remarks(settings, question)]


def _with_ranks(plan: Plan, fields: dict[str, int], question: Question) -> Plan:
    """Data-parallel ranks: as they are told, else what is left of the cluster; unsharded ones are replicas."""
    world, rest = question.cluster.world_size, int(plan.tp * plan.pp * plan.cp)
    if rest < 1 or world % rest:
        raise SpecError(f"tp x pp x cp = {rest} does not divide the cluster's {world} GPUs")
    ranks = world // rest
    shard, replicate = fields.get("dp_shard", 0), fields.get("dp_replicate", 0)
    if shard and replicate and shard * replicate != ranks:
        raise SpecError(f"dp_shard {shard} x dp_replicate {replicate} is not {ranks}, the ranks left")
    for name, degree in (("dp_shard", shard), ("dp_replicate", replicate)):
        if degree and ranks % degree:
            raise SpecError(f"{name} {degree} does not divide {ranks}, the ranks left")
    shard = shard or ranks // (replicate or 1)
    plan = replace(plan, dp_shard=shard, dp_replicate=ranks // shard)
    if plan.sharding != Sharding.NONE and plan.shard_group == 1:
        plan = replace(plan, sharding=Sharding.NONE)
    return plan


def _with_experts(plan: Plan, settings: Settings, question: Question) -> Plan:
    """What frameworks leave unsaid of experts, and the replicas of what is not sharded."""
    if not question.model.has_experts:
        plan = replace(plan, ep=1, expert_tp=1)
    elif settings.experts_by_ep_or_tp:
        plan = replace(plan, expert_tp=plan.tp if plan.ep == 1 else 1)
    if plan.sharding != Sharding.NONE:
        return plan
    inside, dense = plan.ep * plan.expert_tp, plan.cp * plan.tp
    needed = next((n for n in range(1, plan.dp + 1) if plan.dp % n == 0 and (n * dense) % inside == 0), plan.dp)
    return replace(plan, dp_shard=needed, dp_replicate=plan.dp // needed)


def _with_stages(plan: Plan, settings: Settings, question: Question) -> tuple[Plan, list[str]]:
    """Layers of the first and last stage, and chunks, from the layers of every chunk."""
    if settings.layers_per_stage is None or plan.pp == 1:
        return plan, []
    layers = question.model.num_hidden_layers
    sizes = settings.layers_per_stage(layers)
    if sum(sizes) != layers or len(sizes) % plan.pp:
        raise SpecError(f"chunks of {_runs(sizes)} layers are not the model's {layers} on {plan.pp} ranks")
    ranks = [sum(sizes[rank :: plan.pp]) for rank in range(plan.pp)]
    chunks = len(sizes) // plan.pp
    even = len(set(ranks)) == 1
    schedule = plan.schedule if chunks == 1 else Schedule.INTERLEAVED
    plan = replace(
        plan,
        virtual_stages=chunks,
        schedule=schedule,
        first_stage_layers=0 if even else ranks[0],
        last_stage_layers=0 if even else ranks[-1],
    )
    dealt = tuple(stage_sizes(layers, plan))
    remark = f"chunks of {_runs(sizes)} layers count as {_runs(dealt)}"
    return plan, [] if dealt == tuple(sizes) else [remark]


def _runs(sizes: Iterable[int]) -> str:
    """Sizes in a row with equal ones counted: `7, 14 x 8, 7`."""
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    return ", ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in runs)


def _with_micro_batches(plan: Plan, fields: dict[str, int], settings: Settings, question: Question) -> Plan:
    """Micro-batches of a step: told, or what makes the batch."""
    if "num_microbatches" in fields:
        return plan
    if "sequences_per_rank" in settings.job:
        return replace(plan, num_microbatches=max(settings.job["sequences_per_rank"] // plan.micro_batch_size, 1))
    if "global_batch_size" not in settings.job and settings.stack in ("torchtitan", "megatron-core"):
        return plan  # one micro-batch a rank is what these take
    batch = question.workload.global_batch_size
    each = plan.micro_batch_size * plan.dp
    if batch % each:
        raise SpecError(f"the batch of {batch} sequences is no multiple of micro-batch x dp = {each}")
    return replace(plan, num_microbatches=batch // each)


def _with_synchronisation(plan: Plan, fields: dict[str, int], question: Question) -> Plan:
    """How often plain replicas are reduced, where the framework has its own way."""
    able = question.stack.replica_syncs
    replicas = plan.sharding == Sharding.NONE and plan.dp * plan.cp > 1 and plan.pp == 1
    if "gradient_sync" in fields or not replicas or "usual" in able:
        return plan
    return replace(plan, gradient_sync=GradientSync[able[0].upper()])


def _with_batch(question: Question, plan: Plan, settings: Settings) -> Question:
    """The question about the batch that the plan makes, where the settings do not name it."""
    if "global_batch_size" in settings.job:
        return question
    return replace(question, workload=replace(question.workload, global_batch_size=int(plan.global_batch_size)))


def _job_remarks(settings: Settings, question: Question) -> Iterator[str]:
    if "seq_len" not in settings.job:
        yield f"sequence length taken: {question.workload.seq_len:,}"
    if "micro_batch_size" not in settings.plan:
        yield "micro-batch taken: 1"
