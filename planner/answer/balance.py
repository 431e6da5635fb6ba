"""The layers of a plan's pipeline ranks, dealt so that a step takes least time within memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from planner.answer.evaluate import evaluate, links_of
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.simulation import simulated
from planner.errors import NoFeasiblePlan
from planner.estimate.setting import Setting
from planner.estimate.stage_seconds import stage_seconds
from planner.estimate.stages import Layout, all_ranks, layers_per_rank, layout
from planner.quantities import GIB, Bytes, Column, Seconds, format_bytes
from planner.search.balance import Work, best_split, least_time, paths_of
from planner.search.fitting import memory_limit
from planner.search.held_layers import held_layers, peaks_of
from planner.search.legality import legal
from planner.search.problem import Problem
from planner.search.refine import MOST_ACTIONS, schedule_time
from planner.spec.codec import plan_to_plain
from planner.spec.plan import Plan, Schedule

SHORTLIST = 8
"""Splits whose schedule is played: those whose longest paths are shortest."""
WORTH_A_WORD = 0.1
"""A head that takes as long as so many layers is a reason."""
WORTH_A_SPLIT = 0.005
"""Share of the pipeline's time by which another split has to be shorter to be named."""


@dataclass(frozen=True, eq=False)
class Split:
    """Layers of each rank, the duration of the schedule on them, and each rank's peak of memory."""

    sizes: tuple[int, ...]
    seconds: Seconds
    peaks: tuple[Bytes, ...]

    @property
    def words(self) -> str:
        """Layers by rank, like ones together.

        >>> Split((8, 8, 8, 6), 0.0, ()).words
        '3 x 8, 6'
        """
        runs = [(size, len(list(run))) for size, run in groupby(self.sizes)]
        return ", ".join(f"{count} x {size}" if count > 1 else f"{size}" for size, count in runs)


@dataclass(frozen=True, eq=False)
class Balance:
    """A plan and the same plan with its layers dealt anew, with the splits of both; `reason` says what was gained.

    `any_split` is the best of all splits, also of those that a plan cannot say; None where ranks hold several chunks.
    """

    before: RankedPlan
    after: RankedPlan
    split_before: Split
    split_after: Split
    any_split: Split | None
    reason: str

    @property
    def plan(self) -> Plan:
        """The balanced plan."""
        return self.after.plan

    @cached_property
    def simulated(self) -> tuple[Seconds, Seconds]:
        """Step time before and after, each played action by action."""
        before, after = (simulated(each).simulation.makespan for each in (self.before, self.after))
        return before, after

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        both = {"before": (self.before, self.split_before), "after": (self.after, self.split_after)}
        return {
            "plan": plan_to_plain(self.plan),
            "reason": self.reason,
            **{
                name: {
                    "layers": list(split.sizes),
                    "step_time_s": ranked.step_time,
                    "peak_memory_gib": [peak / GIB for peak in split.peaks],
                }
                for name, (ranked, split) in both.items()
            },
        }


def balanced(question: Question, plan: Plan) -> Balance:
    """Deal a plan's layers so that its step takes least time within memory, in a form that plans can say.

    That is any number of layers on the first and the last rank, and the others alike but for one layer. The splits
    that are compared are those with the shortest longest paths, in which sends between stages are left out: where
    sends are slow, a split that is a little faster may be missed. Raises NoFeasiblePlan where no such split fits in
    memory.
    """
    dealing = _Dealing(question, plan)
    before, split_before = evaluate(question, plan), dealing.split(plan)
    after, split_after = dealing.best()
    if before.step_time <= after.step_time and dealing.fits(split_before):
        after, split_after = before, split_before
    found = Balance(before, after, split_before, split_after, dealing.any_split, "")
    return replace(found, reason=_reason(found, dealing))


def _reason(found: Balance, dealing: _Dealing) -> str:
    """Why the split is as it is, and what it gains."""
    old, new, free = found.split_before, found.split_after, found.any_split
    if len(old.sizes) == 1:
        return "one rank holds all layers"
    head = dealing.head_layers
    cause = f"the head takes as long as {head:.1f} layers: " if head >= WORTH_A_WORD else ""
    if old.sizes == new.sizes:
        text = f"{cause}no other layers on the first and last rank are faster than {old.words}"
    elif not dealing.fits(old):
        peak, limit = format_bytes(max(old.peaks)), format_bytes(dealing.limit)
        text = f"{old.words} layers do not fit (rank {np.argmax(old.peaks)} needs {peak} of {limit}), {new.words} do"
    else:
        gain = 1 - found.after.step_time / found.before.step_time
        text = f"{cause}{new.words} layers in place of {old.words} make the step {gain:.1%} shorter"
    beyond = 1 - free.seconds / new.seconds if free else 0.0
    return f"{text}; {free.words} would take {beyond:.1%} less" if free and beyond >= WORTH_A_SPLIT else text


