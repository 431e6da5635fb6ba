"""A step of one plan, or of a table of one's own, played action by action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.answer.evaluate import links_of
from planner.answer.ranked_plan import RankedPlan
from planner.answer.software import profile_of
from planner.catalogue.hardware import accelerator
from planner.errors import SpecError
from planner.estimate.durations import durations
from planner.estimate.stages import Layout, layers_per_rank, layout
from planner.quantities import GIB, Scalar
from planner.simulate.actions import Kind, Order
from planner.simulate.order_text import read_order
from planner.simulate.schedules import FIXED_CHUNKS, NAME_OF, known_order
from planner.simulate.simulation import Disturbance, Simulation, simulate
from planner.spec.cluster import Cluster
from planner.spec.durations import Durations
from planner.spec.durations_file import OwnTable
from planner.spec.plan import Schedule

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Circumstances:
    """What a simulated step is like beyond its plan.

    `schedule` is a schedule's name, or a file with an order of actions, in place of the plan's; `slow` and `jitter` as
    in `Disturbance`; `parts` names the accelerator of pipeline ranks that are of another kind than the cluster's.
    """

    schedule: str = ""
    slow: Mapping[int, Scalar] = field(default_factory=dict)
    parts: Mapping[int, str] = field(default_factory=dict)
    jitter: Scalar = 0.0
    seed: int = 0

    @property
    def disturbance(self) -> Disturbance:
        """The part that changes single tasks."""
        return Disturbance(self.slow, self.jitter, self.seed)


@dataclass(frozen=True, eq=False)
class SimulatedStep:
    """A simulation with the schedule's name, and the plan whose step it is (None: of a table of one's own)."""

    simulation: Simulation
    schedule: str
    ranked: RankedPlan | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner simulate`."""
        played = self.simulation
        ranks = zip(played.ranks, played.memory, strict=True)
        plan = self.ranked
        return {
            "schema_version": SCHEMA_VERSION,
            **({"name": plan.name, "closed_form_step_time_s": plan.step_time} if plan else {}),
            "schedule": self.schedule,
            "num_microbatches": played.order.num_microbatches,
            "makespan_s": played.makespan,
            "bubble_fraction": played.bubble_fraction,
            "ranks": [
                {
                    "rank": rank,
                    "busy_s": use.busy,
                    "exposed_s": use.exposed,
                    "idle_s": use.idle,
                    "peak_in_flight": memory.peak_in_flight,
                    "peak_memory_gib": memory.peak / GIB,
                }
                for rank, (use, memory) in enumerate(ranks)
            ],
        }


def simulated(ranked: RankedPlan, circumstances: Circumstances | None = None) -> SimulatedStep:
    """Play a step of a plan.

    Raises SpecError for an unknown schedule or one that does not go with the plan, or for ranks that it does not have;
    FileFormatError for a file that is no order of actions; Deadlock where its ranks wait for each other.
    """
    asked = circumstances or Circumstances()
    order, name = _order(ranked, asked.schedule)
    table = _table(ranked, order, asked.parts)
    return SimulatedStep(simulate(table, order, asked.disturbance), name, ranked)


def simulated_table(table: OwnTable, circumstances: Circumstances | None = None) -> SimulatedStep:
    """Play a table of one's own. Raises as `simulated` does."""
    asked = circumstances or Circumstances()
    if asked.parts:
        raise SpecError("a table of durations knows no accelerators; a rank's factor, such as 2=1.3, is right")
    name = asked.schedule or table.schedule
    order = _own_order(name, table)
    apart = any(action.kind is Kind.WEIGHT for actions in order.actions for action in actions)
    whole = next((stage for stage, each in enumerate(table.stages) if "B" in each), None)
    if apart and whole is not None:
        raise SpecError(f"{name} runs gradients of inputs and weights apart; stage {whole} needs I and W in place of B")
    return SimulatedStep(simulate(table.durations(order.rank_of), order, asked.disturbance), name)


