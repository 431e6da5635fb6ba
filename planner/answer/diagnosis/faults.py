"""Which single fault would make a run as slow as it was measured: the plan's estimate with that fault in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log

from planner.answer.diagnosis.commands import fits, nccl_tests, transports
from planner.answer.diagnosis.measured import on_host
from planner.answer.diagnosis.network import PLUGINS, USE_RDMA
from planner.answer.diagnosis.records import Case, Cause, Standing, Strength
from planner.answer.evaluate import evaluate
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.catalogue.hardware import network
from planner.errors import PlannerError
from planner.estimate.interval import Verdict
from planner.estimate.memory import memory_use
from planner.quantities import format_seconds
from planner.spec.cluster import Cluster, Node, Wiring
from planner.spec.plan import GradientSync, Offload, Plan, Recompute, Sharding

WORTH_NAMING = 1.1
"""A fault has to slow the plan down by this factor to be named."""
Changed = tuple[Question, Plan]


def explained(case: Case) -> Iterator[Cause]:
    """Faults whose predicted step is as long as the measured one, within the prediction's interval."""
    if not case.slow or case.speed is None or case.plan is None or any(on_host(file) for file, _ in case.logs):
        return
    step, refuted = case.plan.step_time * case.speed.factor, _refuted(case)
    for name, (words, setting, command, usual, change) in FAULTS.items():
        faulty = None if name in refuted else _with(case.plan, change)
        if faulty is None or faulty.step_time < WORTH_NAMING * case.plan.step_time:
            continue
        low, high = float(faulty.interval.low), float(faulty.interval.high)
        if low <= step <= high:
            evidence = (
                f"{words} would make a step {format_seconds(faulty.step_time)} ({format_seconds(low)} to "
                f"{format_seconds(high)}); measured {format_seconds(step)}, expected "
                f"{format_seconds(case.plan.step_time)}"
            )
            near = 1 / (1 + abs(log(step / faulty.step_time)))
            yield Cause(
                name, evidence, _setting(setting, case.plan), command(case), Strength.POSSIBLE, gain=near * usual
            )


def _refuted(case: Case) -> set[str]:
    """Faults of the network that a table of nccl-tests speaks against: it was as fast as it should be."""
    fine = [check.across for check in case.checks if not check.slow]
    across = {"TCP fallback", "shared NIC"} if True in fine else set()
    return across | ({"no peer access"} if fine else set())


def _with(plan: RankedPlan, change: Callable[[RankedPlan], Changed | None]) -> RankedPlan | None:
    """The plan with a fault; None where it cannot have it, or would not run at all."""
    changed = change(plan)
    if changed is None:
        return None
    try:
        faulty = evaluate(*changed)
    except PlannerError:
        return None
    grown = faulty.verdict is Verdict.DOES_NOT_FIT and plan.verdict is not Verdict.DOES_NOT_FIT
    return None if grown else faulty


def _setting(setting: str, plan: RankedPlan) -> str:
    return PLUGINS.get(plan.question.cluster.node.fabric.kind, USE_RDMA) if setting == USE_RDMA else setting


def _nodes(cluster: Cluster, change: Callable[[Node], Node]) -> Cluster:
    return replace(cluster, pools=tuple(replace(pool, node=change(pool.node)) for pool in cluster.pools))


def _sockets(plan: RankedPlan) -> Changed | None:
    """The same wires, driven by sockets."""
    cluster = plan.question.cluster
    if cluster.num_nodes < 2 or cluster.node.fabric.kind == "ethernet":
        return None
    slow = network("tcp-100")

    def changed(node: Node) -> Node:
        fabric = replace(node.fabric, kind=slow.kind, latency=slow.latency)
        rate = min(slow.nic_bandwidth, fabric.node_bandwidth)
        return replace(node, fabric=replace(fabric, nics_per_node=1, nic_bandwidth=rate))

    return replace(plan.question, cluster=_nodes(cluster, changed)), plan.plan


def _one_nic(plan: RankedPlan) -> Changed | None:
    cluster = plan.question.cluster
    if cluster.num_nodes < 2 or cluster.node.fabric.nics_per_node < 2:
        return None
    only = _nodes(cluster, lambda node: replace(node, fabric=replace(node.fabric, nics_per_node=1)))
    return replace(plan.question, cluster=only), plan.plan


def _through_host(plan: RankedPlan) -> Changed | None:
    node = plan.question.cluster.node
    if node.wiring is Wiring.HOST or node.gpus_per_node < 2:
        return None
    rate = node.accelerator.pcie_bandwidth
    slots = "pcie3" if rate < 20e9 else "pcie4" if rate < 40e9 else "pcie5"

    def changed(each: Node) -> Node:
        fields = {"wiring": Wiring.HOST, "link": slots, "link_bandwidth": rate, "link_pairs": {}}
        return replace(each, **fields, in_network_reduction=False, domain_nodes=1)

    return replace(plan.question, cluster=_nodes(plan.question.cluster, changed)), plan.plan


def _scores(plan: RankedPlan) -> Changed | None:
    job = plan.question.workload
    return (
        None
        if job.attention == "math"
        else (replace(plan.question, workload=replace(job, attention="math")), plan.plan)
    )


