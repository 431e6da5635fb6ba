"""Pipelines over unequal nodes: whole stages within one part of the cluster, with as many layers as they are fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import permutations

import numpy as np

from planner.answer.evaluate import links_of
from planner.answer.mixed.parts import Part, only, parts_of, within_parts
from planner.answer.question import Question
from planner.distinct import distinct
from planner.errors import NoFeasiblePlan
from planner.estimate.memory import memory_use
from planner.quantities import Column, Seconds
from planner.rows import concatenate
from planner.search.enumerate import enumerate_plans
from planner.search.rank import CHUNK
from planner.search.refine import MOST_ACTIONS
from planner.search.unequal_stages import Stretch, UnequalPipeline, UnequalStep
from planner.spec.cluster import Cluster
from planner.spec.plan import Offload, Plan, RankOrder
from planner.topology.group_links import placed_links

PIPELINES = 6
"""Plans that fit whose layers are dealt exactly, for each order of the parts."""
TRIED = 24
"""Plans after which no more are tried where their memory is not enough."""
MOST_PERMUTED = 3
"""Parts up to which every order along the pipeline is tried; more are taken as the cluster has them."""
ENDS = ("first_stage_layers", "last_stage_layers")


@dataclass(frozen=True, eq=False)
class UnevenStages:
    """A pipeline with its layers by rank; `parts` are in the order of the data flow, with `ranks` of each."""

    plan: Plan
    parts: tuple[Part, ...]
    ranks: tuple[int, ...]
    step: UnequalStep

    @property
    def step_time(self) -> Seconds:
        """Seconds of one optimizer step."""
        return self.step.seconds

    def of(self, number: int) -> slice:
        """The pipeline ranks of a part."""
        first = sum(self.ranks[:number])
        return slice(first, first + self.ranks[number])


def stages_apart(plans: Plan, parts: Sequence[Part]) -> Column:
    """Rows whose pipeline ranks each lie within one part, with one chunk of layers each and nothing offloaded."""
    order = np.asarray(plans.rank_order)
    outermost = (order == RankOrder.TP_CP_DP_PP) | (order == RankOrder.DP_TP_CP_PP)
    alone = (np.asarray(plans.virtual_stages) == 1) & (np.asarray(plans.offload) == Offload.NONE)
    short = 2 * plans.pp * plans.num_microbatches <= MOST_ACTIONS
    several = np.asarray(plans.pp) > 1
    return outermost & alone & short & several & within_parts(plans, parts, plans.world_size // plans.pp)


def uneven_stages(question: Question, even: Plan | None = None, *, whole: Cluster | None = None) -> UnevenStages:
    """The best pipeline with its stages within the parts of the cluster, in any order of them.

    `even` is among the plans that are tried if its stages are apart. Raises NoFeasiblePlan where none is, or none fits.
    """
    if any(name in question.fix for name in ENDS):
        raise NoFeasiblePlan("the layers of the first or the last stage are fixed")
    orders = [(asked, parts_of(asked, whole or question.cluster)) for asked in _orders(question)]
    plans = _promising(*orders[0])
    if even is not None and stages_apart(even.columns(), orders[0][1])[0]:
        plans.insert(0, (0.0, even))
    best, fitting = None, 0
    for least, plan in plans:
        if fitting >= PIPELINES or (best and least >= best.step_time):
            break
        found = list(_in_every_order(orders, plan))
        fitting += bool(found)
        best = min([*([best] if best else []), *found], key=lambda each: each.step_time, default=None)
    if best is None:
        raise NoFeasiblePlan("no pipeline has its stages within the parts of the cluster and fits")
    return best


def layers_dealt_anew(question: Question, parts: Sequence[Part], plan: Plan) -> UnevenStages:
    """One plan with its layers dealt anew. Raises NoFeasiblePlan where its stages are not apart, or no split fits."""
    if not stages_apart(plan.columns(), parts)[0]:
        raise NoFeasiblePlan("the plan's pipeline stages do not lie within the parts of the cluster")
    pipeline = pipeline_of(question, parts, plan)
    ranks = tuple(stretch.ranks for stretch in pipeline.stretches)
    return UnevenStages(plan, tuple(parts), ranks, pipeline.best())


def as_it_is(question: Question, parts: Sequence[Part], plan: Plan) -> UnequalStep:
    """A plan's step with its own layers, each rank on its own accelerators."""
    return pipeline_of(question, parts, plan).step()


def _orders(question: Question) -> Iterator[Question]:
    """The question with the parts of its cluster in every order along the pipeline."""
    parts = parts_of(question)
    for order in permutations(parts) if len(parts) <= MOST_PERMUTED else [parts]:
        yield only(question, order, name=question.cluster.name)


def pipeline_of(question: Question, parts: Sequence[Part], plan: Plan) -> UnequalPipeline:
    """A plan whose stages are apart, with each rank's accelerator."""
    block = int(plan.world_size // plan.pp)
    stretches = tuple(Stretch(part.gpus // block, part.setting, part.limit) for part in parts)
    return UnequalPipeline(plan, links_of(question, plan), stretches)


def _in_every_order(orders: Sequence[tuple[Question, Sequence[Part]]], plan: Plan) -> Iterator[UnevenStages]:
    """One plan's layers dealt to the parts in each order in which it fits."""
    for asked, parts in orders:
        with suppress(NoFeasiblePlan):
            yield layers_dealt_anew(asked, parts, plan)


def _promising(question: Question, parts: Sequence[Part]) -> list[tuple[Seconds, Plan]]:
    """Plans that would be fastest if layers could be divided without rest, with what they would then take.

    With every stage as busy, pp stages of which s take t take pp / sum(s / t). Plans are left out whose even stages
    would not fit the largest memory.
    """
    plans = _plans(question, parts)
    if not len(plans):
        return []
    rate, block = np.zeros(len(plans)), plans.world_size // plans.pp
    for start in range(0, len(plans), CHUNK):
        rows = slice(start, start + CHUNK)
        links = placed_links(plans[rows], question.cluster)
        for part in parts:
            rate[rows] += part.gpus // np.asarray(block)[rows] / np.asarray(part.time(plans[rows], links).total)
    same = distinct([np.asarray(getattr(plans, each.name)) for each in fields(plans) if each.name not in ENDS])
    seconds = plans.pp / rate
    order = np.argsort(seconds, kind="stable")
    _, first = np.unique(same.index[order], return_index=True)
    chosen = order[np.sort(first)[:TRIED]].tolist()
    named = ({name: int(value) for name, value in plans[row].as_dict().items()} for row in chosen)
    return [(float(seconds[row]), Plan(**values)) for row, values in zip(chosen, named, strict=True)]


def _plans(question: Question, parts: Sequence[Part]) -> Plan:
    """Legal plans whose stages are apart and would fit if every accelerator had the memory of the largest."""
    asked, kept = question, []
    candidates = enumerate_plans(asked.model, asked.cluster, asked.workload, stack=asked.stack, fix=asked.fix)
    for plans in candidates.chunks():
        some = plans[stages_apart(plans, parts)]
        if len(some):
            peak = np.asarray(memory_use(asked.model, some, asked.workload, asked.stack).peak)
            kept.append(some[peak <= max(part.limit for part in parts)])
    return concatenate(kept) if kept else Plan().columns()[:0]
