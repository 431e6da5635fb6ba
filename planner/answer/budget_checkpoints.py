"""Checkpoints under failures, and spot instances: how often to save, and what is left of the time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from planner.answer.budget_assumptions import DAY, Assumptions
from planner.answer.ranked_plan import RankedPlan
from planner.economics.checkpoints import daly_interval, first_order_loss, transfer_time, young_interval
from planner.economics.failure_simulation import FAILURES, best_played_interval, failure_gaps, played_goodput
from planner.economics.failures import goodput, joint_mtbf, useful_price
from planner.errors import SpecError
from planner.estimate.parameters import trained_parameters
from planner.estimate.stages import stages
from planner.estimate.states import byte_costs
from planner.quantities import Bytes, Scalar, Seconds, format_seconds
from planner.spec.plan import Plan

LEAST_GOODPUT = 0.01
"""Below it a run makes no headway worth a plan."""


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of a job with failures: what one takes, how often it pays, and what is left of the time.

    `restart` is until work goes on, the reading of the checkpoint included. `interval` is Daly's in whole optimizer
    steps, `goodput` the share of the time that lasts at it; what is `simulated` comes from failures played one by one.
    """

    size: Bytes
    write: Seconds
    restart: Seconds
    mtbf: Seconds
    young: Seconds
    daly: Seconds
    steps: int
    interval: Seconds
    goodput: Scalar
    simulated_goodput: Scalar
    simulated_best_interval: Seconds
    simulated_best_goodput: Scalar

    @property
    def first_order_loss(self) -> Scalar:
        """Share of the time lost, to first order."""
        return first_order_loss(self.interval, write=self.write, restart=self.restart, mtbf=self.mtbf)

    def goodput_at(self, interval: Seconds) -> Scalar:
        """What another interval would leave."""
        return float(goodput(interval, write=self.write, restart=self.restart, mtbf=self.mtbf))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size_gb": self.size / 1e9,
            "write_s": self.write,
            "restart_s": self.restart,
            "failures_per_day": DAY / self.mtbf,
            "mtbf_s": self.mtbf,
            "young_interval_s": self.young,
            "daly_interval_s": self.daly,
            "interval_s": self.interval,
            "interval_steps": self.steps,
            "goodput": self.goodput,
            "first_order_loss": self.first_order_loss,
            "simulated_goodput": self.simulated_goodput,
            "simulated_best_interval_s": self.simulated_best_interval,
            "simulated_best_goodput": self.simulated_best_goodput,
        }


def checkpoint_size(ranked: RankedPlan) -> Bytes:
    """Bytes of a checkpoint: trained weights, their master copy and the optimizer's states, each once."""
    asked, whole = ranked.question, Plan().columns()
    trained = trained_parameters(asked.model, whole, asked.workload, stages(asked.model, whole))
    costs = byte_costs(ranked.plan.columns(), asked.workload, asked.stack)
    parameters = float(trained.dense[0, 0] + trained.experts[0, 0])
    return parameters * float(np.ravel(costs.weight + costs.optimizer)[0])


def checkpoints(ranked: RankedPlan, assumed: Assumptions, mtbf: Seconds, *, seed: int) -> Checkpoints:
    """Checkpoints of a plan at a mean time between failures. Raises SpecError where work never lasts."""
    size = checkpoint_size(ranked)
    write = transfer_time(size, assumed.storage)
    restart = assumed.restart + write
    young, daly = float(young_interval(write, mtbf)), float(daly_interval(write, mtbf))
    steps = max(1, round(daly / ranked.step_time))
    interval = steps * ranked.step_time
    left = float(goodput(interval, write=write, restart=restart, mtbf=mtbf))
    if left < LEAST_GOODPUT:
        raise SpecError(
            f"the run makes no headway: it is stopped every {format_seconds(mtbf)}; a step takes "
            f"{format_seconds(ranked.step_time)}, a checkpoint {format_seconds(write)}, "
            f"a restart {format_seconds(restart)}"
        )
    gaps = failure_gaps(mtbf, FAILURES, seed)
    best = best_played_interval(gaps, write=write, restart=restart, start=young)
    return Checkpoints(
        size=size,
        write=write,
        restart=restart,
        mtbf=mtbf,
        young=young,
        daly=daly,
        steps=steps,
        interval=interval,
        goodput=left,
        simulated_goodput=played_goodput(gaps, interval, write=write, restart=restart),
        simulated_best_interval=best,
        simulated_best_goodput=played_goodput(gaps, best, write=write, restart=restart),
    )


@dataclass(frozen=True)
class Spot:
    """Spot instances that are taken away now and then, against instances on demand.

    Prices are USD per GPU and hour of work that lasts, low and high; `most_preemptions_per_day` is where both cost the
    same.
    """

    checkpoints: Checkpoints
    preemptions_per_day: float
    discount: float
    usd_per_useful_hour: tuple[float, float] | None
    on_demand_usd_per_useful_hour: tuple[float, float] | None
    most_preemptions_per_day: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"checkpoints": self.checkpoints.as_dict()}


def spot(ranked: RankedPlan, assumed: Assumptions, on_demand: Checkpoints, *, seed: int) -> Spot | None:
    """Spot instances, where preemptions were given; failures come on top."""
    if assumed.preemption_gap is None:
        return None
    ours = checkpoints(ranked, assumed, joint_mtbf(assumed.mtbf, assumed.preemption_gap), seed=seed)
    price, share = ranked.question.price, 1 - assumed.spot_discount

    def useful(part: Scalar, left: Scalar) -> tuple[float, float] | None:
        factor = useful_price(part, left)
        return (price.low * factor, price.high * factor) if price else None

    return Spot(
        checkpoints=ours,
        preemptions_per_day=DAY / assumed.preemption_gap,
        discount=assumed.spot_discount,
        usd_per_useful_hour=useful(share, ours.goodput),
        on_demand_usd_per_useful_hour=useful(1.0, on_demand.goodput),
        most_preemptions_per_day=_even_rate(on_demand, share),
    )


def _even_rate(on_demand: Checkpoints, share: Scalar) -> float:
    """Preemptions a day at which the discount is used up, found by halving."""
    low, high = 0.0, DAY
    for _ in range(60):
        middle = (low + high) / 2
        mtbf = float(joint_mtbf(on_demand.mtbf, DAY / middle))
        interval = float(daly_interval(on_demand.write, mtbf))
        left = float(goodput(interval, write=on_demand.write, restart=on_demand.restart, mtbf=mtbf))
        low, high = (middle, high) if left > share * on_demand.goodput else (low, middle)
    return low
