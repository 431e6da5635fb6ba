"""Renting against buying, and what a faster network may cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from planner.answer.budget_assumptions import HOUR, Assumptions
from planner.answer.question import ask
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import answer
from planner.catalogue.hardware import network as named_network
from planner.catalogue.prices import Price
from planner.economics.ownership import (
    SECONDS_PER_MONTH,
    break_even_time,
    owned_price,
    premium,
    saving_of_owning,
    upkeep,
)


@dataclass(frozen=True)
class Ownership:
    """Buying against renting; USD per GPU and hour of use. `break_even_months` is None where renting stays cheaper."""

    purchase_usd: float
    upkeep_usd_per_hour: float
    owned_usd_per_hour: float
    rent_usd_per_hour: tuple[float, float] | None
    break_even_months: tuple[float | None, float | None] | None
    life_months: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def ownership(assumed: Assumptions, price: Price | None) -> Ownership | None:
    """Buying, where purchase and power are known; break-even at the low and the high rent."""
    if assumed.purchase is None or assumed.power is None:
        return None
    running = upkeep(assumed.power, pue=assumed.pue, electricity=assumed.electricity, hosting=assumed.hosting)
    owned = owned_price(
        assumed.purchase,
        resale_share=assumed.resale_share,
        life=assumed.life,
        running=running,
        utilisation=assumed.utilisation,
    )

    def months(rent: float) -> float | None:
        saving = saving_of_owning(rent / HOUR, running, assumed.utilisation)
        return break_even_time(assumed.purchase, saving) / SECONDS_PER_MONTH if saving > 0 else None

    return Ownership(
        purchase_usd=assumed.purchase,
        upkeep_usd_per_hour=running * HOUR,
        owned_usd_per_hour=owned * HOUR,
        rent_usd_per_hour=(price.low, price.high) if price else None,
        break_even_months=(months(price.low), months(price.high)) if price else None,
        life_months=assumed.life / SECONDS_PER_MONTH,
    )


@dataclass(frozen=True)
class Premium:
    """What the faster of two networks may cost more until the work costs the same with both.

    Per GPU and hour at the low and high rent, of the whole run, and once per GPU where it is owned. `plans` are the
    best with each network.
    """

    faster: str
    slower: str
    step_times: tuple[float, float]
    plans: tuple[str, str]
    usd_per_gpu_hour: tuple[float, float] | None
    usd_of_run: tuple[float, float] | None
    usd_per_owned_gpu: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def network_premium(ranked: RankedPlan, against: str, assumed: Assumptions, owned: Ownership | None) -> Premium:
    """The question's network against another, each with its best plan. Raises as `ask` and `answer` do."""
    asked = ranked.question
    named_network(against, where="--against")
    other = answer(ask(asked.model, asked.cluster, replace(asked.choices, network=against)), top=1).best
    fast, slow = sorted((ranked, other), key=lambda each: each.step_time)
    rate = hours = None
    if asked.price:
        low, high = (premium(each, slow.step_time, fast.step_time) for each in (asked.price.low, asked.price.high))
        steps = asked.workload.tokens / asked.workload.tokens_per_step
        rate, hours = (low, high), steps * fast.step_time / HOUR * asked.cluster.world_size
    lifetime = owned and owned.owned_usd_per_hour * assumed.utilisation * assumed.life / HOUR
    return Premium(
        faster=fast.question.cluster.node.fabric.name,
        slower=slow.question.cluster.node.fabric.name,
        step_times=(fast.step_time, slow.step_time),
        plans=(fast.name, slow.name),
        usd_per_gpu_hour=rate,
        usd_of_run=(rate[0] * hours, rate[1] * hours) if rate and hours is not None else None,
        usd_per_owned_gpu=premium(lifetime, slow.step_time, fast.step_time) if lifetime else None,
    )
