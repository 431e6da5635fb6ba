"""How few GPUs: of each accelerator the smallest count that fits, and the smallest that finishes in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, inf, isfinite
from pathlib import Path
from typing import Any

from planner.answer.choices import OFFLOADS, Choices
from planner.answer.feasible import Room, room
from planner.answer.fits import job_changes
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.answer.repeated import repeated
from planner.catalogue.hardware import accelerator, node, standard_node
from planner.economics.cost_of_run import SECONDS_PER_DAY
from planner.errors import NoFeasiblePlan, PlannerError, SpecError
from planner.quantities import counted, format_bytes, format_count
from planner.spec.codec import plan_to_plain

SCHEMA_VERSION = 1
USUAL_ACCELERATORS = (
    *("h100-sxm", "h200-sxm", "b200-sxm", "a100-sxm-80gb", "a100-sxm-40gb", "mi300x"),
    *("l40s", "rtx-a6000", "rtx-4090", "rtx-3090"),
)
"""What is compared unless other accelerators are named: those that most training runs are reported on."""
MOST_GPUS = 16384
METHOD_WORDS = {"full": "Full training", "lora": "LoRA training", "qlora": "QLoRA training"}
ALONE = (1, 2, 4, 8)
"""Counts within a node."""
SCALES = 0.9
"""Of a count's smallest peak, other counts need at least this, GPU for GPU: memory divides among ranks at best, and a
little is left for counts that divide a model more evenly."""
FASTER = 2.0
"""More GPUs, with more room each, make no GPU so much faster than the fewest do."""
LUCKY = 1.1
"""Nor does a count between two others make it so much faster than both, where these are the best divisible around."""


@dataclass(frozen=True)
class Change:
    """A single change of the job, in words and as options, with which a smaller count would do."""

    words: str
    options: str


@dataclass(frozen=True, eq=False)
class GpuCount:
    """One accelerator's answer.

    `fewest` is the best plan on the smallest count that fits, `in_time` on the smallest that finishes the run in the
    days that were asked for; None where there is none, or no time was asked for. `reason` says why. `fewer` is the
    next smaller count (0: there is none), `changes` what would make it do.
    """

    accelerator: str
    fewest: RankedPlan | None
    in_time: RankedPlan | None = None
    fewer: int = 0
    changes: tuple[Change, ...] = ()
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "accelerator": self.accelerator,
            "fewest": _plan(self.fewest),
            "in_time": _plan(self.in_time),
            "next_smaller": {"gpus": self.fewer or None, "fits_with": [each.__dict__ for each in self.changes]},
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False)
class MinGpus:
    """The answer for every accelerator, the one with the least rent (or the fewest GPUs) first.

    `accelerators` are the names that were asked for, in that order.
    """

    model: str
    accelerators: tuple[str, ...]
    choices: Choices
    days: float | None
    counts: tuple[GpuCount, ...]

    @property
    def found(self) -> tuple[GpuCount, ...]:
        """The accelerators that have an answer."""
        return tuple(each for each in self.counts if self.answer_of(each))

    def answer_of(self, count: GpuCount) -> RankedPlan | None:
        """The plan that answers the question: in time where that was asked."""
        return count.fewest if self.days is None else count.in_time

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions behind the answers."""
        plans = (self.answer_of(each) or each.fewest for each in self.counts)
        return tuple(plan.question for plan in plans if plan)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        first = self.found[0]
        ranked = next(plan for plan in (self.answer_of(first),) if plan)
        asked, run = ranked.question, ranked.run
        fewest = min(self.found, key=lambda each: _gpus(self.answer_of(each)))
        job = f"{METHOD_WORDS[asked.workload.method]} of {asked.model.name}"
        memory = f"{ranked.name}, {format_bytes(ranked.peak)} of {format_bytes(ranked.usable)} usable per GPU"
        if self.days is not None and run is not None:
            money = f", {run.usd_low:,.0f} to {run.usd_high:,.0f} USD" if asked.price else ""
            takes = f"{run.days:,.1f} days, {run.gpu_hours:,.0f} GPU-hours{money}"
            does = f"finishes {format_count(run.tokens)} tokens within {self.days:g} days on {_named(ranked)}: {takes}"
        else:
            gpus, price = asked.cluster.world_size, asked.price
            rent = f", {price.low * gpus:.3g} to {price.high * gpus:.3g} USD per hour" if price else ""
            does = f"fits on {_named(ranked)}{rent}"
        other = self.answer_of(fewest)
        least = f"; fewest GPUs: {_named(other)}" if other is not ranked and other else ""
        why = "the least rent" if asked.price else "the fewest GPUs"
        compared = f" ({why} of {counted(len(self.counts), 'accelerator')} compared)" if len(self.counts) > 1 else ""
        return f"{job} {does}{compared}; {memory}{least}."

    @property
    def command(self) -> str:
        """The whole question as one command line."""
        gpu = ",".join(self.accelerators)
        return repeated("min-gpus", (self.model,), self.choices, gpu=gpu, days=self.days)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner min-gpus --json`."""
        asked = self.questions[0]
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "model": asked.as_dict()["model"],
            "days": self.days,
            "accelerators": [each.as_dict() for each in self.counts],
            "assumed": list(dict.fromkeys(text for each in self.questions for text in each.assumed)),
        }


def min_gpus(
    model: str | Path,
    choices: Choices | None = None,
    *,
    accelerators: Sequence[str] = USUAL_ACCELERATORS,
    days: float | None = None,
) -> MinGpus:
    """The fewest GPUs of each accelerator that fit, and with `days` those that finish the run in time.

    Counts are 1, 2, 4 and 8 in one node, then whole nodes, up to 16,384 GPUs. Raises SpecError for what cannot be
    asked, NoFeasiblePlan where no accelerator has an answer.
    """
    chosen = choices or Choices()
    if days is not None:
        _check_days(days, chosen)
    names = tuple(dict.fromkeys(accelerator(name, where="--gpu").name for name in accelerators))
    if not names:
        raise SpecError("names no accelerator", where="--gpu")
    searches = [_Counts(str(model), name, chosen) for name in names]
    failed: list[PlannerError] = []
    counts = [_count(each, days, failed) for each in searches]
    answer = MinGpus(str(model), names, chosen, days, tuple(counts))
    if not answer.found:
        raise _nowhere(answer, failed)
    return replace(answer, counts=tuple(sorted(counts, key=lambda each: _order(answer.answer_of(each)))))


def _check_days(days: float, choices: Choices) -> None:
    if not (isfinite(days) and days > 0):
        raise SpecError(f"must be more than 0 days, not {days:g}", where="--days")
    if choices.tokens is None:
        raise SpecError("needs --tokens: how long a run takes depends on them", where="--days")


def _nowhere(answer: MinGpus, failed: Sequence[PlannerError]) -> PlannerError:
    """The first accelerator's reason stands for all. Wrong questions are usage errors only where all are wrong."""
    if len(failed) == len(answer.counts) and all(isinstance(error, SpecError) for error in failed):
        return failed[0]
    first = answer.counts[0]
    more = f" (and on none of {len(answer.counts) - 1} others)" if len(answer.counts) > 1 else ""
    return NoFeasiblePlan(f"no count up to {MOST_GPUS:,} of {first.accelerator}{more}: {first.reason}")


def _order(ranked: RankedPlan | None) -> tuple[float, ...]:
    """Money first where it is known, then the number of GPUs; accelerators without an answer last."""
    if ranked is None:
        return (2,)
    gpus, price = ranked.question.cluster.world_size, ranked.question.price
    if price is None:
        return (1, gpus)
    run = ranked.run
    return (0, float(run.usd_low) if run else price.low * gpus, gpus)


def _count(search: _Counts, days: float | None, failed: list[PlannerError]) -> GpuCount:
    """One accelerator's answer; what it fails by is added to `failed`."""
    try:
        fewest = search.fewest()
    except PlannerError as error:
        failed.append(error)
        return GpuCount(search.name, None, reason=str(error))
    found = GpuCount(search.name, fewest)
    if days is not None:
        in_time = search.in_time(fewest, days)
        found = replace(found, in_time=in_time, reason="" if in_time else search.too_slow(days))
    smaller = [count for count in search.counts if count < fewest.question.cluster.world_size]
    if not smaller:
        return found
    return replace(found, fewer=smaller[-1], changes=tuple(search.changes(smaller[-1])))


class _Counts:
    """The counts of one accelerator and what was found out about them."""

    def __init__(self, model: str, name: str, choices: Choices) -> None:
        self.model, self.name, self.choices = model, name, choices
        self.best: dict[int, RankedPlan | None] = {}

    @cached_property
    def node_size(self) -> int:
        """Accelerators of a standard node. Raises SpecError where there is none."""
        standard = standard_node(self.name)
        if standard is None:
            raise SpecError(f"{self.name} has no standard node", where="--gpu")
        return node(standard).gpus_per_node

    @cached_property
    def counts(self) -> list[int]:
        """Every count, ascending."""
        alone = [count for count in ALONE if count < self.node_size]
        return [*alone, *range(self.node_size, MOST_GPUS + 1, self.node_size)]

    def doubled(self, least: float = 0) -> Iterator[int]:
        """Every count that is a power of two times a node, or half a node and so on, from `least` on."""
        return (count for count in self.counts if count >= least and _halves(count, self.node_size))

    def question(self, count: int, choices: Choices | None = None) -> Question:
        """The question on so many GPUs."""
        return ask(self.model, f"{count}x{self.name}", choices or self.choices)

    def plan(self, count: int) -> RankedPlan | None:
        """The best plan on so many GPUs; None where nothing fits."""
        if count not in self.best:
            try:
                self.best[count] = best_plan(self.question(count))
            except PlannerError:
                self.best[count] = None
        return self.best[count]

    def fewest(self) -> RankedPlan:
        """The best plan on the smallest count that fits.

        What fits is not monotone in the count: batch, layers and heads divide among some counts only, and the usual
        batch grows with the cluster. So counts are tried upwards one by one, but for those that a smaller count shows
        to be too few. Raises what the count that lacks least fails by where no power of two fits.
        """
        rooms = self._doubled_until_it_fits()
        last, least = next(reversed(rooms)), 0.0
        for count in (each for each in self.counts if each <= last):
            if count in rooms:
                least = max(least, SCALES * count * rooms[count].load)
            elif count < least:
                continue
            fits = rooms[count].fits if count in rooms else room(self.question(count)).fits
            ranked = self.plan(count) if fits else None
            if ranked:
                return ranked
        return best_plan(self.question(min(rooms, key=lambda count: rooms[count].load or inf)))

    def _doubled_until_it_fits(self) -> dict[int, Room]:
        rooms = {}
        for count in self.doubled():
            rooms[count] = room(self.question(count))
            if rooms[count].fits and self.plan(count):
                break
        return rooms

    def in_time(self, fewest: RankedPlan, days: float) -> RankedPlan | None:
        """The best plan on the smallest count that takes at most `days`.

        Neither is speed monotone in the count. Powers of two are tried until one is fast enough, then what is between.
        """
        needed = fewest.question.workload.tokens / (days * SECONDS_PER_DAY)
        first, speed = fewest.question.cluster.world_size, float(fewest.speed.tokens_per_s_per_gpu)
        for count in self.doubled(max(first, needed / (FASTER * speed))):
            ranked = self.plan(count)
            speed = max(speed, self._speed(count))
            if ranked and ranked.speed.tokens_per_s >= needed:
                between = [each for each in self.counts if first <= each < count]
                return self._first_in_time(between, needed, (speed, self._speed(count))) or ranked
        return None

    def _first_in_time(self, counts: list[int], needed: float, ends: tuple[float, float]) -> RankedPlan | None:
        """The best plan on the first of some counts that is fast enough; `ends` are speeds per GPU on both sides.

        A count in the middle is tried first, so that fewer are near enough to being fast to be tried.
        """
        counts = [count for count in counts if count >= needed / (LUCKY * max(ends))]
        if not counts:
            return None
        at = _middle(counts, self.node_size)
        ranked, speed = self.plan(counts[at]), self._speed(counts[at])
        enough = ranked if ranked and ranked.speed.tokens_per_s >= needed else None
        return (
            self._first_in_time(counts[:at], needed, (ends[0], speed or ends[1]))
            or enough
            or self._first_in_time(counts[at + 1 :], needed, (speed or ends[0], ends[1]))
        )

    def _speed(self, count: int) -> float:
        """Tokens/s per GPU of a count that was tried; 0 where nothing fits."""
        ranked = self.plan(count)
        return float(ranked.speed.tokens_per_s_per_gpu) if ranked else 0.0

    def too_slow(self, days: float) -> str:
        """Why no count finishes in time."""
        plans = [ranked for ranked in self.best.values() if ranked]
        fastest = max(plans, key=lambda ranked: float(ranked.speed.tokens_per_s))
        gpus, run = fastest.question.cluster.world_size, fastest.run
        taken = f"{run.days:,.1f} days" if run else ""
        return f"not within {days:g} days on up to {MOST_GPUS:,}: {gpus:,} of them, the fastest tried, take {taken}"

    def changes(self, count: int) -> Iterator[Change]:
        """Single changes with which so many GPUs would do; plans need none, since all of them are searched."""
        asked = self._possible(count)
        if asked is None:
            return
        for kind in OFFLOADS[1:] if self.choices.offload is None else ():
            moved = replace(self.choices, offload=kind)
            if room(replace(asked, choices=moved)).fits:
                yield Change(f"offload {kind}", f"--offload {kind}")
                break
        for words, options, job in job_changes(asked.workload):
            possible = job.method in asked.stack.methods
            if possible and room(replace(asked, workload=job)).fits:
                yield Change(words, options)

    def _possible(self, count: int) -> Question | None:
        try:
            return self.question(count)
        except PlannerError:
            return None


def _gpus(ranked: RankedPlan | None) -> float:
    return ranked.question.cluster.world_size if ranked else inf


def _named(ranked: RankedPlan) -> str:
    """A count of GPUs: "4 h100-sxm"."""
    cluster = ranked.question.cluster
    return f"{cluster.world_size:,} {cluster.accelerator.name}"


def _middle(counts: Sequence[int], node_size: int) -> int:
    """Where the count stands that is divisible best, of the middle third of some; the first of equals."""
    places = range(len(counts) // 3, len(counts) - len(counts) // 3)
    return max(places, key=lambda at: gcd(counts[at], MOST_GPUS * node_size))


def _halves(count: int, node_size: int) -> bool:
    """Whether a count is a node doubled or halved some times."""
    larger, smaller = max(count, node_size), min(count, node_size)
    ratio = larger // smaller
    return larger % smaller == 0 and ratio & (ratio - 1) == 0


def _plan(ranked: RankedPlan | None) -> dict[str, Any] | None:
    """A plan on its count, for JSON."""
    if ranked is None:
        return None
    asked, largest = ranked.question, ranked.memory_terms[0]
    return {
        "gpus": asked.cluster.world_size,
        "cluster": asked.cluster_text,
        "global_batch_size": asked.workload.global_batch_size,
        "name": ranked.name,
        "plan": plan_to_plain(ranked.plan),
        **ranked.prediction(),
        "dominant": largest.name,
        "usd_per_hour": [asked.price.low * asked.cluster.world_size, asked.price.high * asked.cluster.world_size]
        if asked.price
        else None,
        "command": asked.command(),
    }
