"""What slows the plan itself down, whatever the machines do: where its expected step goes, and what would be faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from planner.answer.diagnosis.commands import fits, nccl_tests
from planner.answer.diagnosis.records import Case, Cause, Strength
from planner.answer.evaluate import evaluate, links_of
from planner.answer.ranked_plan import RankedPlan
from planner.errors import PlannerError
from planner.estimate.interval import Verdict, p_faster
from planner.explain.reasons import time_terms
from planner.quantities import format_seconds
from planner.search.legality import reasons
from planner.search.problem import Problem
from planner.spec.cluster import Wiring
from planner.spec.codec import plan_to_plain
from planner.spec.plan import GradientSync, Offload, Plan, Recompute, Schedule, Sharding
from planner.topology.links import Links

LARGE = 0.15
"""Share of the expected step from which a term is worth naming."""
MOST = 0.3
"""Share from which it is named also where no other plan is surely faster."""
SURE = 0.8
"""Chance that another plan is faster from which it is named."""


@lru_cache(maxsize=4)
def _shares(plan: RankedPlan) -> dict[str, float]:
    terms = time_terms(plan.time)
    return {name: value / plan.step_time for name, value in terms.items()}


@lru_cache(maxsize=4)
def _links(plan: RankedPlan) -> Links:
    return links_of(plan.question, plan.plan)


def _better(plan: RankedPlan, changes: list[Plan]) -> RankedPlan | None:
    """The fastest of some changed plans that is legal, fits and is surely faster; None where none is."""
    asked = plan.question
    problem = Problem.of(asked.model, asked.cluster, asked.workload, asked.stack)
    found = []
    for change in changes:
        try:
            made = None if reasons(change, problem) else evaluate(asked, change)
        except PlannerError:
            continue
        if made and made.verdict is not Verdict.DOES_NOT_FIT:
            found.append(made)
    best = min(found, key=lambda each: each.step_time, default=None)
    return best if best and p_faster(best.step_time, plan.step_time, asked.profile) >= SURE else None


def _gain(plan: RankedPlan, better: RankedPlan | None) -> float:
    return 1 - better.step_time / plan.step_time if better else 0.0


def _would(plan: RankedPlan, better: RankedPlan | None, otherwise: str) -> str:
    """The fields to change and what they give."""
    if better is None:
        return otherwise
    old, new = plan_to_plain(plan.plan), plan_to_plain(better.plan)
    fields = ",".join(f"{name}={_text(new[name])}" for name in new if new[name] != old[name])
    return f"{fields} ({better.words}): {format_seconds(better.step_time)} per step"


def _text(value: object) -> str:
    return str(value).lower()


def sharding_across(case: Case) -> Iterator[Cause]:
    """Weights gathered, or gradients scattered, over a link between nodes that is slow for that."""
    plan = case.plan
    if plan is None or _shares(plan)["dp_exposed"] < LARGE:
        return
    each, links = plan.plan, _links(plan).dp_shard
    crosses = links.size > links.local
    waits = _shares(plan)["dp_exposed"]
    share = f"{waits:.0%} of the expected step of {format_seconds(plan.step_time)} waits for the data-parallel"
    if each.sharding >= Sharding.ZERO2 and crosses:
        better = _better(plan, _kept_inside(plan))
        if better is None and waits < MOST:
            return
        evidence = (
            f"{share} group: {int(links.size)} ranks share the weights, {int(links.local)} of them in a node, over "
            f"{plan.question.cluster.node.fabric.name}"
        )
        otherwise = "more sequences per step (accumulation with gradients summed locally), or a faster network"
        yield Cause(
            "full sharding across a slow link",
            evidence,
            _would(plan, better, otherwise),
            nccl_tests(case, "all_gather"),
            Strength.LIKELY,
            limit=True,
            gain=_gain(plan, better) or 0.1,
        )
    elif plan.question.cluster.num_nodes > 1 or each.dp > 1:
        better = _better(plan, _fewer_reductions(each))
        yield Cause(
            "slow link for gradients",
            f"{share} group to reduce gradients",
            _would(plan, better, "a larger batch: more micro-batches accumulated between reductions"),
            nccl_tests(case),
            Strength.LIKELY,
            limit=True,
            gain=_gain(plan, better) or 0.05,
        )


def _kept_inside(plan: RankedPlan) -> list[Plan]:
    """Shards inside a node only (HSDP), weights kept from forward to backward, or only the optimizer sharded."""
    each, links = plan.plan, _links(plan).dp_shard
    changes = [
        replace(each, sharding=int(kind)) for kind in (Sharding.ZERO3_KEEP, Sharding.ZERO1) if each.sharding != kind
    ]
    local = int(links.local)
    sizes = {int(each.dp) // count for count in range(2, int(each.dp) + 1) if each.dp % count == 0}
    for shard in sorted(size for size in sizes if size * each.cp <= local or size == local):
        hybrid = replace(each, dp_shard=shard, dp_replicate=int(each.dp) // shard)
        if shard > 1:
            changes += [hybrid, replace(hybrid, sharding=int(Sharding.ZERO3_KEEP))]
    once = [replace(change, gradient_sync=int(GradientSync.ONCE)) for change in (each, *changes)]
    return changes + (once if each.num_microbatches > 1 else [])


def _fewer_reductions(each: Plan) -> list[Plan]:
    """Half the replicas' traffic: larger micro-batches."""
    if each.num_microbatches % 2:
        return []
    return [replace(each, micro_batch_size=each.micro_batch_size * 2, num_microbatches=each.num_microbatches // 2)]


def tensor_across(case: Case) -> Iterator[Cause]:
    """Tensor parallelism over PCIe or between nodes; over a node's own links only where less of it is surely faster."""
    plan = case.plan
    if plan is None or _shares(plan)["tp_exposed"] < LARGE:
        return
    links, each, node = _links(plan).tp, plan.plan, plan.question.cluster.node
    crosses = links.size > links.local
    own_links = not crosses and node.wiring in (Wiring.SWITCH, Wiring.MESH)
    smaller = []
    for tp in (int(each.tp) // 2, int(each.tp) // 4, 1):
        factor = int(each.tp) // tp if tp >= 1 and each.tp % tp == 0 else 0
        if factor > 1 and each.num_microbatches % factor == 0:
            shard = int(each.dp_shard) * factor
            kind = each.sharding if each.sharding != Sharding.NONE else Sharding.ZERO1
            changed = replace(
                each, tp=tp, dp_shard=shard, num_microbatches=int(each.num_microbatches) // factor, sharding=int(kind)
            )
            smaller += [replace(changed, sequence_parallel=0) if tp == 1 else changed]
            smaller += [replace(smaller[-1], sharding=int(Sharding.ZERO3))]
    better = _better(plan, smaller)
    if own_links and better is None:
        return
    waits, over = _shares(plan)["tp_exposed"], node.fabric.name if crosses else node.link
    evidence = f"{waits:.0%} of the expected step waits for tensor parallelism of {int(each.tp)} over {over}"
    otherwise = "a smaller tensor-parallel group, inside the node's own links"
    yield Cause(
        "more tensor parallelism than needed" if own_links else "tensor parallelism over a slow link",
        evidence,
        _would(plan, better, otherwise),
        nccl_tests(case),
        Strength.LIKELY,
        limit=True,
        gain=_gain(plan, better) or 0.1,
    )


def bubble(case: Case) -> Iterator[Cause]:
    """A pipeline that waits to fill and drain."""
    plan = case.plan
    if plan is None or _shares(plan)["bubble"] < LARGE:
        return
    each = plan.plan
    changes = [replace(each, virtual_stages=chunks, schedule=int(Schedule.INTERLEAVED)) for chunks in (2, 4, 5)]
    changes += [
        replace(each, micro_batch_size=int(each.micro_batch_size) // 2, num_microbatches=int(each.num_microbatches) * 2)
    ]
    better = _better(plan, [change for change in changes if change.micro_batch_size >= 1])
    evidence = (
        f"{_shares(plan)['bubble']:.0%} of the expected step is the pipeline's filling and draining: "
        f"{int(each.num_microbatches)} micro-batches on {int(each.pp)} stages"
    )
    otherwise = (
        f"at least {4 * int(each.pp)} micro-batches (a larger batch or smaller micro-batches), or interleaved stages"
    )
    yield Cause(
        "pipeline bubble",
        evidence,
        _would(plan, better, otherwise),
        plan.question.command("explain"),
        Strength.LIKELY,
        limit=True,
        gain=_gain(plan, better) or 0.1,
    )


def host_bound(case: Case) -> Iterator[Cause]:
    """Kernels shorter than their launches."""
    plan = case.plan
    if plan is None or _shares(plan)["host"] < LARGE:
        return
    each = plan.plan
    larger = [
        replace(
            each,
            micro_batch_size=int(each.micro_batch_size) * factor,
            num_microbatches=int(each.num_microbatches) // factor,
        )
        for factor in (2, 4, 8)
        if each.num_microbatches % factor == 0
    ]
    better = _better(plan, [*larger, replace(each, compiled=1)])
    share = _shares(plan)["host"]
    evidence = (
        f"launching kernels takes {share:.0%} of the expected step: micro-batches of {int(each.micro_batch_size)}"
    )
    yield Cause(
        "host-bound or small batch",
        evidence,
        _would(plan, better, "larger micro-batches, torch.compile or CUDA graphs"),
        "nsys profile -t cuda,nvtx ...",
        Strength.LIKELY,
        limit=not case.slow,
        gain=_gain(plan, better) or 0.1,
    )


def recompute(case: Case) -> Iterator[Cause]:
    """Activations computed again that would fit."""
    plan = case.plan
    if plan is None or plan.plan.recompute == Recompute.NONE:
        return
    lighter = [
        replace(plan.plan, recompute=int(kind))
        for kind in (Recompute.NONE, Recompute.SELECTIVE)
        if kind < plan.plan.recompute
    ]
    better = _better(plan, lighter)
    if better and better.verdict is Verdict.FITS:
        evidence = (
            f"{_shares(plan)['recompute']:.0%} of the expected step computes activations again, and without there "
            f"is room: {better.peak / plan.usable:.0%} of usable memory"
        )
        yield Cause(
            "too much recompute",
            evidence,
            _would(plan, better, ""),
            fits(plan),
            Strength.LIKELY,
            limit=True,
            gain=_gain(plan, better),
        )


def offload(case: Case) -> Iterator[Cause]:
    """States in host memory, and their way over PCIe."""
    plan = case.plan
    said = next((f"{file.path}, line {sign.line}: {sign.text}" for file, sign in case.signs("offload")), "")
    planned = plan is not None and plan.plan.offload != Offload.NONE
    if plan is None or not planned:
        if said:
            yield Cause(
                "offload on",
                said,
                "offload off, if memory allows: planner fits says so",
                "nvidia-smi dmon -s pucvmt",
                Strength.SHOWN,
                limit=True,
                gain=0.3,
            )
        return
    better = _better(plan, [replace(plan.plan, offload=int(Offload.NONE))])
    evidence = f"{_shares(plan)['offload']:.0%} of the expected step moves or computes what is offloaded"
    yield Cause(
        "offload on",
        evidence,
        _would(plan, better, "offload only what does not fit otherwise"),
        fits(plan),
        Strength.LIKELY,
        limit=True,
        gain=_gain(plan, better) or _shares(plan)["offload"] / 2,
    )


def scores(case: Case) -> Iterator[Cause]:
    """Attention without a fused kernel: the job says so, or a log."""
    setting = "attn_implementation=flash_attention_2 or sdpa, --use-flash-attn, or Transformer Engine's fused attention"
    command = "python -c 'import torch; print(torch.backends.cuda.flash_sdp_enabled())'"
    for file, sign in case.signs("no_flash"):
        evidence = f"{file.path}, line {sign.line}: {sign.text}"
        yield Cause("eager attention", evidence, setting, command, Strength.SHOWN, limit=True, gain=0.4)
        return
    if case.plan and case.plan.question.workload.attention == "math":
        share = _shares(case.plan)["attention"]
        evidence = f"the settings ask for attention with scores in memory, {share:.0%} of the expected step"
        yield Cause("eager attention", evidence, setting, command, Strength.SHOWN, limit=True, gain=share)


RULES = (sharding_across, tensor_across, bubble, host_bound, recompute, offload, scores)