class _Dealing:
    """One plan of a question, with what its layers take and need."""

    def __init__(self, question: Question, plan: Plan) -> None:
        self.question, self.plan, self.model = question, plan, question.model
        self.pp, self.chunks, self.num_layers = int(plan.pp), int(plan.virtual_stages), len(self.model.layer_pattern)
        self.setting = Setting.of(self.model, question.workload, question.cluster, question.profile, question.stack)
        self.links = links_of(question, plan)
        self.limit = memory_limit(question.cluster)

    def split(self, plan: Plan) -> Split:
        """How a plan deals the layers."""
        return self._split(layout(self.num_layers, plan))

    def fits(self, split: Split) -> bool:
        """Whether no rank is beyond the limit of memory."""
        return max(split.peaks) <= self.limit

    def best(self) -> tuple[RankedPlan, Split]:
        """The best plan with other numbers of layers on its first and last rank. Raises NoFeasiblePlan."""
        splits = [(evaluate(self.question, plan), self.split(plan)) for plan in self._shortlist()]
        fitting = [each for each in splits if self.fits(each[1])]
        if not fitting:
            words = Split(best_split(self.work), 0.0, ()).words
            raise NoFeasiblePlan(
                f"of {self.num_layers} layers on {self.pp} ranks no plan fits that can be said: {words}"
            )
        return min(fitting, key=lambda each: (each[0].step_time, max(each[1].peaks)))

    @property
    def head_layers(self) -> float:
        """How many layers take as long as what the last rank does beside them."""
        return float(self.work.extra[:, -1].sum() / self.work.layers.sum(axis=0).mean())

    @cached_property
    def any_split(self) -> Split | None:
        """The best of all splits, where each rank's layers are in one piece."""
        if self.chunks > 1:
            return None
        return self._split(Layout(best_split(self.work), tuple(range(self.pp))))

    @cached_property
    def work(self) -> Work:
        """What layers take, and how many a rank can hold."""
        apart = Layout((0, *[1] * self.num_layers, 0), (0,) * (self.num_layers + 1) + (self.pp - 1,))
        each = stage_seconds(self.setting, self.plan, self.links, apart)
        parts = np.array([each.forward, np.add(each.input_gradient, each.weight_gradient)])
        extra = np.zeros((2, self.pp))
        extra[:, 0] += parts[:, 0]
        extra[:, -1] += parts[:, -1]
        paths = paths_of(Schedule(int(self.plan.schedule)), self.pp, int(self.plan.num_microbatches), self.chunks)
        return Work(parts[:, 1:-1], extra, held_layers(self.setting, self.plan, self.limit), paths)

    def _split(self, dealt: Layout) -> Split:
        ranks = all_ranks(self.model, self.plan, dealt)
        sizes = tuple(int(count) for count in ranks.layers.sum(axis=0)[:, 0])
        if 2 * len(dealt.sizes) * self.plan.num_microbatches <= MOST_ACTIONS:
            seconds = schedule_time(self.plan, stage_seconds(self.setting, self.plan, self.links, dealt))
        else:
            seconds = float(least_time(self.work.paths, self.work.times(sizes)))
        return Split(sizes, seconds, tuple(peaks_of(self.setting, self.plan, ranks)[:, 0].tolist()))

    def _shortlist(self) -> Iterator[Plan]:
        """The plans that promise most, by their longest path."""
        plans, sizes = self._plans()
        ends = np.cumsum(sizes, axis=1)
        within = (ends <= self.work.reach[np.arange(self.pp), ends - sizes]).all(axis=1)
        plans, times = plans[within], self.work.times(sizes[within])
        for place in least_time(self.work.paths, times).argsort(kind="stable")[:SHORTLIST]:
            yield Plan(**{name: int(value) for name, value in plans[place].as_dict().items()})

    def _plans(self) -> tuple[Plan, Column]:
        """Legal plans with each number of layers on the first and last rank, and what all their ranks hold."""
        layers, pp, asked = self.num_layers, self.pp, self.question
        counts = np.arange(1, max(layers - pp + 2, 2))
        first, last = (each.ravel() for each in np.meshgrid(counts, counts, indexing="ij"))
        possible = first + last == layers if pp == 2 else first + last <= layers - pp + 2
        first, last = (first[possible], last[possible]) if pp > 1 else (np.zeros(1, int), np.zeros(1, int))
        plans = self.plan.columns()[np.zeros(len(first), dtype=int)]
        plans = replace(plans, first_stage_layers=first, last_stage_layers=last)
        sizes = [layers_per_rank(layers, pp, *ends) for ends in zip(first.tolist(), last.tolist(), strict=True)]
        problem = Problem.of(asked.model, asked.cluster, asked.workload, asked.stack)
        kept = (np.min(sizes, axis=1) >= self.chunks) & legal(plans, problem)
        return plans[kept], np.array(sizes)[kept]
