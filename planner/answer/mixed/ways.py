"""The ways to use a mixed cluster: one pace for all, uneven micro-batches, uneven layers, and with parts left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from planner.answer.balance import Split
from planner.answer.evaluate import links_of
from planner.answer.mixed.parts import Part, only, parts_of
from planner.answer.mixed.replicas import UnevenReplicas, uneven_replicas
from planner.answer.mixed.stages import UnevenStages, uneven_stages
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.catalogue.prices import Price, usd_per_gpu_hour
from planner.economics.cost_of_run import SECONDS_PER_HOUR, cost_per_million_tokens
from planner.errors import NoFeasiblePlan, SpecError
from planner.estimate.interval import Interval, step_time_interval
from planner.estimate.stages import layout
from planner.explain.words import short_name
from planner.quantities import GIB, Bytes, Scalar, Seconds
from planner.spec.cluster import Cluster
from planner.spec.codec import plan_to_plain
from planner.spec.plan import Plan
from planner.spec.profile import Profile

ONE_PACE, ALONE = "one pace", "alone"
BATCHES, LAYERS = "uneven micro-batches", "uneven layers"
REPLICAS, STAGES = "data parallel between", "pipeline between"
"""The same with even work: worth a look where a slow network joins the parts."""
NOTHING = NoFeasiblePlan, SpecError
"""What says that a way is none: nothing fits, or what the user fixes is not possible there."""
ALL_SUBSETS = 3
"""Parts up to which every choice of them is tried; of more, each alone and all but the slowest ones."""


@dataclass(frozen=True, eq=False)
class PartShare:
    """What one part of the cluster does in a step.

    `batches` are runs of equal replicas: their number, the size and the number of their micro-batches; empty where a
    replica is spread over several parts. `layers` are those of each pipeline rank on the part, where ranks hold
    unequal numbers. `busy` is the share of the step in which the part does not wait for another.
    """

    part: Part
    batches: tuple[tuple[int, int, int], ...]
    layers: tuple[int, ...]
    busy: Scalar
    peak: Bytes

    @property
    def words(self) -> str:
        """The share in words."""
        if self.layers:
            return f"{Split(self.layers, 0.0, ()).words} layers"
        return ", ".join(f"{count} x {number} of {size}" for count, size, number in self.batches)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        part = self.part.pools[0].node.accelerator
        return {
            "part": self.part.name,
            "accelerator": part.name,
            "gpus": self.part.gpus,
            "replicas": [
                {"replicas": count, "micro_batch_size": size, "num_microbatches": number}
                for count, size, number in self.batches
            ],
            "layers": list(self.layers),
            "busy_share": self.busy,
            "peak_memory_gib": self.peak / GIB,
            "usable_memory_gib": part.usable_memory / GIB,
        }


@dataclass(frozen=True, eq=False)
class Way:
    """One way to use some parts of a cluster, with its best plan; `kind` says how work is divided."""

    kind: str
    question: Question
    plan: Plan
    step_time: Seconds
    shares: tuple[PartShare, ...]

    @property
    def name(self) -> str:
        """How, and on which parts."""
        names = " + ".join(share.part.name for share in self.shares)
        if self.kind == ALONE:
            return f"{names} alone"
        if self.kind == ONE_PACE and len({share.part.pools[0].node.accelerator.name for share in self.shares}) == 1:
            return f"any layout on {names}"
        return f"{self.kind} {names}" if self.kind in (REPLICAS, STAGES) else f"{self.kind} on {names}"

    @property
    def gpus(self) -> int:
        """Accelerators used."""
        return sum(share.part.gpus for share in self.shares)

    @property
    def plan_name(self) -> str:
        """Short name of the plan."""
        return short_name(self.plan)

    @property
    def profile(self) -> Profile:
        """Of the parts' efficiencies those that are known least well."""
        return max((share.part.question.profile for share in self.shares), key=lambda each: each.error)

    @property
    def interval(self) -> Interval:
        """80 % interval of the step time."""
        return step_time_interval(self.step_time, self.profile)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of all parts together."""
        return self.question.workload.tokens_per_step / self.step_time

    @property
    def price(self) -> Price | None:
        """USD per accelerator and hour of the parts that are used; None where unknown."""
        own = self.question.workload.usd_per_gpu_hour
        return Price(own, own) if own else usd_per_gpu_hour(self.question.cluster)

    @property
    def usd_per_million_tokens(self) -> tuple[float, float] | None:
        """Price range of a million tokens; None where no price is known."""
        if self.price is None:
            return None
        each = (self.price.low, self.price.high)
        low, high = (
            float(cost_per_million_tokens(self.tokens_per_s / self.gpus, usd / SECONDS_PER_HOUR)) for usd in each
        )
        return low, high

    @property
    def loss_weights(self) -> tuple[float, ...]:
        """By what each part multiplies the mean loss of a micro-batch, so that averaging over replicas is right.

        R b / B: replicas times sequences in the micro-batch over the global batch; one for each run of `batches`.
        """
        runs = [run for share in self.shares for run in share.batches]
        replicas = sum(count for count, _, _ in runs)
        return tuple(replicas * size / self.question.workload.global_batch_size for _, size, _ in runs)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        price = self.usd_per_million_tokens
        return {
            "name": self.name,
            "kind": self.kind,
            "gpus": self.gpus,
            "plan_name": self.plan_name,
            "plan": plan_to_plain(self.plan),
            "step_time_s": self.step_time,
            "step_time_interval_s": [float(self.interval.low), float(self.interval.high)],
            "level": self.profile.level,
            "tokens_per_s": self.tokens_per_s,
            "usd_per_million_tokens_range": price,
            "parts": [share.as_dict() for share in self.shares],
            "loss_weights": list(self.loss_weights) if self.kind == BATCHES else None,
        }


def ways_of(question: Question, even: RankedPlan | None, whole: Cluster) -> Iterator[Way]:
    """The ways to use all parts of an arranged question's cluster, which are named as in the `whole`.

    `even` is the best plan at one pace, if any fits.
    """
    parts = parts_of(question, whole)
    if even is not None:
        yield one_pace(question, parts, even)
    plan, found = even.plan if even else None, list[Way]()
    with suppress(*NOTHING):
        found.append(_by_batches(question, parts, uneven_replicas(question, parts, plan)))
    with suppress(*NOTHING):
        found.append(_by_layers(question, uneven_stages(question, plan, whole=whole)))
    for way in found:
        if plan is None or way.kind in (BATCHES, LAYERS) or way.plan.as_dict() != plan.as_dict():
            yield way


def one_pace(question: Question, parts: Sequence[Part], even: RankedPlan) -> Way:
    """The best even plan: every part takes as long as the slowest."""
    links = links_of(question, even.plan)
    times = [float(part.time(even.plan, links).total) for part in parts]
    slowest = max(times)
    shares = [PartShare(part, (), (), time / slowest, even.peak) for part, time in zip(parts, times, strict=True)]
    # Where the part with the lowest peak is not the slowest in all, the step takes more than `even` says.
    step_time = even.step_time * max(1.0, slowest / float(even.time.total))
    return Way(ONE_PACE, question, even.plan, step_time, tuple(shares))


def alone(question: Question, part: Part) -> Way | None:
    """The best plan of one part without the others; None where nothing fits."""
    asked = only(question, [part])
    with suppress(*NOTHING):
        best = best_plan(asked)
        share = PartShare(part, (), (), 1.0, best.peak)
        return Way(ALONE, asked, best.plan, best.step_time, (share,))
    with suppress(*NOTHING):  # the batch may not divide by its replicas
        own = parts_of(asked, question.cluster)
        return replace(_by_batches(asked, own, uneven_replicas(asked, own)), kind=ALONE)
    return None


def subsets(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """The choices of more than one part, but not all, that are tried; the order of the parts is kept."""
    count = len(parts)
    if count <= ALL_SUBSETS:
        for size in range(2, count):
            yield from combinations(parts, size)
        return
    fastest_first = sorted(range(count), key=lambda i: -parts[i].pools[0].node.accelerator.half_peak)
    for size in range(2, count):
        kept = sorted(fastest_first[:size])
        yield tuple(parts[i] for i in kept)


def _by_batches(question: Question, parts: Sequence[Part], found: UnevenReplicas) -> Way:
    shares = []
    for part, share, seconds, peak in zip(parts, found.shares, found.seconds, found.peaks, strict=True):
        batches = tuple((count, *found.batch(units)) for count, units in share.runs)
        shares.append(PartShare(part, batches, (), seconds / found.step_time, peak))
    size, number = found.batch(max(share.most for share in found.shares))
    plan = replace(found.plan, micro_batch_size=size, num_microbatches=number)
    return Way(REPLICAS if found.even else BATCHES, question, plan, found.step_time, tuple(shares))


def _by_layers(question: Question, found: UnevenStages) -> Way:
    shares = []
    for number, part in enumerate(found.parts):
        ranks = found.of(number)
        busy = found.step.busy[ranks]
        shares.append(
            PartShare(
                part,
                (),
                found.step.sizes[ranks],
                sum(busy) / len(busy) / found.step_time,
                max(found.step.peaks[ranks]),
            )
        )
    own = layout(len(question.model.layer_pattern), found.plan).sizes == found.step.sizes
    return Way(STAGES if own else LAYERS, question, found.plan, found.step_time, tuple(shares))
