"""Data parallelism over unequal nodes: each replica within one part of the cluster, with as much work as it is fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.answer.evaluate import links_of
from planner.answer.mixed.parts import Part, within_parts
from planner.answer.question import Question
from planner.distinct import distinct
from planner.errors import NoFeasiblePlan, PlannerError
from planner.estimate.memory import memory_use
from planner.estimate.synchronisation import keeps_weights, reduces_once
from planner.quantities import Bytes, Column, Seconds, divisors
from planner.rows import concatenate
from planner.search.advice import Case
from planner.search.enumerate import Bounds
from planner.search.fastest import Feasible
from planner.search.fitting import host_fits
from planner.search.fix import allowed
from planner.search.rank import CHUNK
from planner.search.refine import refined
from planner.search.uneven import Share, deal, longest
from planner.spec.batch import divisible_batch
from planner.spec.plan import Plan, RankOrder, Schedule, Sharding
from planner.topology.group_links import placed_links

LAYOUTS = 8
"""Layouts of ranks whose work is dealt exactly, of each of the two ways."""
PLAYED = 8
"""Of the best ways to deal the work those whose pipelines are played."""
MANY_TIMES = 16
"""No replica is tried with more than so many times the mean number of micro-batches."""
BATCH = ("micro_batch_size", "num_microbatches")
NEAR = 0.35
"""How far the batch may be off for which layouts are enumerated where the one asked for divides by few."""


@dataclass(frozen=True, eq=False)
class UnevenReplicas:
    """A plan with the work of its replicas part by part.

    With `by_size` every replica has the plan's number of micro-batches and the shares are sequences in each of them;
    else every micro-batch is of the plan's size and the shares are numbers of micro-batches. `seconds` is the step of
    each part's busiest replica, `peaks` its memory in bytes.
    """

    plan: Plan
    by_size: bool
    shares: tuple[Share, ...]
    seconds: tuple[Seconds, ...]
    peaks: tuple[Bytes, ...]

    @property
    def step_time(self) -> Seconds:
        """All replicas wait for the last."""
        return max(self.seconds)

    @property
    def even(self) -> bool:
        """Whether all replicas do the same."""
        return len({(share.most, share.fewer) for share in self.shares}) == 1 and not self.shares[0].fewer

    def batch(self, units: int) -> tuple[int, int]:
        """Size and number of the micro-batches of a replica with so many units."""
        size, number = int(self.plan.micro_batch_size), int(self.plan.num_microbatches)
        return (units, number) if self.by_size else (size, units)


def replicas_apart(plans: Plan, parts: Sequence[Part]) -> Column:
    """Rows whose replicas lie within one part each: data parallelism is outermost, and replicas fill the parts."""
    block = np.asarray(plans.tp * plans.pp * plans.cp)
    order = np.asarray(plans.rank_order)
    outermost = (order == RankOrder.TP_CP_PP_DP) | (order == RankOrder.TP_PP_CP_DP)
    outermost |= (order == RankOrder.TP_CP_DP_PP) & (np.asarray(plans.pp) == 1)
    return (outermost | (block == 1)) & within_parts(plans, parts, block)


def numbers_may_differ(plans: Plan) -> Column:
    """Rows whose replicas talk once per step, so that they may have different numbers of micro-batches.

    Where weights are gathered or gradients reduced with every micro-batch, or experts lie on several replicas, all
    have to come as often. A schedule that interleaves chunks wants multiples of its stages.
    """
    gathers = (np.asarray(plans.sharding) >= Sharding.ZERO3) & ~keeps_weights(plans)
    experts_apart = np.asarray(plans.ep * plans.expert_tp > plans.tp * plans.cp)
    interleaved = np.asarray(plans.schedule) == Schedule.INTERLEAVED
    return reduces_once(plans) & ~gathers & ~experts_apart & ~interleaved


def uneven_replicas(question: Question, parts: Sequence[Part], even: Plan | None = None) -> UnevenReplicas:
    """The best of the layouts that promise most; that of `even` is among them if its replicas are apart.

    Raises NoFeasiblePlan where no layout has its replicas within the parts, or none fits.
    """
    dealing = _Dealing(question, parts)
    layouts = list(dealing.promising())
    if even is not None and replicas_apart(even.columns(), parts)[0]:
        layouts.append(even)
    return dealing.best(layouts)


def dealt_anew(question: Question, parts: Sequence[Part], plan: Plan) -> UnevenReplicas:
    """One plan's work dealt to its replicas. Raises NoFeasiblePlan where they are not apart, or nothing fits."""
    if not replicas_apart(plan.columns(), parts)[0]:
        raise NoFeasiblePlan("the plan's replicas do not lie within the parts of the cluster")
    return _Dealing(question, parts).best([plan])


