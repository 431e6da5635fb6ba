"""Does a plan fit: verdict, moment and rank of the peak, dominant item, and what each single change would give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from planner.answer.evaluate import evaluate
from planner.answer.fit_sentence import fit_sentence
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.errors import NoFeasiblePlan, PlannerError
from planner.estimate.interval import Verdict
from planner.estimate.memory import memory_timeline, memory_use
from planner.estimate.records import Moment, Role
from planner.explain.breakdown import TermValue
from planner.quantities import GIB
from planner.search.enumerate import enumerate_plans
from planner.search.fitting import fitting, host_fits
from planner.search.fix import Values
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.search.rank import search
from planner.spec.codec import plan_to_plain
from planner.spec.plan import Offload, Plan, Recompute, Sharding
from planner.spec.workload import Workload

SCHEMA_VERSION = 1
UNNAMED = ("tp", "pp", "cp", "ep")
"""Degrees that somebody who names a plan leaves out where they are 1."""


@dataclass(frozen=True, eq=False)
class Dial:
    """A single change: in words, as options of the command line, and the plan as it would then be."""

    words: str
    options: str
    ranked: RankedPlan

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "change": self.words,
            "options": self.options,
            "peak_memory_gib": self.ranked.peak / GIB,
            "memory_verdict": self.ranked.verdict.name.lower(),
            "p_fits": self.ranked.p_fits,
            "step_time_s": self.ranked.step_time,
        }


@dataclass(frozen=True, eq=False)
class FitReport:
    """A plan's memory judged. `timeline` holds the bytes of every pipeline role at every moment of the step."""

    ranked: RankedPlan
    timeline: Mapping[tuple[Role, Moment], float]
    dials: tuple[Dial, ...]

    @property
    def fits(self) -> bool:
        """Whether device memory holds the peak, and host memory what is offloaded."""
        return self.host_fits and self.ranked.verdict is not Verdict.DOES_NOT_FIT

    @property
    def host_fits(self) -> bool:
        """Whether hosts hold what their ranks offload."""
        return bool(host_fits(self.ranked.memory, self.ranked.question.cluster))

    @property
    def dominant(self) -> TermValue:
        """The largest item of the peak."""
        return self.ranked.memory_terms[0]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return fit_sentence(self)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner fits --json`."""
        ranked = self.ranked
        asked, predicted = ranked.question, ranked.prediction()
        wanted = ("peak_memory_gib", "usable_memory_gib", "memory_verdict", "memory_peak", "p_fits", "host_memory_gib")
        return {
            "schema_version": SCHEMA_VERSION,
            "command": asked.command("fits"),
            **asked.as_dict(),
            "fits": self.fits,
            "name": ranked.name,
            "plan": plan_to_plain(ranked.plan),
            **{key: predicted[key] for key in (*wanted, "memory_breakdown_gib")},
            "dominant": self.dominant.name,
            "timeline_gib": {
                role.name.lower(): {moment.name.lower(): self.timeline[role, moment] / GIB for moment in Moment}
                for role in Role
            },
            "dials": [dial.as_dict() for dial in self.dials],
        }


def fits(question: Question) -> FitReport:
    """The verdict on the best plan within `--fix`; on the smallest where none fits.

    Raises SpecError for an illegal fix, NoFeasiblePlan where no plan within it is legal.
    """
    return fit_report(evaluate(question, judged_plan(question)))


def fit_report(ranked: RankedPlan) -> FitReport:
    """The verdict on one plan."""
    asked = ranked.question
    timeline = memory_timeline(asked.model, ranked.plan, asked.workload, asked.stack)
    return FitReport(
        ranked=ranked,
        timeline={place: float(use.peak) for place, use in timeline.items()},
        dials=tuple(sorted(dials(ranked), key=lambda dial: (dial.ranked.verdict, dial.ranked.step_time))),
    )


def judged_plan(question: Question) -> Plan:
    """The plan that `--fix` means: the degrees that it leaves out are 1 if that makes a legal plan.

    Raises SpecError for an illegal fix, NoFeasiblePlan where no plan within it is legal.
    """
    fix = question.fix
    if question.choices.fix:
        with suppress(PlannerError):
            return _best(question, {**dict.fromkeys(UNNAMED, (1,)), **fix})
    return _best(question, fix)


def _best(question: Question, fix: Mapping[str, Values]) -> Plan:
    """The best plan within a fix, or the smallest where none fits. Raises NoFeasiblePlan where none is legal."""
    asked: dict[str, Any] = {"stack": question.stack, "fix": fix}
    inputs = question.model, question.cluster, question.workload
    try:
        return search(*inputs, **asked, profile=question.profile, objective=question.objective, top=1).best.plan
    except NoFeasiblePlan:
        candidates = enumerate_plans(*inputs, **asked)
        peak = fitting(candidates, *inputs, question.stack, estimate=memory_use).peak
        return candidates.row(int(peak.argmin()))


def dials(ranked: RankedPlan) -> Iterator[Dial]:
    """What each legal single change of the plan or the job would give."""
    asked, plan = ranked.question, ranked.plan
    problem = Problem.of(asked.model, asked.cluster, asked.workload, asked.stack)
    for words, options, changed in _plan_changes(plan):
        if not reasons(changed, problem):
            yield Dial(words, options, evaluate(asked, changed))
    for words, options, job in job_changes(asked.workload):
        other = replace(asked, workload=job)
        if not reasons(plan, Problem.of(asked.model, asked.cluster, job, asked.stack)):
            yield Dial(words, options, evaluate(other, plan))


def _plan_changes(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    """Single changes of a plan, legal or not: words, `--fix` text, the plan."""
    for level in (Recompute.SELECTIVE, Recompute.FULL):
        if level > plan.recompute:
            name = level.name.lower()
            yield f"{name} recomputation", f"--fix recompute={name}", replace(plan, recompute=level)
    size, number = plan.micro_batch_size, plan.num_microbatches
    if size > 1 and size % 2 == 0:
        half = replace(plan, micro_batch_size=size // 2, num_microbatches=number * 2)
        yield "half the micro-batch", f"--fix micro_batch_size={size // 2}", half
    yield from _sharding_changes(plan)
    yield from _tensor_changes(plan)
    for kind in (Offload.OPTIMIZER, Offload.ALL):
        if kind > plan.offload:
            yield f"offload {kind.name.lower()}", f"--offload {kind.name.lower()}", replace(plan, offload=kind)


def _sharding_changes(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    whole = replace(plan, dp_shard=plan.dp, dp_replicate=1)
    for kind, words in ((Sharding.ZERO1, "shard the optimizer (ZeRO-1)"), (Sharding.ZERO3, "shard everything (FSDP)")):
        if plan.sharding < kind:
            yield words, f"--fix sharding={kind.name.lower()}", replace(whole, sharding=kind)
    if plan.sharding == Sharding.ZERO3_KEEP:
        yield "release parameters after forward", "--fix sharding=zero3", replace(plan, sharding=Sharding.ZERO3)
    if plan.sharding != Sharding.NONE and plan.dp_replicate > 1:
        yield "shard over all replicas", "--fix dp_replicate=1", whole


def _tensor_changes(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    """Twice the tensor parallelism, half the replicas (or shards), twice the micro-batches."""
    number = plan.num_microbatches * 2
    doubled = replace(plan, tp=plan.tp * 2, num_microbatches=number, sequence_parallel=1)
    axis = "dp_replicate" if plan.dp_replicate % 2 == 0 else "dp_shard"
    if getattr(plan, axis) % 2 == 0:
        fewer = replace(doubled, **{axis: getattr(plan, axis) // 2})
        if fewer.dp * fewer.cp == 1:
            fewer = replace(fewer, sharding=Sharding.NONE)
        yield "twice the tensor parallelism", f"--fix tp={plan.tp * 2}", fewer


def job_changes(job: Workload) -> Iterator[tuple[str, str, Workload]]:
    """Single changes of a job that need less memory: words, options of the command line, the job."""
    if job.optimizer == "adamw":
        yield "8-bit optimizer states", "--optimizer adamw-8bit", replace(job, optimizer="adamw-8bit")
    if job.state == "mixed":
        yield "all states in 16 bits", "--state 16bit", replace(job, state="16bit")
    if job.seq_len >= 1024 and job.seq_len % 2 == 0:
        half = replace(job, seq_len=job.seq_len // 2)
        yield "half the sequence length", f"--seq-len {half.seq_len}", half
    if job.method == "full":
        yield "train adapters (LoRA)", "--method lora", replace(job, method="lora")
    if job.method == "lora":
        yield "4-bit frozen weights (QLoRA)", "--method qlora", replace(job, method="qlora")
