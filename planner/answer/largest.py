"""The largest sequence, micro-batch, batch or model that fits a cluster, and the fastest that does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from planner.answer.choices import Choices
from planner.answer.feasible import room
from planner.answer.model_size import scaled_model
from planner.answer.question import Question, ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import best_plan
from planner.answer.repeated import repeated
from planner.catalogue.models import model as read_model
from planner.errors import NoFeasiblePlan, PlannerError, SpecError, unknown_name
from planner.quantities import GIB, counted, divisors, format_bytes, format_count
from planner.search.fitting import memory_limit
from planner.search.fix import parse_fix
from planner.spec.codec import plan_to_plain
from planner.spec.model import Model
from planner.spec.workload import LARGEST

SCHEMA_VERSION = 1
LEAST_SEQUENCE = 512
MOST_TOKENS = 2**26
"""Tokens per step up to which batches are tried: four times the largest that published runs of dense models had."""
EIGHTHS = tuple(1 + Fraction(part, 8) for part in range(1, 8))
"""Steps between two powers of two."""
SMALLEST, LARGEST_FACTOR = -3, 4
"""Powers of two by which a model is scaled."""


@dataclass(frozen=True, eq=False)
class SizePoint:
    """One value that was tried: its best plan, or None and the least memory per GPU (bytes) that it would take."""

    value: int
    ranked: RankedPlan | None
    least_memory: float
    model: Model

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"value": self.value, "fits": self.ranked is not None}
        if self.ranked is None:
            return {**found, "least_memory_gib": self.least_memory / GIB}
        asked = self.ranked.question
        return {
            **found,
            "name": self.ranked.name,
            "plan": plan_to_plain(self.ranked.plan),
            "global_batch_size": asked.workload.global_batch_size,
            "seq_len": asked.workload.seq_len,
            "layers": self.model.num_hidden_layers,
            "hidden_size": self.model.hidden_size,
            **self.ranked.prediction(),
        }


@dataclass(frozen=True)
class Solved:
    """What is solved for: its name, what it counts, and how its values are tried, in words."""

    name: str
    words: str
    unit: str
    steps: str
    fastest: str = "the fastest"


KINDS = {
    each.name: each
    for each in (
        Solved("seq-len", "sequence", "token", "powers of two, and eighths above the largest of them that fits"),
        Solved("micro-batch", "micro-batch", "sequence", "every divisor of the global batch"),
        Solved(
            "params",
            "model of this shape",
            "parameter",
            "layers, heads, hidden and feed-forward sizes times powers of two, and eighths above the largest fit; "
            "head size, experts and vocabulary stay",
            "the one with the highest MFU",
        ),
        Solved("global-batch", "global batch", "sequence", f"powers of two up to {MOST_TOKENS:,} tokens a step"),
    )
}


@dataclass(frozen=True, eq=False)
class Largest:
    """Every value that was tried, ascending."""

    solved: Solved
    model: str
    cluster: str
    choices: Choices
    points: tuple[SizePoint, ...]

    @property
    def fitting(self) -> tuple[SizePoint, ...]:
        """The values that fit."""
        return tuple(point for point in self.points if point.ranked)

    @property
    def largest(self) -> RankedPlan:
        """The best plan of the largest value that fits."""
        return next(point.ranked for point in reversed(self.points) if point.ranked)

    @property
    def fastest(self) -> RankedPlan:
        """The best plan of the value with most tokens/s; of models with the highest MFU, since small ones are fast."""
        plans = [point.ranked for point in self.fitting if point.ranked]
        rate = "mfu" if self.solved.name == "params" else "tokens_per_s"
        return max(plans, key=lambda ranked: float(getattr(ranked.speed, rate)))

    def value_of(self, ranked: RankedPlan) -> int:
        """The value that a plan belongs to."""
        return next(point.value for point in self.points if point.ranked is ranked)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        top, fast = self.largest, self.fastest
        cluster = top.question.cluster
        where = f"{cluster.name} ({counted(cluster.world_size, 'GPU')})"
        limit = "" if self.points[-1].ranked is None else ", the largest that is tried,"
        large = f"{self._amount(top)}{limit} with {top.name}: {self._speed(top)}, {format_bytes(top.peak)} of "
        large += f"{format_bytes(top.usable)} usable per GPU"
        text = f"{self.model} on {where}: the largest {self.solved.words} that fits has {large}"
        other = "it is" if fast is top else f"{self._amount(fast)} with {fast.name} ({self._speed(fast)}) is"
        return f"{text}; {other} {self.solved.fastest}."

    @property
    def shown(self) -> tuple[SizePoint, ...]:
        """The values that fit, and those that do not up to the second above them."""
        fit = max(place for place, point in enumerate(self.points) if point.ranked)
        return self.points[: fit + 3]

    def _amount(self, ranked: RankedPlan) -> str:
        value = self.value_of(ranked)
        if self.solved.name == "params":
            return f"{format_count(value)} parameters"
        return counted(value, self.solved.unit)

    def _speed(self, ranked: RankedPlan) -> str:
        return f"{float(ranked.speed.tokens_per_s):,.0f} tokens/s, MFU {float(ranked.speed.mfu):.0%}"

    @property
    def command(self) -> str:
        """The whole question as one command line."""
        return repeated("max", (self.model, self.cluster), self.choices, solve=self.solved.name)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner max --json`."""
        asked = self.largest.question
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "solve": self.solved.name,
            "cluster": asked.as_dict()["cluster"],
            "steps": self.solved.steps,
            "largest": self.value_of(self.largest),
            "fastest": self.value_of(self.fastest),
            "points": [point.as_dict() for point in self.points],
        }


