"""What a whole run takes: days, GPU-hours, money and energy, with failures, rented or bought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.answer.budget_assumptions import HOUR, Assumptions, BudgetChoices, assumptions
from planner.answer.budget_checkpoints import Checkpoints, Spot, checkpoints, spot
from planner.answer.budget_prices import Ownership, Premium, network_premium, ownership
from planner.answer.question import Question
from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommend import answer
from planner.economics.cost_of_run import SECONDS_PER_DAY, RunCost, cost_of_run
from planner.economics.energy import JOULES_PER_MWH, energy, energy_cost
from planner.economics.failure_simulation import played_runs, spread
from planner.errors import SpecError
from planner.quantities import Joules, Scalar, Usd, format_count, three_digits

SCHEMA_VERSION = 1
MILLION = 1e6


@dataclass(frozen=True, eq=False)
class Budget:
    """A run's budget with its best plan.

    `without_failures` and `with_failures` are the run at steady speed and at the goodput of `checkpoints`; 9 of 10
    simulated runs take from the first to the second of `days` (None where their failures are too many to play).
    """

    ranked: RankedPlan
    assumed: Assumptions
    without_failures: RunCost
    with_failures: RunCost
    days: tuple[float, float] | None
    checkpoints: Checkpoints
    ownership: Ownership | None
    premium: Premium | None
    spot: Spot | None

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.ranked.question

    def energy(self, run: RunCost) -> Joules | None:
        """Energy of a run; None where the power is unknown."""
        return self.assumed.power and energy(self.assumed.power, run.device_time, self.assumed.pue)

    def energy_usd(self, run: RunCost) -> Usd | None:
        """What that energy costs; a rent has it in it."""
        used = self.energy(run)
        return used and energy_cost(used, self.assumed.electricity)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        run, asked, points = self.without_failures, self.question, self.checkpoints
        money = f", {_money(run.usd_low, run.usd_high)}" if asked.price else ""
        return (
            f"{format_count(run.tokens)} tokens of {asked.model.name} on {asked.cluster.name} take "
            f"{three_digits(run.days)} days, {run.gpu_hours:,.0f} GPU-hours{money}; with "
            f"{three_digits(SECONDS_PER_DAY / points.mtbf)} failures a day and checkpoints every "
            f"{three_digits(points.interval / 60)} minutes, {three_digits(self.with_failures.days)} days."
        )

    @property
    def predicted_days(self) -> tuple[float, float]:
        """80 % interval of the days with failures, as wide as that of the step time."""
        days, step = self.with_failures.days, self.ranked.step_time
        return days * float(self.ranked.interval.low) / step, days * float(self.ranked.interval.high) / step

    @property
    def command(self) -> str:
        """The whole question as one command line, assumptions included."""
        return f"{self.question.command('budget')} {self.assumed.options}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `planner budget`."""
        asked, taken = self.question, self.assumed
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            **asked.as_dict(),
            "answer": self.sentence,
            "plan": self.ranked.as_dict(),
            "without_failures": self._run(self.without_failures),
            "with_failures": self._run(self.with_failures),
            "simulated_days": self.days,
            "predicted_days": self.predicted_days,
            "checkpoints": self.checkpoints.as_dict(),
            "ownership": self.ownership and self.ownership.as_dict(),
            "premium": self.premium and self.premium.as_dict(),
            "spot": self.spot and self.spot.as_dict(),
            "power_kw_per_gpu": taken.power and taken.power / 1000,
            "pue": taken.pue,
            "storage_gb_per_s": taken.storage / 1e9,
            "assumed": [*asked.assumed, *taken.assumed],
            "notes": list(asked.notes),
        }

    def _run(self, run: RunCost) -> dict[str, Any]:
        used = self.energy(run)
        return {
            "tokens": run.tokens,
            "days": run.days,
            "gpu_hours": run.gpu_hours,
            "usd_range": [run.usd_low, run.usd_high] if self.question.price else None,
            "energy_mwh": used and used / JOULES_PER_MWH,
            "energy_usd": self.energy_usd(run),
        }


def budget(question: Question, chosen: BudgetChoices | None = None) -> Budget:
    """The budget of a run with the best plan.

    Raises SpecError where no tokens are asked for or an assumption cannot be, NoFeasiblePlan where nothing fits.
    """
    if not question.workload.tokens:
        raise SpecError("is needed: a run has so many tokens, such as 1T", where="--tokens")
    choices = chosen or BudgetChoices()
    assumed = assumptions(question, choices)
    ranked = answer(question, top=1).best
    points = checkpoints(ranked, assumed, assumed.mtbf, seed=choices.seed)
    owned, run = ownership(assumed, question.price), _cost(ranked, 1.0)
    times = played_runs(
        run.time, points.interval, write=points.write, restart=points.restart, mtbf=points.mtbf, seed=choices.seed
    )
    low, high = (0.0, 0.0) if times is None else spread(times)
    return Budget(
        ranked=ranked,
        assumed=assumed,
        without_failures=run,
        with_failures=_cost(ranked, points.goodput),
        days=None if times is None else (low / SECONDS_PER_DAY, high / SECONDS_PER_DAY),
        checkpoints=points,
        ownership=owned,
        premium=network_premium(ranked, choices.against, assumed, owned) if choices.against else None,
        spot=spot(ranked, assumed, points, seed=choices.seed),
    )


def _cost(ranked: RankedPlan, left: Scalar) -> RunCost:
    """The run where a share of the time lasts; its money is 0 where no price is known."""
    asked = ranked.question
    low, high = (asked.price.low, asked.price.high) if asked.price else (0.0, 0.0)
    return cost_of_run(
        asked.workload.tokens,
        float(ranked.speed.tokens_per_s) * left,
        asked.cluster.world_size,
        (low / HOUR, high / HOUR),
    )


def _money(low: Usd, high: Usd) -> str:
    """A range of money for people.

    >>> _money(501244.0, 1259408.0), _money(1234.5, 1234.5)
    ('0.501 to 1.26 M USD', '1,234 USD')
    """
    size, unit = (MILLION, "M USD") if high >= MILLION else (1.0, "USD")
    ends = [three_digits(each / size) for each in (low, high)]
    return f"{ends[0] if ends[0] == ends[1] else ' to '.join(ends)} {unit}"
