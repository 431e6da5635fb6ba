"""Every distinct legal plan of a question, as columns.

The table grows in two halves: the mesh (degrees, sharding, switches: which ranks do what) and the batch (micro-batch,
schedule, recomputation: in which order). They meet only through pp, cp and the data-parallel degree, so each half
stays small, and rules are applied to halves; their product is formed once, by index arithmetic.

Legal but not searched, unless the user's fixed values leave nothing else, is what lies past `Bounds`; and, unless
`cp` is fixed, context parallelism whose degree has a divisor g in common with the micro-batch: cp / g, with g times
the data-parallel ranks and micro-batches of 1 / g, gives every rank as many tokens and shards with less exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner.quantities import Column, divisors
from planner.search import conditions, limits, rules
from planner.search.canonical import balances, not_gpipe_by_another_name, replicas_stand_together
from planner.search.fix import Fix, check_fix, sharding_kind
from planner.search.grow import Sieve, cross, up_to
from planner.search.layers import balanced_ends, end_layers
from planner.search.problem import Problem
from planner.search.product import converted, product
from planner.search.rank_orders import distinct_orders
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import ContextKind, GradientSync, Offload, Plan, RankOrder, Schedule, Sharding
from planner.spec.stack import Stack
from planner.spec.workload import Workload


@dataclass(frozen=True)
class Bounds:
    """How far the search goes where legality alone would let it go on."""

    tp_nodes: int = 2
    """Tensor groups of at most so many nodes (or one link domain, if larger)."""
    cp_tokens: int = 1024
    """Context parallelism leaves each rank at least so many tokens of a sequence."""
    micro_batch_tokens: int = 131072
    """Micro-batches of at most so many tokens on a rank (torchtitan's 70B runs: 16 sequences of 8192); one sequence
    is always searched."""
    shards_across_nodes: bool = False
    """Whether sharding groups that neither fill nodes nor lie within one are searched; they always are where they
    leave no replicas."""
    virtual_stages: int = 12
    """Chunks a rank (Megatron-LM's 175B runs: 96 layers in 12 chunks on each of 8 stages)."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Distinct, canonical, legal plans; those that differ in rank order alone stand together.

    `plans` holds them as small integers, to be kept and not to be computed with: for that there are `chunks`, `rows`.
    `rejected` counts by reason what was not legal; a plan of which only some fields were chosen counts once.
    """

    plans: Plan
    rejected: Mapping[str, int]
    lowest_order: int = RankOrder.TP_CP_DP_PP
    """The rank order with which each run of plans that differ in it alone begins."""

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.plans)

    def chunks(self, size: int = 32768) -> Iterator[Plan]:
        """The plans in order, `size` at a time, as `rows`."""
        return (self.rows(slice(start, start + size)) for start in range(0, len(self), size))

    def rows(self, index: slice | Column) -> Plan:
        """Some of the plans, counts as int64, so that products of them do not overflow."""
        return converted(self.plans[index], np.int64)

    def row(self, index: int) -> Plan:
        """One plan, as Python numbers."""
        return Plan(**{name: int(value) for name, value in self.plans[index].as_dict().items()})


def enumerate_plans(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    stack: Stack,
    fix: Fix | None = None,
    bounds: Bounds | None = None,
) -> Candidates:
    """Every plan that is legal, within `bounds` and allowed by `fix`, each once.

    Fields that the user does not fix take all values, except `offload` (none), `gradient_sync` (usual), `async_tp`
    (off) and `compiled` (as the stack is). Raises SpecError when no value of a fixed field is possible, NoFeasiblePlan
    when nothing legal is left.
    """
    problem = Problem.of(model, cluster, workload, stack)
    check_fix(fix or {}, problem)
    sieve = Sieve(problem, fix or {}, Counter())
    mesh = _meshes(sieve, bounds or Bounds())
    orders = sieve.searched("rank_order", problem.codes("rank_orders"))
    batch = _batches(sieve, bounds or Bounds(), mesh)
    plans = product(mesh, batch, orders, distinct_orders(mesh, cluster, tuple(orders)))
    plans = sieve.legal(plans, rules.WHOLE)
    return Candidates(plans, dict(sieve.rejected), int(orders.min()))


def _meshes(sieve: Sieve, bounds: Bounds) -> Plan:
    """Which ranks do what: all but the batch, the schedule, recomputation and the rank order."""
    plans = _context_kinds(sieve, _degrees(sieve, bounds))
    plans = _experts(sieve, _splits(plans))
    plans = _shardings(sieve, plans)
    plans = sieve.fixed(sieve.fixed(plans, "dp_shard"), "dp_replicate")
    plans = plans if bounds.shards_across_nodes else _shards_on_whole_nodes(plans, sieve.problem.gpus_per_node)
    plans = _sequence_switches(sieve, plans)
    plans = cross(plans, offload=sieve.asked("offload", list(Offload), Offload.NONE))
    plans = sieve.legal(plans, rules.OFFLOAD)
    plans = sieve.legal(_synchronisations(sieve, plans), rules.SYNCHRONISATION)
    return cross(plans, compiled=sieve.asked("compiled", [0, 1], int(sieve.problem.stack.compiled)))


def _degrees(sieve: Sieve, bounds: Bounds) -> Plan:
    """tp, pp, cp and the data-parallel degree (as dp_replicate) of all ranks."""
    problem = sieve.problem
    ranks = divisors(problem.world_size)
    largest_tp = max(bounds.tp_nodes * problem.gpus_per_node, problem.domain_size)
    largest_cp = max(1, problem.seq_len // bounds.cp_tokens)
    tp = sieve.legal(Plan(tp=sieve.searched("tp", ranks)).columns(), rules.TENSOR).tp
    pp = sieve.legal(Plan(pp=sieve.searched("pp", ranks)).columns(), rules.PIPELINE).pp
    cp = sieve.legal(Plan(cp=sieve.searched("cp", ranks)).columns(), rules.CONTEXT).cp
    tp, cp = up_to(largest_tp, np.asarray(tp)), up_to(largest_cp, np.asarray(cp))
    plans = cross(cross(cross(Plan().columns(), tp=tp), pp=pp), cp=cp)
    rest, remainder = np.divmod(problem.world_size, plans.world_size)
    smallest = " x ".join(f"{name} {np.min(degree)}" for name, degree in (("TP", tp), ("PP", pp), ("CP", cp)))
    plans = sieve.possible(
        replace(plans, dp_replicate=rest), remainder == 0, f"{smallest} does not divide {problem.world_size} GPUs"
    )
    return sieve.legal(sieve.fixed(plans, "dp"), rules.RANKS)


def _context_kinds(sieve: Sieve, plans: Plan) -> Plan:
    """Forms of context parallelism. Where there is a ring, which hides what a gather waits for, that is left out."""
    kinds = list(sieve.problem.codes("context_kinds"))
    if ContextKind.RING in kinds and ContextKind.ALL_GATHER in kinds and "context_kind" not in sieve.fix:
        kinds.remove(ContextKind.ALL_GATHER)
    plans = cross(plans, context_kind=kinds)
    suits = conditions.context_kind_where_cp(plans, sieve.problem)
    plans = sieve.possible(plans, suits, f"{sieve.problem.stack.name} has no CP")
    return sieve.legal(sieve.fixed(plans, "context_kind"), rules.CONTEXT_KIND)


def _splits(plans: Plan) -> Plan:
    """Every division of the data-parallel degree into shards and replicas."""
    plans = cross(plans, dp_shard=divisors(int(np.lcm.reduce(plans.dp_replicate))))
    plans = plans[plans.dp_replicate % plans.dp_shard == 0]
    return replace(plans, dp_replicate=plans.dp_replicate // plans.dp_shard)


def _experts(sieve: Sieve, plans: Plan) -> Plan:
    problem = sieve.problem
    plans = cross(plans, ep=sieve.searched("ep", divisors(problem.num_experts)))
    plans = cross(plans, expert_tp=[0, 1] if problem.has_experts else [0])
    plans = plans[(plans.expert_tp == 0) | (plans.tp > 1)]
    plans = replace(plans, expert_tp=np.where(plans.expert_tp == 1, plans.tp, 1))
    return sieve.legal(sieve.fixed(plans, "expert_tp"), rules.EXPERTS)


def _shardings(sieve: Sieve, plans: Plan) -> Plan:
    """What is sharded. Unsharded, all data-parallel ranks are replicas but for those that the experts need."""
    plans = cross(plans, sharding=sieve.problem.codes("shardings"))
    plans = sieve.fixed(sieve.fixed(plans, "sharding"), "sharding_kind", sharding_kind(plans))
    suits = conditions.sharding_has_a_group(plans, sieve.problem) & replicas_stand_together(plans)
    plans = sieve.possible(plans, suits, "sharding needs more than one rank of DP x CP")
    return sieve.legal(plans, rules.SHARDING)


def _shards_on_whole_nodes(plans: Plan, node_size: int) -> Plan:
    """Plans whose blocks of tp x cp x dp_shard ranks fill nodes, or nodes them; all plans where none does."""
    block = plans.tp * plans.cp * plans.dp_shard
    even = (block % node_size == 0) | (node_size % block == 0)
    kept = np.asarray(even | (plans.dp_replicate == 1) | (plans.sharding == Sharding.NONE))
    return plans[kept] if kept.any() else plans


def _sequence_switches(sieve: Sieve, plans: Plan) -> Plan:
    plans = cross(plans, sequence_parallel=[0, 1])
    plans = plans[conditions.sequence_parallel_has_a_group(plans, sieve.problem)]
    plans = sieve.fixed(plans, "sequence_parallel")
    return sieve.legal(cross(plans, async_tp=sieve.asked("async_tp", [0, 1], 0)), rules.SEQUENCE)


def _synchronisations(sieve: Sieve, plans: Plan) -> Plan:
    """The usual synchronisation, or what the stack does with replicas instead; all kinds that the user asks for."""
    plans = cross(plans, gradient_sync=sieve.asked("gradient_sync", list(GradientSync), GradientSync.USUAL))
    able = sieve.problem.codes("replica_syncs")
    if "gradient_sync" in sieve.fix or GradientSync.USUAL in able:
        return plans
    replicas = (plans.sharding == Sharding.NONE) & (plans.dp * plans.cp > 1) & (plans.pp == 1)
    return replace(plans, gradient_sync=np.where(replicas, min(able), plans.gradient_sync))


def _batches(sieve: Sieve, bounds: Bounds, mesh: Plan) -> Plan:
    """Micro-batches, schedules and recomputation for each pp, cp and data-parallel degree (as dp_replicate)."""
    problem = sieve.problem
    pp, cp, dp = np.unique(np.stack([mesh.pp, mesh.cp, mesh.dp]), axis=1)
    sizes = divisors(problem.global_batch_size)
    plans = cross(Plan(pp=pp, cp=cp, dp_replicate=dp).columns(), micro_batch_size=sizes)
    plans = sieve.fixed(plans[problem.global_batch_size % plans.global_batch_size == 0], "micro_batch_size")
    tokens = plans.micro_batch_size * problem.seq_len // plans.cp
    within = np.asarray((tokens <= bounds.micro_batch_tokens) | (plans.micro_batch_size == 1))
    if "cp" not in sieve.fix:
        within &= np.gcd(plans.micro_batch_size, plans.cp) == 1
    plans = plans[within] if within.any() else plans
    plans = replace(plans, num_microbatches=problem.global_batch_size // plans.global_batch_size)
    plans = _schedules(sieve, bounds, sieve.fixed(plans, "num_microbatches"))
    plans = cross(plans, recompute=sieve.searched("recompute", problem.codes("recomputations")))
    plans = _stage_layers(problem, plans)
    for name in ("first_stage_layers", "last_stage_layers"):
        plans = sieve.fixed(plans, name)
    return sieve.legal(plans, rules.STAGES)


def _stage_layers(problem: Problem, plans: Plan) -> Plan:
    """Layers dealt evenly, and in stages of one chunk also with the head counted, where that is another split."""
    usual = end_layers(problem.num_layers, plans.pp)
    other = balanced_ends(problem.num_layers, plans.pp, problem.head_layers)
    each = problem.num_layers // plans.pp
    differs = np.any(
        [np.where(a == 0, each, a) != np.where(b == 0, each, b) for a, b in zip(usual, other, strict=True)], axis=0
    )
    plans = cross(plans, first_stage_layers=[0, 1])
    way = np.asarray(plans.first_stage_layers)
    first, last = (np.where(way, np.repeat(b, 2), np.repeat(a, 2)) for a, b in zip(usual, other, strict=True))
    plans = replace(plans, first_stage_layers=first, last_stage_layers=last)
    kept = np.repeat(differs, 2) & balances(plans) & limits.stage_split(plans, problem)
    return plans[(way == 0) | kept]


def _schedules(sieve: Sieve, bounds: Bounds, plans: Plan) -> Plan:
    """Schedules and chunks a rank. With one micro-batch GPipe and 1F1B are one schedule, here under 1F1B's name."""
    layers = sieve.problem.num_layers
    chunks = np.union1d(divisors(layers), divisors(layers + 2))
    chunks = up_to(bounds.virtual_stages, sieve.searched("virtual_stages", chunks))
    kinds = sieve.searched("schedule", sieve.problem.codes("schedules"))
    options = [(k, v) for k in kinds for v in chunks if (v > 1) == (k == Schedule.INTERLEAVED)]
    schedule, virtual_stages = np.array(options, dtype=np.int64).reshape(-1, 2).T
    plans = cross(plans, schedule=schedule, virtual_stages=virtual_stages)
    suits = conditions.schedule_where_stages(plans, sieve.problem) & not_gpipe_by_another_name(
        plans, sieve.problem, kinds
    )
    plans = sieve.possible(plans, suits, "the schedule does not go with this PP and number of virtual stages")
    return sieve.legal(plans, rules.SCHEDULE)