def _all_again(plan: RankedPlan) -> Changed | None:
    whole = replace(plan.plan, recompute=int(Recompute.FULL))
    return None if plan.plan.recompute == Recompute.FULL else (plan.question, whole)


def _eager(plan: RankedPlan) -> Changed | None:
    return (plan.question, replace(plan.plan, compiled=0)) if plan.plan.compiled else None


def _every(plan: RankedPlan) -> Changed | None:
    each = plan.plan
    if each.dp < 2 or each.num_microbatches < 2 or each.sharding >= Sharding.ZERO2:
        return None
    return plan.question, replace(each, gradient_sync=int(GradientSync.EVERY))


def _offloaded(plan: RankedPlan) -> Changed | None:
    whole = replace(plan.plan, offload=int(Offload.OPTIMIZER))
    return None if plan.plan.offload != Offload.NONE else (plan.question, whole)


FAULTS: dict[str, tuple[str, str, Callable[[Case], str], float, Callable[[RankedPlan], Changed | None]]] = {
    "TCP fallback": ("TCP sockets instead of RDMA", USE_RDMA, transports, 1.0, _sockets),
    "shared NIC": (
        "one adapter of each node in use",
        "let NCCL_IB_HCA name every adapter (=mlx5_0,mlx5_1,...), and give a container all of them",
        transports,
        0.9,
        _one_nic,
    ),
    "no peer access": (
        "bytes between GPUs of a node passing through host memory",
        "unset NCCL_P2P_DISABLE, switch IOMMU and ACS off, pass all GPUs to the container",
        lambda case: "nvidia-smi topo -p2p r; nvidia-smi nvlink -s",
        0.8,
        _through_host,
    ),
    "eager attention": (
        "attention scores in memory",
        "attn_implementation=flash_attention_2 or sdpa",
        lambda case: "python -c 'import torch; print(torch.backends.cuda.flash_sdp_enabled())'",
        0.6,
        _scores,
    ),
    "too much recompute": (
        "recomputing whole layers",
        "activation checkpointing off, or of some operators only (recompute=selective)",
        lambda case: fits(case.plan) if case.plan else "",
        0.5,
        _all_again,
    ),
    "gradients reduced too often": (
        "reducing gradients with every micro-batch",
        "no_sync() around all but the last micro-batch (set_requires_gradient_sync(False))",
        nccl_tests,
        0.7,
        _every,
    ),
    "offload on": (
        "an optimizer in host memory",
        "offload_optimizer off",
        lambda case: "nvidia-smi dmon -s pucvmt",
        0.5,
        _offloaded,
    ),
    "kernels not fused": (
        "running without torch.compile",
        "torch.compile of every block, fused kernels (Apex, Transformer Engine, Liger)",
        lambda case: "nsys profile -t cuda,nvtx ...",
        0.7,
        _eager,
    ),
}
"""Cause -> the fault in words, what to set, what to run, how usual it is, and the plan with the fault in it."""


def memory_explained(case: Case) -> Iterator[Cause]:
    """Another setting than the plan's by which the measured memory would be what is expected."""
    measured, plan = case.memory, case.plan
    if measured is None or plan is None or measured.standing is not Standing.WORSE:
        return
    found = []
    for words, setting, question, changed in _fuller(plan):
        try:
            use = memory_use(question.model, changed, question.workload, question.stack)
        except PlannerError:
            continue
        factor = float(use.peak) / plan.peak
        if factor > WORTH_NAMING and measured.low <= measured.measured / factor <= measured.high:
            found.append((abs(log(measured.factor / factor)), words, setting))
    _, words, setting = min(found, default=(0.0, "", ""))
    yield Cause(
        "more memory than planned",
        f"{measured.source}: {measured.measured:.1f} GiB where {measured.expected:.1f} were expected"
        + (f", which {words} would explain" if words else ""),
        setting
        or "look at the settings that are in force: recomputation, micro-batch, sharding, precision of the states; "
        "what the allocator holds may be spare room as well",
        fits(plan),
        Strength.POSSIBLE,
        limit=True,
        gain=0.2,
    )


def _fuller(plan: RankedPlan) -> Iterator[tuple[str, str, Question, Plan]]:
    """Settings that are easily not in force: in words, what to look at, and the plan so."""
    asked, each = plan.question, plan.plan
    for kind in (Recompute.NONE, Recompute.SELECTIVE):
        if kind < each.recompute:
            words = f"{kind.name.lower()} recomputation"
            yield words, "activation checkpointing is not in force", asked, replace(each, recompute=int(kind))
    if each.sharding > Sharding.ZERO1:
        less = replace(each, sharding=int(Sharding.ZERO1))
        yield (
            "sharding of the optimizer alone",
            "FSDP or ZeRO-3 is not in force, or does not wrap the layers",
            asked,
            less,
        )
        whole = replace(each, dp_shard=1, dp_replicate=int(each.dp), sharding=int(Sharding.NONE))
        yield "no sharding at all", "FSDP is not in force", asked, whole
    if asked.workload.attention != "math":
        scores = replace(asked, workload=replace(asked.workload, attention="math"))
        yield "attention scores in memory", "flash attention is not in force", scores, each
    double = replace(each, micro_batch_size=int(each.micro_batch_size) * 2)
    yield "twice the micro-batch", "the micro-batch is not the plan's", asked, double


RULES = (explained, memory_explained)