def _own_order(name: str, table: OwnTable) -> Order:
    """The order of a table's schedule; a known one on as many ranks as the file says, or as its shape allows."""
    if _is_file(name):
        return read_order(Path(name))
    ranks = table.ranks or (len(table.stages) if FIXED_CHUNKS.get(name.lower(), 2) == 1 else len(table.stages) // 2)
    chunks, left = divmod(len(table.stages), max(ranks, 1))
    if left or not chunks:
        raise SpecError(f"{len(table.stages)} stages cannot be dealt evenly to {ranks} ranks for schedule {name}")
    return known_order(name, ranks, table.num_microbatches, chunks)


def _order(ranked: RankedPlan, name: str) -> tuple[Order, str]:
    """The order of a plan's actions: of its own schedule, a known one, or one in a file."""
    plan = ranked.plan
    ranks, microbatches, chunks = int(plan.pp), int(plan.num_microbatches), int(plan.virtual_stages)
    known = name or NAME_OF[Schedule(int(plan.schedule))]
    if not _is_file(known):
        fixed = FIXED_CHUNKS.get(known.lower())
        return known_order(known, ranks, microbatches, fixed or (chunks if chunks > 1 else None)), known
    order = read_order(Path(known))
    if (order.num_ranks, order.num_microbatches) != (ranks, microbatches):
        raise SpecError(
            f"{known} has {order.num_ranks} ranks and {order.num_microbatches} micro-batches; the plan has {ranks} and "
            f"{microbatches}"
        )
    return order, known


def _is_file(name: str) -> bool:
    return "/" in name or Path(name).suffix in (".csv", ".txt")


def _table(ranked: RankedPlan, order: Order, parts: Mapping[int, str]) -> Durations:
    """The plan's table; ranks of another kind of accelerator take their stages from that one's."""
    dealt = _layout(ranked, order)
    table = _durations(ranked, ranked.question.cluster, dealt)
    strange = [rank for rank in parts if not 0 <= rank < order.num_ranks]
    if strange:
        raise SpecError(f"rank {strange[0]}: there are pipeline ranks 0 to {order.num_ranks - 1}")
    for name in sorted(set(parts.values())):
        other = _durations(ranked, _with_accelerator(ranked.question.cluster, name), dealt)
        chosen = [parts.get(rank) == name for rank in range(order.num_ranks)]
        table = replace(
            table,
            stages=tuple(
                theirs if chosen[rank] else ours
                for ours, theirs, rank in zip(table.stages, other.stages, order.rank_of, strict=True)
            ),
            optimizer=tuple(
                theirs if takes else ours
                for ours, theirs, takes in zip(table.optimizer, other.optimizer, chosen, strict=True)
            ),
        )
    return table


def _durations(ranked: RankedPlan, cluster: Cluster, dealt: Layout) -> Durations:
    asked, plan = ranked.question, ranked.plan
    same = cluster is asked.cluster
    profile = asked.profile if same else profile_of(cluster, asked.stack)
    return durations(
        asked.model,
        plan,
        asked.workload,
        cluster,
        links_of(asked, plan),
        profile=profile,
        stack=asked.stack,
        dealt=dealt,
    )


def _with_accelerator(cluster: Cluster, name: str) -> Cluster:
    """The same nodes with other accelerators in them."""
    part = accelerator(name)
    return replace(
        cluster,
        pools=tuple(replace(pool, node=replace(pool.node, accelerator=part)) for pool in cluster.pools),
    )


def _layout(ranked: RankedPlan, order: Order) -> Layout:
    """The layers of each stage of an order: looped over the ranks, in a V, or evenly whatever its shape."""
    plan, layers = ranked.plan, len(ranked.question.model.layer_pattern)
    if order.num_stages > layers:
        raise SpecError(f"{order.num_stages} stages for {layers} layers: each needs at least one")
    chunks = order.num_stages // order.num_ranks
    for v_shape in (False, True) if chunks * order.num_ranks == order.num_stages else ():
        dealt = layout(layers, plan, chunks=chunks, v_shape=v_shape and chunks == 2)
        if dealt.rank_of == order.rank_of:
            return dealt
    return Layout(tuple(layers_per_rank(layers, order.num_stages)), order.rank_of)