Asks = Callable[[int], Question]
"""The question with one value."""


def largest(model: str | Path, cluster: str, choices: Choices | None = None, *, solve: str) -> Largest:
    """The largest and the fastest `seq-len`, `micro-batch`, `params` or `global-batch` that fit a cluster.

    Raises SpecError for what cannot be asked, NoFeasiblePlan where no value fits.
    """
    chosen = choices or Choices()
    if solve not in KINDS:
        raise unknown_name("quantity", solve, KINDS, where="--solve")
    _check_free(solve, chosen)
    first, between, asks = _ladder(str(model), cluster, chosen, solve)
    points = [_point(value, asks) for value in first]
    fitting = [place for place, point in enumerate(points) if point.ranked]
    if fitting and fitting[-1] + 1 < len(points):
        points += [_point(value, asks) for value in between(first[fitting[-1]])]
    if not any(point.ranked for point in points):
        best_plan(asks(first[0]))
        raise NoFeasiblePlan(f"no {KINDS[solve].words} that was tried fits {cluster}")
    return Largest(KINDS[solve], str(model), cluster, chosen, tuple(sorted(points, key=lambda point: point.value)))


def _check_free(solve: str, chosen: Choices) -> None:
    """Raise SpecError where what is solved for is given."""
    given = {
        "seq-len": chosen.seq_len is not None and "--seq-len",
        "global-batch": chosen.global_batch_size is not None and "--global-batch-size",
        "micro-batch": "micro_batch_size" in parse_fix(chosen.fix or "") and "--fix micro_batch_size",
    }.get(solve)
    if given:
        raise SpecError(f"is what --solve {solve} looks for: leave it out", where=str(given))


def _ladder(
    model: str, cluster: str, chosen: Choices, solve: str
) -> tuple[Sequence[int], Callable[[int], Iterator[int]], Asks]:
    """The values that are tried, those between one of them and the next, and the question with each."""

    def nothing(_value: int) -> Iterator[int]:
        return iter(())

    if solve == "seq-len":
        powers = [2**power for power in range(LEAST_SEQUENCE.bit_length() - 1, LARGEST["seq_len"].bit_length())]
        return powers, _eighths, lambda value: ask(model, cluster, replace(chosen, seq_len=value))
    if solve == "params":
        return _sizes(model, cluster, chosen)
    plain = ask(model, cluster, chosen)
    if solve == "global-batch":
        most = max(1, MOST_TOKENS // plain.workload.seq_len)
        batches = [2**power for power in range(most.bit_length())]
        return batches, nothing, lambda value: ask(model, cluster, replace(chosen, global_batch_size=value))
    sizes = divisors(plain.workload.global_batch_size).tolist()
    return sizes, nothing, lambda value: ask(model, cluster, replace(chosen, fix=_with(chosen.fix, value)))


def _with(fix: str | None, micro_batch_size: int) -> str:
    return ",".join(filter(None, (fix, f"micro_batch_size={micro_batch_size}")))


def _eighths(value: int) -> Iterator[int]:
    return (int(value * part) for part in EIGHTHS)


def _sizes(model: str, cluster: str, chosen: Choices) -> tuple[Sequence[int], Callable[[int], Iterator[int]], Asks]:
    """Parameters of the model in other sizes."""
    base = read_model(model)
    by_size: dict[int, tuple[Model, Fraction]] = {}

    def sizes(factors: Sequence[Fraction]) -> list[int]:
        scaled = [(scaled_model(base, factor), factor) for factor in factors]
        found = {each.parameters: (each, factor) for each, factor in scaled if each}
        by_size.update(found)
        return list(found)

    first = sizes([Fraction(2) ** power for power in range(SMALLEST, LARGEST_FACTOR + 1)])
    return (
        first,
        lambda value: iter(sizes([by_size[value][1] * part for part in EIGHTHS])),
        lambda value: ask(by_size[value][0], cluster, chosen),
    )


def _point(value: int, asks: Asks) -> SizePoint:
    """One value judged. Raises SpecError for what is wrong with the question whatever the value."""
    question = asks(value)
    space, ranked = room(question), None
    if space.fits:
        try:
            ranked = best_plan(question)
        except PlannerError:
            ranked = None
    return SizePoint(value, ranked, space.load * float(memory_limit(question.cluster)), question.model)
