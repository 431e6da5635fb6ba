"""A recommendation printed for people: one sentence, the table, the reasons."""

from __future__ import annotations

from collections.abc import Mapping

from planner.answer.ranked_plan import RankedPlan
from planner.answer.recommendation import Recommendation, format_rate
from planner.cli.printing import Heading, say, table
from planner.explain.words import RECOMPUTE_NAMES, SCHEDULE_NAMES, extras, legend
from planner.quantities import GIB, format_count, format_seconds, three_digits
from planner.spec.plan import Recompute, Schedule

MEMORY = "memory:"
"""Begins the search's reasons for plans that are legal but too large."""
REJECTIONS_SHOWN = 4
SECONDS_PER_DAY = 86400.0


def print_ranking(answer: Recommendation) -> None:
    """The answer, its evidence and its reasons on stdout."""
    say(answer.sentence)
    say()
    table(_headings(answer), [_row(plan) for plan in answer.plans], best=True)
    say()
    if any(plan.tie for plan in answer.plans):
        say("~ ties with the best: the chance that either is faster is under 80 %.", indent="  ")
    explained = legend([plan.plan for plan in answer.plans])
    if explained:
        say(f"names: {'; '.join(explained)}", indent="  ")
    for title, text in _remarks(answer):
        say(f"{title}: {text}", indent="  ")


def _headings(answer: Recommendation) -> list[Heading]:
    asked = answer.question
    peak = float(asked.cluster.accelerator.peak_flops(asked.workload.precision)) / 1e12
    return [
        Heading("#", 1),
        Heading("plan", 1, left=True),
        Heading("tp", 5),
        Heading("pp", 5),
        Heading("cp", 6),
        Heading("ep", 6),
        Heading("dp_shard", 5),
        Heading("dp_replicate", 6),
        Heading("micro-batch\nx number", 3),
        Heading("schedule", 4, left=True),
        Heading("recompute", 3, left=True),
        Heading("step time\n(s)", 1),
        Heading("interval,\n80 % (s)", 2),
        Heading(f"{answer.best.rate[0]}\ntotal", 2),
        Heading(f"{answer.best.rate[0]}\nper GPU", 2),
        Heading(f"MFU (% of\n{peak:,.0f} TFLOP/s)", 3),
        Heading("memory per\nGPU (GiB)", 1),
        Heading("fits", 1, left=True),
        Heading("USD per\nMtok", 3),
        Heading("also", 2, left=True),
    ]


def _row(ranked: RankedPlan) -> list[str]:
    plan, interval, price = ranked.plan, ranked.interval, ranked.usd_per_million_tokens
    return [
        f"{ranked.rank}{'~' if ranked.tie else ''}",
        ranked.name,
        *(str(degree) for degree in (plan.tp, plan.pp, plan.cp, plan.ep, plan.dp_shard, plan.dp_replicate)),
        f"{plan.micro_batch_size} x {plan.num_microbatches}",
        SCHEDULE_NAMES[Schedule(int(plan.schedule))],
        RECOMPUTE_NAMES[Recompute(int(plan.recompute))],
        three_digits(ranked.step_time),
        f"{three_digits(interval.low)}-{three_digits(interval.high)}",
        format_rate(ranked.rate[1]),
        format_rate(ranked.rate[2]),
        f"{100 * float(ranked.speed.mfu):.1f}",
        f"{ranked.peak / GIB:.1f}",
        ranked.verdict.name.lower().replace("_", " "),
        "-" if price is None else _range(three_digits(price[0]), three_digits(price[1])).replace(" to ", "-"),
        extras(plan),
    ]


def _remarks(answer: Recommendation) -> list[tuple[str, str]]:
    """Titles and sentences below the table: the next plan, what limits the best, the other families, the rest."""
    following = len(answer.plans[1:2])
    return [
        *(("next", reason) for reason in answer.reasons[:following]),
        *_simpler(answer),
        ("limit", answer.limit),
        ("runs with", ", ".join(answer.targets) or "no trainer known here: --target T searches what T can run"),
        *(("instead", reason) for reason in answer.reasons[following:]),
        ("fit", _fitting(answer)),
        *_illegal(answer),
        *_cost(answer),
    ]


def _simpler(answer: Recommendation) -> list[tuple[str, str]]:
    """A plan that ties with the best and asks for less."""
    plan = answer.simpler
    if plan is None:
        return []
    slower = plan.step_time / answer.best.step_time - 1
    return [("simpler", f"{plan.name} ties, with {slower:.1%} more time: {format_seconds(plan.step_time)} per step")]


def _fitting(answer: Recommendation) -> str:
    """How many plans fit, and what the others fail by."""
    failed = {reason.removeprefix(MEMORY).strip(): n for reason, n in answer.rejected.items() if MEMORY in reason}
    named = _commonest({f"{reason} ({n:,})": n for reason, n in failed.items()})
    return f"{answer.feasible:,} of {answer.evaluated:,} legal plans" + (
        f"; the others need too much: {named}" if named else ""
    )


def _illegal(answer: Recommendation) -> list[tuple[str, str]]:
    """What made plans illegal. Not how often: parts of plans are counted there, long before there are whole ones."""
    named = _commonest({reason: n for reason, n in answer.rejected.items() if MEMORY not in reason})
    return [("not legal", named)] if named else []


def _commonest(counts: Mapping[str, int]) -> str:
    """The commonest reasons."""
    reasons = sorted(counts, key=lambda reason: (-counts[reason], reason))
    more = [f"and {len(reasons) - REJECTIONS_SHOWN} more"] if len(reasons) > REJECTIONS_SHOWN else []
    return "; ".join(reasons[:REJECTIONS_SHOWN] + more)


def _cost(answer: Recommendation) -> list[tuple[str, str]]:
    """What the whole run takes, when its tokens were given."""
    run, asked = answer.best.run, answer.question
    if run is None:
        return []
    duration = format_seconds(SECONDS_PER_DAY * run.days)
    text = f"{format_count(run.tokens)} tokens take {duration}, {run.gpu_hours:,.0f} GPU-hours"
    if asked.price:
        price = asked.price
        date = f", prices of {price.date}" if price.date else ""
        money = _range(f"{run.usd_low:,.0f}", f"{run.usd_high:,.0f}")
        text += f", {money} USD (at {_range(f'{price.low:g}', f'{price.high:g}')} USD per GPU-hour{date})"
    return [("run", text)]


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
