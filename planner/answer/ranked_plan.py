"""One plan of an answer: its place, its estimates with their uncertainty, and what the command line prints of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.answer.question import Question
from planner.economics.cost_of_run import SECONDS_PER_HOUR, RunCost, cost_of_run, cost_per_million_tokens
from planner.estimate.interval import Interval, Verdict, p_fits, step_time_interval, verdict
from planner.estimate.records import MemoryUse, Moment, Role, StepTime, Throughput
from planner.estimate.throughput import throughput
from planner.explain.breakdown import TermValue, memory_breakdown, time_breakdown
from planner.explain.reasons import memory_items, time_terms
from planner.explain.words import plan_words, short_name
from planner.quantities import GIB
from planner.spec.codec import plan_to_plain
from planner.spec.model import ModelKind
from planner.spec.plan import Plan


@dataclass(frozen=True, eq=False)
class RankedPlan:
    """A plan with its estimates, all scalars. `rank` counts from 1; `tie` says that it cannot be told from the best."""

    question: Question
    plan: Plan
    time: StepTime
    memory: MemoryUse
    rank: int = 1
    tie: bool = False

    @property
    def name(self) -> str:
        """Short name, such as `HSDP 2x8`."""
        return short_name(self.plan)

    @property
    def words(self) -> str:
        """The plan as a phrase."""
        return plan_words(self.plan)

    @property
    def step_time(self) -> float:
        """Seconds of one optimizer step."""
        return float(self.time.total)

    @property
    def interval(self) -> Interval:
        """80 % interval of the step time."""
        return step_time_interval(self.step_time, self.question.profile)

    @property
    def peak(self) -> float:
        """Bytes of the fullest rank at its fullest moment."""
        return float(self.memory.peak)

    @property
    def usable(self) -> float:
        """Bytes that a rank can use, on the smallest accelerator of the cluster."""
        return float(min(pool.node.accelerator.usable_memory for pool in self.question.cluster.pools))

    @property
    def verdict(self) -> Verdict:
        """Whether the peak fits."""
        return Verdict(int(verdict(self.peak, self.usable)))

    @property
    def p_fits(self) -> float:
        """Chance that the measured peak stays within usable memory."""
        return p_fits(self.peak, self.usable, self.question.profile)

    @property
    def moment(self) -> Moment:
        """Event of the step at which memory peaks."""
        return Moment(int(self.memory.moment))

    @property
    def role(self) -> Role:
        """Pipeline rank at which memory peaks."""
        return Role(int(self.memory.role))

    @property
    def time_terms(self) -> list[TermValue]:
        """Every term of the step time with its formulas, largest first."""
        return time_breakdown(self.time, self.plan, self.question.workload, self.question.model)

    @property
    def memory_terms(self) -> list[TermValue]:
        """Every item of the peak with its formulas, largest first."""
        return memory_breakdown(self.memory, self.plan, self.question.workload, self.question.model)

    @cached_property
    def speed(self) -> Throughput:
        """Tokens, samples, MFU and HFU."""
        asked = self.question
        return throughput(asked.model, self.plan, asked.workload, asked.cluster, stack=asked.stack, time=self.time)

    @property
    def rate(self) -> tuple[str, float, float]:
        """The speed that people quote: its name, total, and per accelerator; samples/s of encoders, else tokens/s."""
        speed = self.speed
        if self.question.model.kind is ModelKind.ENCODER:
            samples = float(speed.samples_per_s)
            return "samples/s", samples, samples / self.question.cluster.world_size
        return "tokens/s", float(speed.tokens_per_s), float(speed.tokens_per_s_per_gpu)

    @property
    def usd_per_million_tokens(self) -> tuple[float, float] | None:
        """Price range of a million tokens; None where no price is known."""
        price = self.question.price
        if price is None:
            return None
        speed = float(self.speed.tokens_per_s_per_gpu)
        both = [cost_per_million_tokens(speed, each / SECONDS_PER_HOUR) for each in (price.low, price.high)]
        return float(both[0]), float(both[1])

    @property
    def run(self) -> RunCost | None:
        """Days, GPU-hours and USD of the whole run; None where `tokens` was not asked for."""
        asked = self.question
        if not asked.workload.tokens:
            return None
        low, high = (asked.price.low, asked.price.high) if asked.price else (0.0, 0.0)
        return cost_of_run(
            asked.workload.tokens,
            float(self.speed.tokens_per_s),
            asked.cluster.world_size,
            (low / SECONDS_PER_HOUR, high / SECONDS_PER_HOUR),
        )

    def same(self, other: RankedPlan) -> bool:
        """Whether it is the same plan."""
        return self.plan.as_dict() == other.plan.as_dict()

    def prediction(self) -> dict[str, Any]:
        """Everything predicted, under the stable JSON names."""
        return {
            "step_time_s": self.step_time,
            "step_time_interval_s": [self.interval.low, self.interval.high],
            "level": self.question.profile.level,
            "tie": self.tie,
            "tokens_per_s": self.speed.tokens_per_s,
            "tokens_per_s_per_gpu": self.speed.tokens_per_s_per_gpu,
            "samples_per_s": self.speed.samples_per_s,
            "mfu": self.speed.mfu,
            "hfu": self.speed.hfu,
            "peak_memory_gib": self.peak / GIB,
            "usable_memory_gib": self.usable / GIB,
            "memory_verdict": self.verdict.name.lower(),
            "memory_peak": {"role": self.role.name.lower(), "moment": self.moment.name.lower()},
            "p_fits": self.p_fits,
            "host_memory_gib": float(self.memory.host) / GIB,
            "time_breakdown_s": time_terms(self.time),
            "memory_breakdown_gib": {name: size / GIB for name, size in memory_items(self.memory).items()},
            **self._money(),
        }

    def _money(self) -> Mapping[str, Any]:
        price, run = self.usd_per_million_tokens, self.run
        return {
            "usd_per_million_tokens": sum(price) / 2 if price else None,
            "usd_per_million_tokens_range": price,
            "run": run
            and {
                "tokens": run.tokens,
                "days": run.days,
                "gpu_hours": run.gpu_hours,
                "usd_range": [run.usd_low, run.usd_high] if price else None,
            },
        }

    def as_dict(self) -> dict[str, Any]:
        """One entry of `plans` in the JSON of `recommend`."""
        return {"rank": self.rank, "name": self.name, "plan": plan_to_plain(self.plan), **self.prediction()}
