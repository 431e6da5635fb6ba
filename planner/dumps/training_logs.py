"""Logs of trainers: speed and memory by step, whoever prints them, whatever stands between and before."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from planner.dumps.run_records import QUANTITIES, Reading, TrainingLog
from planner.dumps.text import figure, lines, whole_number
from planner.dumps.training_words import BAR, BATCH, DEVICE, PATTERNS, SCALES, STEP, TRAINERS, WORLD
from planner.quantities import GIB

MOST_READINGS = 1_000_000
LONGEST = 4096
"""Characters of a line in which figures are looked for: beyond stand dumps of settings and of data."""
OWN_KEYS = {
    "step_time_s": ("step_time", 1.0),
    "tokens_per_s": ("tokens_per_s", 1.0),
    "peak_allocated_gib": ("allocated", GIB),
    "peak_reserved_gib": ("reserved", GIB),
}
"""Keys of the planner's own trainer (planner/emit/trainer/record.py) -> quantity and unit."""
DEVICE_WORDS = ("NVIDIA", "AMD", "Tesla", "GeForce")
TRAINING_BAR = re.compile(r"\W{0,4}(?:(?:train|epoch|step|iter)[^|]{0,60}?)?\s{0,8}\Z", re.ASCII | re.IGNORECASE)
"""What stands before a progress bar that counts training steps: bars of loading and of data sets have other names."""


class _Log:
    """What was read so far."""

    def __init__(self) -> None:
        self.readings: defaultdict[str, list[Reading]] = defaultdict(list)
        self.trainer = ""
        self.world_size: int | None = None
        self.batch: int | None = None
        self.device = ""
        self.predicted: dict[str, float] = {}
        self.number = 0
        self.last_step: int | None = None

    def add(self, quantity: str, value: float | None, step: int | None, line: int) -> None:
        """Keep a figure above zero."""
        if value and value > 0 and self.number < MOST_READINGS:
            self.number += 1
            self.readings[quantity].append(Reading(value, step, line))


def read_training_log(text: str) -> TrainingLog | None:
    """The figures of a log; None where no line has any."""
    into = _Log()
    for number, line in lines(text):
        if line.startswith('{"event"') and _own(line, number, into):
            continue
        line = line[:LONGEST]
        if " NCCL " not in line:
            _remark(line, into)
            _figures(line, number, into)
    return _made(into)


def _own(line: str, number: int, into: _Log) -> bool:
    """Take a line of the planner's own trainer; whether it is one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    event = record.get("event") if isinstance(record, dict) else None
    if event not in ("start", "step", "summary", "note"):
        return False
    into.trainer = TRAINERS[0][0]
    if event == "start":
        into.world_size = whole_number(str(record.get("world_size")))
        into.device = str(record.get("device", ""))[:80]
    step = whole_number(str(record.get("step"))) if event == "step" else None
    for key, (quantity, size) in OWN_KEYS.items():
        if event == "step" or (event == "summary" and key.startswith("peak")):
            value = figure(str(record.get(key)))
            into.add(quantity, value and value * size, step, number)
    if event == "summary":
        into.predicted = _numbers(record.get("predicted"))
    return True


def _numbers(found: Any) -> dict[str, float]:
    """The figures of a mapping by name; an interval as two: `step_time_low_s` and `step_time_high_s`."""
    if not isinstance(found, dict):
        return {}
    numbers = {key: value for key, value in found.items() if figure(str(value)) is not None}
    interval = found.get("step_time_interval_s")
    if isinstance(interval, list) and len(interval) == 2 and all(figure(str(each)) for each in interval):
        numbers |= {"step_time_low_s": interval[0], "step_time_high_s": interval[1]}
    return {str(key): float(value) for key, value in numbers.items()}


def _remark(line: str, into: _Log) -> None:
    """What a line says of the run itself."""
    if not into.trainer:
        into.trainer = next((name for name, hints, mark in TRAINERS if _any(hints, line) and mark.search(line)), "")
    if into.world_size is None and "size" in line and (world := WORLD.search(line)):
        into.world_size = whole_number(world[1], most=10**6)
    if not into.device and _any(DEVICE_WORDS, line) and (device := DEVICE.search(line)):
        into.device = device[0]
    if "global batch" in line and (batch := BATCH.search(line)):
        into.batch = whole_number(batch[1])


def _any(words: tuple[str, ...], line: str) -> bool:
    """Whether a line has one of some words: found much quicker than a pattern where it is missing."""
    return any(word in line for word in words)


def _figures(line: str, number: int, into: _Log) -> None:
    lower, seen, step = line.lower(), dict[str, float | None](), None
    for quantity, hint, pattern, size in PATTERNS:
        if hint in lower and quantity not in seen and (match := pattern.search(line)):
            seen[quantity] = _value(match, size)
    if not seen or ((bar := BAR.match(line)) and not TRAINING_BAR.match(bar["head"].strip())):
        return
    if found := STEP.search(line):
        step = whole_number(found["number"] or found[2])
    for quantity, value in seen.items():
        into.add(quantity, value, step, number)


def _value(match: re.Match[str], size: float) -> float | None:
    """A figure in base units. A unit in the text counts above that of the spelling; counts come as `1.2K` too."""
    value, unit = figure(match["number"].replace(",", "")), match.groupdict().get("unit", "")
    if value is None:
        return None
    scale = next((SCALES[each] for each in (unit, unit.upper(), unit.lower()) if each in SCALES), 1.0)
    return value * scale * size


def _made(into: _Log) -> TrainingLog | None:
    readings = {name: list(values) for name, values in into.readings.items()}
    rates = [Reading(1 / each.value, each.step, each.line) for each in readings.pop("steps_per_s", [])]
    readings["step_time"] = readings.get("step_time", []) or rates
    of_one = "tokens_per_s_per_gpu" if into.trainer == "torchtitan" else "tokens_per_s"
    readings[of_one] = readings.get(of_one, []) or readings.pop("tps", [])
    readings["mfu"] = [Reading(_share(each.value), each.step, each.line) for each in readings.get("mfu", [])]
    kept = {name: tuple(readings[name]) for name in QUANTITIES if readings.get(name)}
    if not kept:
        return None
    return TrainingLog(
        trainer=into.trainer or "a trainer",
        readings=kept,
        world_size=into.world_size,
        global_batch_size=into.batch,
        device=into.device,
        predicted=into.predicted,
    )


def _share(value: float) -> float:
    """MFU as a share: some trainers print per cent without the sign."""
    return value if value <= 1.5 else value / 100
