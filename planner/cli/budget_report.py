"""A budget printed for people: the answer, then a table for each of its parts."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answer.budget import Budget
from planner.answer.budget_checkpoints import Checkpoints, Spot
from planner.answer.budget_prices import Ownership, Premium
from planner.cli.printing import Heading, say, table
from planner.economics.cost_of_run import SECONDS_PER_DAY, RunCost
from planner.economics.energy import JOULES_PER_MWH
from planner.quantities import format_seconds, three_digits

UNKNOWN = "-"


def print_budget(found: Budget) -> None:
    """The whole budget on stdout."""
    say(found.sentence)
    say(f"plan: {found.ranked.words}, {format_seconds(found.ranked.step_time)} per step", indent="  ")
    say()
    table(_run_headings(), list(_runs(found)))
    say()
    _print_checkpoints(found.checkpoints)
    if found.ownership:
        say()
        _print_ownership(found.ownership)
    if found.premium:
        say()
        say(_premium(found.premium), indent="  ")
    if found.spot:
        say()
        _print_spot(found, found.spot)


def _run_headings() -> list[Heading]:
    return [
        Heading("run", 1, left=True),
        Heading("days", 1),
        Heading("GPU-hours", 1),
        Heading("rent (USD)", 1),
        Heading("energy\n(MWh)", 2),
        Heading("energy\n(USD)", 3),
    ]


def _runs(found: Budget) -> Iterator[list[str]]:
    for name, run in (("without failures", found.without_failures), ("with failures", found.with_failures)):
        yield [name, three_digits(run.days), f"{run.gpu_hours:,.0f}", _rent(found, run), *_energy(found, run)]
    if found.days:
        yield ["failures by chance, 9 of 10 runs", _range(*found.days), "", "", "", ""]
    yield ["error of the step time, 80 %", _range(*found.predicted_days), "", "", "", ""]


def _rent(found: Budget, run: RunCost) -> str:
    return _whole(run.usd_low, run.usd_high) if found.question.price else UNKNOWN


def _energy(found: Budget, run: RunCost) -> list[str]:
    used, usd = found.energy(run), found.energy_usd(run)
    return [UNKNOWN if used is None else three_digits(used / JOULES_PER_MWH), UNKNOWN if usd is None else f"{usd:,.0f}"]


def _print_checkpoints(points: Checkpoints) -> None:
    say(
        f"checkpoint: {points.size / 1e9:,.0f} GB, {format_seconds(points.write)} to write; a failure every "
        f"{format_seconds(points.mtbf)}, after which work goes on in {format_seconds(points.restart)}",
        indent="  ",
    )
    headings = [
        Heading("checkpoints", 1, left=True),
        Heading("interval\n(minutes)", 1),
        Heading("time\nadded (%)", 2),
        Heading("goodput\n(%)", 1),
    ]
    rows = [
        ("Young", points.young, points.goodput_at(points.young)),
        ("Daly", points.daly, points.goodput_at(points.daly)),
        (f"chosen: {points.steps:,} steps", points.interval, points.goodput),
        ("simulated: chosen", points.interval, points.simulated_goodput),
        ("simulated: best", points.simulated_best_interval, points.simulated_best_goodput),
    ]
    table(
        headings,
        [
            [name, three_digits(span / 60), f"{100 * (1 / left - 1):.2f}", f"{100 * left:.2f}"]
            for name, span, left in rows
        ],
    )


def _print_ownership(owned: Ownership) -> None:
    headings = [
        Heading("per GPU and hour of use", 1, left=True),
        Heading("USD", 1),
        Heading("buying breaks even\n(month)", 1),
    ]
    rows = [["owned", three_digits(owned.owned_usd_per_hour), ""]]
    if owned.rent_usd_per_hour and owned.break_even_months:
        ends = dict(zip(owned.rent_usd_per_hour, owned.break_even_months, strict=True))
        rows += [["rented", three_digits(rent), _month(month, owned.life_months)] for rent, month in ends.items()]
    table(headings, rows)


def _month(month: float | None, life: float) -> str:
    if month is None:
        return "never"
    return three_digits(month) if month <= life else f"{three_digits(month)}: after its {life:.0f} of use"


def _premium(found: Premium) -> str:
    fast, slow = found.step_times
    if fast == slow:
        return f"network: {found.faster} and {found.slower} are equally fast here; neither may cost more"
    money = ""
    if found.usd_per_gpu_hour and found.usd_of_run:
        run = _whole(*found.usd_of_run)
        money = f": it may cost {_range(*found.usd_per_gpu_hour)} USD more per GPU-hour, {run} USD over the run"
    owned = f", or {found.usd_per_owned_gpu:,.0f} USD per GPU that is bought" if found.usd_per_owned_gpu else ""
    return (
        f"network: {found.faster} takes {format_seconds(fast)} per step ({found.plans[0]}), {found.slower} "
        f"{format_seconds(slow)} ({found.plans[1]}){money}{owned}"
    )


def _print_spot(found: Budget, offer: Spot) -> None:
    headings = [
        Heading("instances", 1, left=True),
        Heading("stops\nper day", 1),
        Heading("checkpoints\n(minutes)", 1),
        Heading("goodput\n(%)", 1),
        Heading("days", 1),
        Heading("USD per GPU and\nuseful hour", 1),
    ]
    kinds = (
        ("on demand", found.checkpoints, offer.on_demand_usd_per_useful_hour),
        (f"spot, {offer.discount:.0%} off", offer.checkpoints, offer.usd_per_useful_hour),
    )
    rows = [
        [
            name,
            three_digits(SECONDS_PER_DAY / points.mtbf),
            three_digits(points.interval / 60),
            f"{100 * points.goodput:.2f}",
            three_digits(found.without_failures.days / points.goodput),
            _range(*price) if price else UNKNOWN,
        ]
        for name, points, price in kinds
    ]
    table(headings, rows)
    say(f"spot is cheaper up to {three_digits(offer.most_preemptions_per_day)} preemptions a day")


def _range(low: float, high: float) -> str:
    ends = three_digits(low), three_digits(high)
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _whole(low: float, high: float) -> str:
    ends = f"{low:,.0f}", f"{high:,.0f}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
