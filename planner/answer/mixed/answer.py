"""The answer for a cluster of unequal nodes: the best of all ways to use it, and what one pace for all loses."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from planner.answer.mixed.parts import arranged, is_mixed, only, parts_of
from planner.answer.mixed.ways import (
    ALONE,
    BATCHES,
    LAYERS,
    NOTHING,
    ONE_PACE,
    Way,
    alone,
    subsets,
    ways_of,
)
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.emit.megatron import layout
from planner.errors import NoFeasiblePlan, SpecError
from planner.estimate.interval import tie
from planner.quantities import format_seconds, three_digits
from planner.spec.cluster import Cluster

SCHEMA_VERSION = 1
WAITS = 0.005
"""A part that waits for less of the step is as fast as the others."""
SLOWER = 0.001
"""Ways whose times differ by less are as fast."""


@dataclass(frozen=True, eq=False)
class MixedAnswer:
    """Every way to use the cluster, best first; `missing` names the parts on which alone nothing fits."""

    question: Question
    ways: tuple[Way, ...]
    missing: tuple[str, ...]

    @property
    def best(self) -> Way:
        """The first way."""
        return self.ways[0]

    def best_of(self, kind: str) -> Way | None:
        """The best way of a kind."""
        return next((way for way in self.ways if way.kind == kind), None)

    @property
    def even(self) -> Way | None:
        """All parts at one pace, as `recommend` has it; None where nothing fits."""
        whole = self.question.cluster.world_size
        return next((way for way in self.ways if way.kind == ONE_PACE and way.gpus == whole), None)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        best, asked = self.best, self.question
        low, high = (format_seconds(float(end)) for end in (best.interval.low, best.interval.high))
        return (
            f"Train {asked.model.name} on {asked.cluster.name} with {best.name}: {best.plan_name}"
            f"{self._shares()}, {format_seconds(best.step_time)} per step ({low} to {high}, {best.profile.level}), "
            f"{best.tokens_per_s:,.0f} tokens/s{self._against()}{self._fewer()}."
        )

    @property
    def fewer(self) -> Way | None:
        """Of the ways that tie with the best on fewer GPUs the one with the fewest."""
        ties = [way for way in self.ways if self.ties(way) and way.gpus < self.best.gpus]
        return min(ties, key=lambda way: (way.gpus, way.step_time), default=None)

    @property
    def loss(self) -> str:
        """What one pace for all costs, in a sentence."""
        even = self.even
        if even is None:
            return "no plan fits all parts at one pace: the smallest memory is that of all"
        slowest = max(even.shares, key=lambda share: share.busy)
        waiting = [share for share in even.shares if 1 - share.busy > WAITS]
        if not waiting:
            return "all parts take as long for the same work: none waits for a slower one"
        waits = ", ".join(f"{share.part.name} waits {1 - share.busy:.0%}" for share in waiting)
        return f"with even work {waits} of every step for {slowest.part.name}"

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What each part adds, and whether the slow ones are better left out."""
        together = next((way for way in self.ways if way.gpus == self.question.cluster.world_size), None)
        if together is None:
            return ("all parts together have no plan that fits",)
        best: dict[str, Way] = {}
        for way in self.ways:
            if way.gpus < together.gpus:
                best.setdefault(self._rest(way), way)
        return tuple(
            f"without {rest}: {_faster(way, together)} than with all, with {together.gpus - way.gpus:,} GPUs fewer"
            for rest, way in best.items()
        )

    @property
    def how(self) -> str:
        """What running the best way takes beyond its plan; empty where work is even."""
        best = self.best
        if best.kind == LAYERS:
            sizes = [size for share in best.shares for size in share.layers]
            order = ", then ".join(share.part.name for share in best.shares)
            return (
                f"number the ranks of {order}, the pipeline outermost; as an option of Megatron-LM: "
                f"--pipeline-model-parallel-layout '{layout(sizes)}'"
            )
        if best.kind != BATCHES:
            return ""
        weights = ", ".join(dict.fromkeys(three_digits(weight) for weight in best.loss_weights))
        numbers = {number for share in best.shares for _, _, number in share.batches}
        start = "start each part with its own size of micro-batches"
        if len(numbers) > 1:
            start = "start each part with its own number of micro-batches, and reduce gradients after the last only"
        return (
            f"{start}; multiply each micro-batch's mean loss by replicas x its sequences / global batch ({weights}), "
            "or the average over replicas weighs sequences unequally (docs/mixed.md)"
        )

    @property
    def command(self) -> str:
        """The whole question as one command line."""
        return self.question.command("mixed")

    def ties(self, way: Way) -> bool:
        """Whether a way cannot be told from the best by its time."""
        return way is not self.best and tie(self.best.step_time, way.step_time, self.question.profile)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner mixed`."""
        asked = self.question
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            **asked.as_dict(),
            "answer": self.sentence,
            "loss": self.loss,
            "verdicts": list(self.verdicts),
            "how": self.how,
            "ways": [{**way.as_dict(), "tie": self.ties(way)} for way in self.ways],
            "nothing_fits": list(self.missing),
            "assumed": list(asked.assumed),
            "notes": list(asked.notes),
        }

    def _shares(self) -> str:
        """What each part does, where that differs."""
        if self.best.kind not in (BATCHES, LAYERS):
            return ""
        what = "replicas x micro-batches of sequences: " if self.best.kind == BATCHES else ""
        return f" ({what}{'; '.join(f'{share.words} on {share.part.name}' for share in self.best.shares)})"

    def _against(self) -> str:
        """How much faster it is than one pace and than the best part alone."""
        alone_best = self.best_of(ALONE)
        alike = len({pool.node.accelerator.name for pool in self.question.cluster.pools}) == 1
        even = "the first plan of recommend" if alike else "one pace for all"
        others = [(even, self.even), (alone_best.name if alone_best else "", alone_best)]
        words = [
            f"{other.step_time / self.best.step_time:.2f} times as fast as {name}"
            for name, other in others
            if other is not None and other is not self.best
        ]
        return f", {' and '.join(words)}" if words else ""

    def _fewer(self) -> str:
        """A way with fewer GPUs that is as good."""
        other = self.fewer
        return f"; {other.name} ties, with {self.best.gpus - other.gpus:,} GPUs fewer" if other else ""

    def _rest(self, way: Way) -> str:
        used = {share.part.name for share in way.shares}
        return " and ".join(part.name for part in parts_of(self.question) if part.name not in used)


def mixed(question: Question, even: RankedPlan | None = None) -> MixedAnswer:
    """The ways to use a cluster of unequal nodes, best first by time, or by money where the question says so.

    `even` is the best plan at one pace where it is known already. Raises SpecError where all nodes are alike, or where
    money is asked for and no price is known; NoFeasiblePlan where nothing fits in any way.
    """
    if not is_mixed(question.cluster):
        raise SpecError(f"all nodes of {question.cluster.name} are alike: planner recommend has the answer")
    if question.objective == "memory":
        raise SpecError("ways to use unequal nodes are compared by throughput or usd", where="--objective")
    asked = arranged(question)
    parts, refused = parts_of(asked), None
    if even is None:
        try:
            even = best_plan(asked)
        except NoFeasiblePlan as error:
            refused = error
    found, missing = list(ways_of(asked, even, asked.cluster)), []
    for part in parts:
        way = alone(asked, part)
        found += [way] if way else []
        missing += [] if way else [part.name]
    for chosen in subsets(parts):
        found += _ways_on(only(asked, chosen), asked.cluster)
    if not found:
        raise refused or NoFeasiblePlan(f"nothing fits {asked.cluster.name} in any way")
    if asked.objective == "usd" and not any(way.price for way in found):
        raise SpecError("no price of these nodes is known", where="--usd-per-gpu-hour")
    return MixedAnswer(asked, tuple(sorted(found, key=_key(asked.objective))), tuple(missing))


def leads(question: Question) -> bool:
    """Whether the answer comes first in `recommend`: nodes are unequal, and no target has to express the plan."""
    return is_mixed(question.cluster) and question.objective != "memory" and question.choices.target is None


def _ways_on(question: Question, whole: Cluster) -> list[Way]:
    """The ways to use some of the parts."""
    even = None
    with suppress(*NOTHING):
        even = best_plan(question)
    return list(ways_of(question, even, whole))


def _key(objective: str) -> Any:
    if objective != "usd":
        return lambda way: way.step_time
    return lambda way: (way.usd_per_million_tokens or (inf,))[-1]


def _faster(way: Way, together: Way) -> str:
    """How a way compares with all parts together."""
    change = way.step_time / together.step_time - 1
    if abs(change) < SLOWER:
        return "no more time"
    return f"{change:.0%} more time" if change > 0 else f"{-change:.0%} less time"
