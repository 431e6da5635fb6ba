"""Sides compared: which is fastest, whether that can be told, and which terms account for the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from planner.answer.compared.figures import Line, lines
from planner.answer.compared.sides import Side
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommendation import SAME, TWICE
from planner.errors import NoFeasiblePlan, SpecError
from planner.estimate.interval import TIE, p_faster
from planner.estimate.records import StepTime
from planner.explain.reasons import why_more_memory, why_slower
from planner.quantities import counted, format_bytes, format_seconds, three_digits
from planner.spec.codec import plan_to_plain

SCHEMA_VERSION = 1
MILLION = 1e6


@dataclass(frozen=True, eq=False)
class Against:
    """A side against the fastest, for as many tokens.

    `more` is the share of time that it takes more, `p_slower` the chance that it is measured slower, `reason` the terms
    of its time.
    """

    side: Side
    more: float
    p_slower: float
    reason: str

    @property
    def same(self) -> bool:
        """Whether both take the same time."""
        return self.more < SAME

    @property
    def tie(self) -> bool:
        """Whether the two cannot be told apart."""
        return max(self.p_slower, 1 - self.p_slower) < TIE

    @property
    def more_words(self) -> str:
        """How much more time, in words."""
        if self.same:
            return "the same time"
        return f"{self.more:.1%} more time" if self.more < TWICE else f"{1 + self.more:.1f} times as long"

    @property
    def sentence(self) -> str:
        """What it takes more, and for what."""
        if self.same:
            return f"{self.side.label} takes the same time"
        verb = f"ties (slower with a chance of {self.p_slower:.0%}), with" if self.tie else "takes"
        return f"{self.side.label} {verb} {self.more_words}: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.side.label,
            "time_ratio": 1 + self.more,
            "p_slower": self.p_slower,
            "tie": self.tie,
            "reason": "" if self.same else self.reason,
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """The sides in the order given, and every figure of them, differences first."""

    sides: tuple[Side, ...]
    lines: tuple[Line, ...]

    @cached_property
    def fitting(self) -> tuple[Side, ...]:
        """The sides that fit, fastest first by the token."""
        fit = [side for side in self.sides if side.ranked]
        return tuple(sorted(fit, key=lambda side: _time_of_token(_plan(side))))

    @property
    def fastest(self) -> Side:
        """The side with the least time for a token."""
        return self.fitting[0]

    @property
    def differences(self) -> tuple[Line, ...]:
        """Lines in which the sides differ."""
        return tuple(line for line in self.lines if line.differs)

    @property
    def equal(self) -> tuple[Line, ...]:
        """Lines in which they do not."""
        return tuple(line for line in self.lines if not line.differs)

    @property
    def same(self) -> bool:
        """Whether the sides are the same in everything that is printed."""
        return not self.differences

    @cached_property
    def against(self) -> tuple[Against, ...]:
        """Every other side that fits against the fastest."""
        return tuple(_against(self.fastest, side) for side in self.fitting[1:])

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        unfit = [side.label for side in self.sides if side.ranked is None]
        rest = f"; nothing fits: {', '.join(unfit)}" if unfit else ""
        if self.same:
            return f"The {len(self.sides)} sides are the same: same inputs, same plan, {self._took(self.fastest)}."
        if not self.against:
            return f"Only {self.fastest.label} fits: {self._took(self.fastest)}{rest}."
        return f"{self._pair() if len(self.fitting) == 2 else self._many()}{rest}."

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """What accounts for the differences: of time (each side against the fastest), of memory and of money."""
        if self.same:
            return ()
        time = [("time", each.sentence) for each in self.against] if len(self.against) > 1 else []
        unfit = [("memory", f"{side.label}: {side.reason}") for side in self.sides if side.ranked is None]
        return (*time, *self._memory(), *unfit, *self._money())

    def _pair(self) -> str:
        first, other = self.fastest, self.against[0]
        times = f"{self._took(first)} against {self._took(other.side, unit=False)}"
        if other.same:
            return f"{first.label} and {other.side.label} take the same time: {self._took(first)}"
        if other.tie:
            chance = f"the chance that {first.label} is faster is {other.p_slower:.0%}"
            return f"{first.label} and {other.side.label} tie: {times} ({chance}); the latter has {other.reason}"
        return f"{first.label} is faster than {other.side.label}: {times} ({other.more_words}: {other.reason})"

    def _many(self) -> str:
        ties = [each.side.label for each in self.against if each.tie]
        others = [f"{each.side.label} takes {each.more_words}" for each in self.against if not each.tie]
        tied = [f"{' and '.join(ties)} {'ties' if len(ties) == 1 else 'tie'} with it"] if ties else []
        first = f"{self.fastest.label} is the fastest of {len(self.sides)}: {self._took(self.fastest)}"
        return "; ".join([first, *tied, *others])

    def _took(self, side: Side, *, unit: bool = True) -> str:
        """Time of a step; of a million tokens where steps are unlike."""
        ranked = _plan(side)
        alike = len({_tokens(_plan(each)) for each in self.fitting}) == 1
        time = ranked.step_time if alike else MILLION * _time_of_token(ranked)
        return format_seconds(time) + (f" per {'step' if alike else 'million tokens'}" if unit else "")

    def _memory(self) -> list[tuple[str, str]]:
        ordered = sorted(self.fitting, key=lambda side: _plan(side).peak)
        least, most = ordered[0], ordered[-1]
        one, other = _plan(least), _plan(most)
        if format_bytes(one.peak) == format_bytes(other.peak):
            return []
        why = why_more_memory(one.memory, other.memory)
        sizes = f"{format_bytes(other.peak)} per GPU against {format_bytes(one.peak)}"
        return [("memory", f"{most.label} needs most, {sizes} of {least.label}: {why}")]

    def _money(self) -> list[tuple[str, str]]:
        prices = {side: _plan(side).usd_per_million_tokens for side in self.fitting}
        priced = {side: sum(price) / 2 for side, price in prices.items() if price}
        if len(priced) < 2:
            return []
        ordered = sorted(priced, key=lambda side: priced[side])
        others = [f"{three_digits(priced[side])} of {side.label}" for side in ordered[1:]]
        if len({three_digits(price) for price in priced.values()}) == 1:
            return []
        cheapest = f"{ordered[0].label} is cheapest, {three_digits(priced[ordered[0]])} USD per million tokens"
        return [("money", f"{cheapest} against {', '.join(others)} (middle of the price range)")]

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner compare --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "answer": self.sentence,
            "same": self.same,
            "fastest": self.fastest.label,
            "sides": [_side(side) for side in self.sides],
            "against_fastest": [each.as_dict() for each in self.against],
            "remarks": [{"of": title, "text": text} for title, text in self.remarks],
            "differences": [line.as_dict() for line in self.differences],
            "equal": {line.key: line.figures[0].value for line in self.equal},
        }


def compare(sides: Sequence[Side]) -> Comparison:
    """The sides compared, in their order.

    Raises SpecError for fewer than two, NoFeasiblePlan (with what would help the first) where nothing fits on any.
    """
    if len(sides) < 2:
        raise SpecError(
            f"{counted(len(sides), 'side')} alone: name another plan.json or CLUSTER, several values with commas "
            "(--network ib-ndr400,roce-400), or --what-if nic=2x"
        )
    if not any(side.ranked for side in sides):
        raise NoFeasiblePlan(f"nothing fits on any side; {sides[0].label}: {sides[0].reason}")
    return Comparison(tuple(sides), tuple(lines(sides)))


def chance_slower(first: RankedPlan, other: RankedPlan) -> float:
    """Chance that the other plan is measured slower, by the token.

    Plans on the same accelerator and stack share most of their error, others none.
    """
    one, two = first.question.profile, other.question.profile
    shared = (one.accelerator, one.stack) == (two.accelerator, two.stack)
    return p_faster(_time_of_token(first), _time_of_token(other), one, None if shared else two)


def _against(fastest: Side, side: Side) -> Against:
    first, other = _plan(fastest), _plan(side)
    ratio = _time_of_token(other) / _time_of_token(first)
    time = _scaled(other.time, _tokens(first) / _tokens(other))
    return Against(side, ratio - 1, chance_slower(first, other), why_slower(first.time, time))


def _scaled(time: StepTime, factor: float) -> StepTime:
    """The time of as many steps as make other tokens."""
    return replace(time, **{field.name: float(getattr(time, field.name)) * factor for field in fields(time)})


def _plan(side: Side) -> RankedPlan:
    assert side.ranked is not None
    return side.ranked


def _tokens(ranked: RankedPlan) -> int:
    return ranked.question.workload.tokens_per_step


def _time_of_token(ranked: RankedPlan) -> float:
    return ranked.step_time / _tokens(ranked)


def _side(side: Side) -> dict[str, Any]:
    """One side, for JSON."""
    ranked = side.ranked
    both = {"label": side.label, "command": side.question.command(), **side.question.as_dict()}
    if ranked is None:
        return {**both, "name": None, "plan": None, "reason": side.reason}
    return {**both, "name": ranked.name, "plan": plan_to_plain(ranked.plan), **ranked.prediction()}
