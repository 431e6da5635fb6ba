"""Step times of a run: which count, which are warm-up, which stand out, and what the log says beside those."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.dumps.run_records import Reading, TrainingLog, warm_up
from planner.dumps.text import lines
from planner.quantities import Count, Scalar, Seconds

APART: Scalar = 0.2
"""A step stands out if it differs from the median by more than this part of it..."""
SPREADS = 5
"""...and by more than this many spreads."""
DEVIATION: Scalar = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
EVENTS = (
    (
        "checkpoint",
        ("heckpoint",),
        re.compile(r"\bsav(?:e|ed|ing)\b.{0,40}\bcheckpoint|\bcheckpoint.{0,40}\bsav(?:e|ed|ing)\b", re.IGNORECASE),
    ),
    (
        "evaluation",
        ("valuat", "alidat", "eval_"),
        re.compile(r"\bevaluat(?:ing|ion)\b|\bvalidat(?:ing|ion)\b|\beval_loss\b", re.IGNORECASE),
    ),
)
"""What happens between steps, letters that a line about it has, and how logs say it."""
LONGEST = 400
"""Characters of a line in which such words are looked for."""


@dataclass(frozen=True)
class OddStep:
    """A step left out because it stands out; `reason` is what the log says beside it, empty where it says nothing."""

    step: Reading
    reason: str = ""

    @property
    def words(self) -> str:
        """The step in words: `step 500: 12.3 s (checkpoint)`."""
        place = f"line {self.step.line}" if self.step.step is None else f"step {self.step.step}"
        return f"{place}: {self.step.value:.4g} s" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class StepTimes:
    """Seconds of the steps that count, without the first `warm_up` and the `odd` ones; `basis`: where they are from."""

    counted: tuple[Seconds, ...]
    warm_up: Count = 0
    odd: tuple[OddStep, ...] = ()
    basis: str = "timed"

    @property
    def steps(self) -> Count:
        """All that were read."""
        return len(self.counted) + self.warm_up + len(self.odd)

    @property
    def median(self) -> Seconds:
        """Of the steps that count."""
        return statistics.median(self.counted)

    @property
    def spread(self) -> Scalar:
        """Robust standard deviation over the median."""
        return DEVIATION * _deviation(self.counted) / self.median


def steady(
    readings: Sequence[Reading], *, text: str = "", basis: str = "timed", warm: Count | None = None
) -> StepTimes:
    """The steps that count: those after warm-up (`run_records.warm_up`, or `warm` steps) that do not stand out.

    Several ranks' readings of one step count as one, their median. Readings may not be empty.
    """
    steps = list(_by_step(readings))
    left_out = warm_up(len(steps)) if warm is None else warm
    rest = steps[left_out:]
    median = statistics.median(step.value for step in rest)
    limit = max(APART * median, SPREADS * DEVIATION * _deviation([step.value for step in rest]))
    far = [step for step in rest if abs(step.value - median) > limit]
    odd = tuple(_odd(far, steps, text))
    kept = tuple(step.value for step in rest if abs(step.value - median) <= limit)
    return StepTimes(kept, left_out, odd, basis)


def logged_steps(
    log: TrainingLog, *, text: str = "", sequences: Count = 0, seq_len: Count = 0, ranks: Count = 0
) -> StepTimes | None:
    """Step times of a log: timed, or by its throughput where `sequences` of `seq_len` tokens on `ranks` are known.

    None where the log has neither.
    """
    per_step = {
        "step_time": 0,
        "tokens_per_s": sequences * seq_len,
        "tokens_per_s_per_gpu": sequences * seq_len / ranks if ranks else 0,
        "samples_per_s": sequences,
    }
    for quantity, amount in per_step.items():
        readings = log.readings.get(quantity, ())
        if quantity == "step_time" and readings:
            return steady(readings, text=text)
        if readings and amount:
            times = [Reading(amount / each.value, each.step, each.line) for each in readings]
            return steady(times, text=text, basis=f"from {quantity.replace('_per_', '/').replace('_', ' ')}")
    return None


def _by_step(readings: Sequence[Reading]) -> Iterator[Reading]:
    """One reading a step, in the order of the log."""
    of_step: defaultdict[object, list[Reading]] = defaultdict(list)
    for index, reading in enumerate(readings):
        of_step[("no number", index) if reading.step is None else reading.step].append(reading)
    for same in of_step.values():
        yield Reading(statistics.median(each.value for each in same), same[0].step, same[0].line)


def _deviation(values: Sequence[float]) -> float:
    """Median absolute deviation."""
    median = statistics.median(values)
    return statistics.median(abs(value - median) for value in values)


def _odd(far: Sequence[Reading], steps: Sequence[Reading], text: str) -> Iterator[OddStep]:
    """Steps that stand out, with what the log says between the step before and the one after."""
    told = _events(text) if far else []
    read, said = sorted({step.line for step in steps}), [line for line, _ in told]
    for step in far:
        place = bisect_left(read, step.line)
        before = read[place - 1] if place else 0
        after = read[place + 1] if place + 1 < len(read) else step.line + 1
        near = told[bisect_left(said, before) : bisect_left(said, after)]
        yield OddStep(step, ", ".join(dict.fromkeys(name for _, name in near)))


def _events(text: str) -> list[tuple[int, str]]:
    """Lines that say what happened between steps, and what it was."""
    return [
        (number, name)
        for number, line in lines(text)
        for name, hints, pattern in EVENTS
        if any(hint in line for hint in hints) and pattern.search(line[:LONGEST])
    ]