@dataclass(frozen=True, eq=False)
class _Way:
    """One layout and one batch: `units` of `field` are dealt, `least` at least and `most` at most to a replica."""

    plan: Plan
    field: str
    units: int
    least: int
    most: tuple[int, ...]

    def rows(self, part: int) -> Plan:
        """The plan of a replica with 1, 2, ... units on one part, as columns."""
        most = self.most[part]
        return replace(self.plan.columns()[np.zeros(most, dtype=int)], **{self.field: np.arange(1, most + 1)})


class _Dealing:
    """One question on a cluster of several parts."""

    def __init__(self, question: Question, parts: Sequence[Part]) -> None:
        self.question, self.parts = question, tuple(parts)
        self.batch = question.workload.global_batch_size

    def promising(self) -> Iterator[Plan]:
        """Layouts that would be fastest if work could be divided without rest, each with the batch that is best then.

        With every replica as busy, R replicas of which r take t take R / sum(r / t).
        """
        plans = self._plans()
        if not len(plans):
            return
        rate = np.zeros(len(plans))
        for start in range(0, len(plans), CHUNK):
            rows = slice(start, start + CHUNK)
            some = plans[rows]
            links, block = placed_links(some, self.question.cluster), some.world_size // some.dp
            for part in self.parts:
                rate[rows] += part.gpus // block / np.asarray(part.time(some, links).total)
        seconds = plans.dp / rate
        for mask in (numbers_may_differ(plans), np.ones(len(plans), dtype=bool)):
            yield from self._first(plans[mask], seconds[mask])

    def best(self, layouts: Sequence[Plan]) -> UnevenReplicas:
        """The best batches of some layouts. Raises NoFeasiblePlan where none fits."""
        ways = [way for plan in layouts for way in (*self._by_number(plan), *self._by_size(plan))]
        found = sorted(self._dealt(ways), key=lambda each: (each.step_time, max(each.peaks)))
        if not found:
            raise NoFeasiblePlan("no replicas fit within the parts of the cluster")
        return min(map(self._played, found[:PLAYED]), key=lambda each: each.step_time)

    def _plans(self) -> Plan:
        """Plans that fit the smallest accelerator and whose replicas are apart, as columns."""
        asked, near = self.question, divisible_batch(self.batch, self.question.cluster.world_size, tolerance=NEAR)
        for batch in dict.fromkeys((self.batch, near)):
            workload = replace(asked.workload, global_batch_size=batch)
            try:
                feasible = Feasible.of(Case(asked.model, asked.cluster, workload, asked.stack, asked.fix))
            except PlannerError as error:
                if batch == near:
                    raise NoFeasiblePlan(str(error), getattr(error, "rejected", None)) from error
                continue
            plans = feasible.candidates.rows(feasible.rows)
            apart = replicas_apart(plans, self.parts)
            if apart.any() or batch == near:
                return plans[apart]
        raise AssertionError("the nearest batch is the last")

    def _first(self, plans: Plan, seconds: Column) -> Iterator[Plan]:
        """The best row of each of the first layouts."""
        if not len(plans):
            return
        same = distinct([np.asarray(getattr(plans, each.name)) for each in fields(plans) if each.name not in BATCH])
        order = np.argsort(seconds, kind="stable")
        _, first = np.unique(same.index[order], return_index=True)
        for row in order[np.sort(first)[:LAYOUTS]].tolist():
            yield Plan(**{name: int(value) for name, value in plans[row].as_dict().items()})

    def _by_number(self, plan: Plan) -> Iterator[_Way]:
        """Micro-batches of one size, with each size that divides the batch; nothing where numbers may not differ."""
        replicas, short = self._replicas(plan), self.question.stack.short_pipelines
        least = 1 if short or plan.schedule != Schedule.ONE_F_ONE_B else int(plan.pp)
        free = "num_microbatches" not in self.question.fix and numbers_may_differ(plan.columns())[0]
        for size in self._divisors("micro_batch_size") if free else ():
            units = self.batch // size
            if size <= self._largest(plan) and units >= least * sum(replicas):
                far = MANY_TIMES * -(-units // sum(replicas))
                most = tuple(min(-(-units // count) + 1, units, far) for count in replicas)
                yield _Way(replace(plan, micro_batch_size=size), "num_microbatches", units, least, most)

    def _by_size(self, plan: Plan) -> Iterator[_Way]:
        """As many micro-batches for every replica, with each number that divides the batch."""
        replicas, largest, short = self._replicas(plan), self._largest(plan), self.question.stack.short_pipelines
        for number in self._divisors("num_microbatches") if "micro_batch_size" not in self.question.fix else ():
            units = self.batch // number
            rounds = plan.schedule != Schedule.INTERLEAVED or number % plan.pp == 0
            filled = short or plan.schedule != Schedule.ONE_F_ONE_B or number >= plan.pp
            if rounds and filled and sum(replicas) <= units <= largest * sum(replicas):
                most = (largest,) * len(replicas)
                yield _Way(replace(plan, num_microbatches=number), "micro_batch_size", units, 1, most)

    def _divisors(self, field: str) -> list[int]:
        """Divisors of the batch that the user allows for a field."""
        every = divisors(self.batch)
        return [int(each) for each in every[allowed(self.question.fix, field, every)]]

    def _largest(self, plan: Plan) -> int:
        """The largest micro-batch within the bounds of the search."""
        tokens = self.question.workload.seq_len // int(plan.cp)
        return max(1, min(Bounds().micro_batch_tokens // max(tokens, 1), self.batch))

    def _replicas(self, plan: Plan) -> list[int]:
        """Replicas of each part."""
        block = int(plan.world_size // plan.dp)
        return [part.gpus // block for part in self.parts]

    def _dealt(self, ways: Sequence[_Way]) -> Iterator[UnevenReplicas]:
        """Each way with its units dealt best; without those that do not fit."""
        if not ways:
            return
        judged = [self._judged(ways, number) for number in range(len(self.parts))]
        for way, *each in zip(ways, *judged, strict=True):
            seconds, peaks = zip(*each, strict=True)
            with suppress(NoFeasiblePlan):
                shares = deal(self._replicas(way.plan), seconds, way.units, least=way.least)
                ends = tuple(longest((share,), (times,)) for share, times in zip(shares, seconds, strict=True))
                held = tuple(float(peak[share.most - 1]) for share, peak in zip(shares, peaks, strict=True))
                yield UnevenReplicas(way.plan, way.field == "micro_batch_size", shares, ends, held)

    def _judged(self, ways: Sequence[_Way], number: int) -> list[tuple[Column, Column]]:
        """Of each way step time and peak of a part's replica by its units; the time infinite where they do not fit."""
        asked, part = self.question, self.parts[number]
        plans = concatenate([way.rows(number) for way in ways])
        use = memory_use(asked.model, plans, asked.workload, asked.stack)
        peak = np.broadcast_to(np.asarray(use.peak), len(plans))
        fits = (peak <= part.limit) & host_fits(use, asked.cluster)
        seconds = np.where(fits, np.asarray(part.time(plans, placed_links(plans, asked.cluster)).total), np.inf)
        ends = np.cumsum([way.most[number] for way in ways])[:-1]
        return list(zip(np.split(seconds, ends), np.split(peak, ends), strict=True))

    def _played(self, found: UnevenReplicas) -> UnevenReplicas:
        """With the schedule of each part's busiest replica played, where there is a pipeline."""
        if found.plan.pp == 1:
            return found
        links = links_of(self.question, found.plan)
        seconds = []
        for part, share in zip(self.parts, found.shares, strict=True):
            size, number = found.batch(share.most)
            plan = replace(found.plan, micro_batch_size=size, num_microbatches=number)
            time = part.time(plan, links)
            seconds.append(float(refined(part.setting, plan, links, time).total))
        return replace(found, seconds=tuple(seconds))
