"""A pipeline whose stages stand on unequal accelerators: the split of its layers, and how long its step takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from planner.errors import NoFeasiblePlan
from planner.estimate.once_per_step import OF_THE_FULLEST, once_per_step_by_rank
from planner.estimate.setting import Setting
from planner.estimate.stage_seconds import StageSeconds, stage_seconds
from planner.estimate.stages import Layout, all_ranks, layout
from planner.estimate.step_time import data_parallel_exposed
from planner.quantities import Bytes, Column, Seconds
from planner.search.held_layers import held_layers, peaks_of
from planner.search.refine import schedule_time
from planner.search.unequal_ranks import UnequalWork, unequal_splits
from planner.spec.plan import Plan
from planner.topology.links import Links

PLAYED = 8
"""Splits whose schedule is played: those of least (m - 1) x the slowest rank + the sum of all ranks."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring pipeline ranks on one kind of accelerator, with what each may use of its memory."""

    ranks: int
    setting: Setting
    limit: Bytes


@dataclass(frozen=True, eq=False)
class UnequalStep:
    """Layers of each pipeline rank with the step's time.

    `busy` are seconds of all micro-batches on each rank, `peaks` bytes of each rank.
    """

    sizes: tuple[int, ...]
    seconds: Seconds
    busy: tuple[Seconds, ...]
    peaks: tuple[Bytes, ...]


@dataclass(frozen=True, eq=False)
class UnequalPipeline:
    """One plan, one chunk of layers a rank and nothing offloaded, on stretches in the order of the data flow."""

    plan: Plan
    links: Links
    stretches: tuple[Stretch, ...]

    def step(self, sizes: Sequence[int] | None = None) -> UnequalStep:
        """The step with such layers on each rank, or with the plan's own: its schedule played, and once per step."""
        plan, model = self.plan, self.stretches[0].setting.model
        dealt = Layout(tuple(sizes), tuple(range(len(sizes)))) if sizes else layout(len(model.layer_pattern), plan)
        each = self._stages(dealt.sizes)
        passes = np.array([each.forward, each.input_gradient, each.weight_gradient]).sum(axis=0)
        seconds = schedule_time(plan, each) + self._once(dealt, float(passes.max()))
        peaks = peaks_of(self.stretches[0].setting, plan, all_ranks(model, plan, dealt))[:, 0]
        busy = int(plan.num_microbatches) * passes
        return UnequalStep(dealt.sizes, float(seconds), tuple(busy.tolist()), tuple(peaks.tolist()))

    def fits(self, step: UnequalStep) -> bool:
        """Whether each rank is within the limit of its own accelerator."""
        return bool((np.array(step.peaks) <= self._limits).all())

    def best(self) -> UnequalStep:
        """The step with the layers dealt best within memory; never longer than with the plan's own, if that fits.

        Raises NoFeasiblePlan where no split fits.
        """
        steps = list(self._promising())
        own = self.step()
        return min([*steps, own] if self.fits(own) else steps, key=lambda step: step.seconds)

    @cached_property
    def work(self) -> UnequalWork:
        """What layers take on each rank, and how many it can hold."""
        reach = held_layers(self.stretches[0].setting, self.plan, self._limits)
        return UnequalWork(self._layers.sum(axis=0), self._extra.sum(axis=0), reach)

    @property
    def _of_rank(self) -> Column:
        """The stretch of each rank."""
        return np.repeat(np.arange(len(self.stretches)), [stretch.ranks for stretch in self.stretches])

    @property
    def _limits(self) -> Column:
        return np.array([stretch.limit for stretch in self.stretches])[self._of_rank]

    def _promising(self) -> Iterator[UnequalStep]:
        """Steps of the splits of least cost that fit."""
        microbatches = int(self.plan.num_microbatches)
        splits = sorted(unequal_splits(self.work, microbatches), key=lambda sizes: self.work.cost(sizes, microbatches))
        fitting = list(islice(filter(self.fits, map(self.step, splits)), PLAYED))
        if not fitting:
            raise NoFeasiblePlan("no split of the layers fits on pipeline ranks of unequal accelerators")
        yield from fitting

    @cached_property
    def _apart(self) -> list[StageSeconds]:
        """Of each stretch what every layer takes, with what the first and the last rank do beside them at the ends."""
        count = len(self.stretches[0].setting.model.layer_pattern)
        apart = Layout((0, *[1] * count, 0), (0,) * (count + 1) + (len(self._of_rank) - 1,))
        return [stage_seconds(stretch.setting, self.plan, self.links, apart) for stretch in self.stretches]

    @cached_property
    def _parts(self) -> Column:
        """Forward, gradients of inputs and of weights of each rank; shape (3, ranks, layers and both ends)."""
        each = np.array([[part.forward, part.input_gradient, part.weight_gradient] for part in self._apart])
        return np.moveaxis(each, 0, 1)[:, self._of_rank]

    @property
    def _layers(self) -> Column:
        """Of each layer on each rank, shape (3, ranks, layers)."""
        return self._parts[:, :, 1:-1]

    @property
    def _extra(self) -> Column:
        """Of each rank beside its layers, shape (3, ranks)."""
        extra = np.zeros(self._parts.shape[:2])
        extra[:, 0] += self._parts[:, 0, 0]
        extra[:, -1] += self._parts[:, -1, -1]
        return extra

    def _stages(self, sizes: Sequence[int]) -> StageSeconds:
        """Each rank's stage as its own accelerator takes it."""
        ends = np.cumsum(sizes)
        done = np.concatenate([np.zeros((*self._layers.shape[:2], 1)), self._layers.cumsum(axis=2)], axis=2)
        rank = np.arange(len(ends))
        parts = done[:, rank, ends] - done[:, rank, ends - np.asarray(sizes)] + self._extra
        forward, inputs, weights = (tuple(part.tolist()) for part in parts)
        return StageSeconds(forward, inputs, weights, send=max(part.send for part in self._apart))

    def _once(self, dealt: Layout, slowest: Seconds) -> Seconds:
        """What happens once per step, of the rank with most of each."""
        plans, wired = self.plan.columns(), self.links.columns()
        each = [
            once_per_step_by_rank(s.setting, plans, wired, all_ranks(s.setting.model, self.plan, dealt))
            for s in self.stretches
        ]
        rank = np.arange(len(self._of_rank))
        most = {
            name: np.array([getattr(once, name)[:, 0] for once in each])[self._of_rank, rank].max(keepdims=True)
            for name in OF_THE_FULLEST
        }
        fullest = replace(each[0], **most)
        exposed = max(float(data_parallel_exposed(s.setting, fullest, slowest)[0]) for s in self.stretches)
        fixed = max(float(stretch.setting.profile.fixed_time) for stretch in self.stretches)
        return exposed + float(fullest.optimizer[0]) + fixed
