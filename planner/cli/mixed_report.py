"""The ways to use a cluster of unequal nodes, printed for people."""

from __future__ import annotations

from planner.answer.mixed.answer import MixedAnswer
from planner.answer.mixed.ways import PartShare, Way
from planner.cli.printing import Heading, say, table
from planner.quantities import GIB, three_digits

SHOWN = 8
"""Ways in the table."""


def print_mixed(found: MixedAnswer) -> None:
    """The answer, every way in a table, the work of each part, and what is lost and gained."""
    say(found.sentence)
    say()
    table(_WAYS, [_way(found, way) for way in found.ways[:SHOWN]], best=True)
    if len(found.ways) > SHOWN:
        say(f"(and {len(found.ways) - SHOWN} slower ways in --json)", indent=" ")
    say()
    if any(found.ties(way) for way in found.ways):
        say("~ ties with the best: the chance that either is faster is under 80 %.", indent="  ")
    say(f"at one pace: {found.loss}", indent="  ")
    for verdict in found.verdicts:
        say(verdict, indent="  ")
    for name in found.missing:
        say(f"{name} alone: nothing fits", indent="  ")
    if len(found.best.shares) > 1:
        say()
        table(_PARTS, [_part(share) for share in found.best.shares])
    if found.how:
        say(f"to run it: {found.how}", indent="  ")


_WAYS = [
    Heading("#", 1),
    Heading("way", 1, left=True),
    Heading("GPUs", 2),
    Heading("plan", 1, left=True),
    Heading("step time\n(s)", 1),
    Heading("interval,\n80 % (s)", 3),
    Heading("tokens/s\ntotal", 2),
    Heading("tokens/s\nper GPU", 3),
    Heading("USD per\nMtok", 3),
    Heading("memory per\nGPU (GiB)", 4),
]
_PARTS = [
    Heading("part", 1, left=True),
    Heading("GPUs", 2),
    Heading("work: replicas x micro-batches of sequences, or layers by rank", 1, left=True),
    Heading("busy", 1),
    Heading("memory per\nGPU (GiB)", 2),
    Heading("of usable", 3),
]


def _way(found: MixedAnswer, way: Way) -> list[str]:
    price = way.usd_per_million_tokens
    cells = [three_digits(usd) for usd in price] if price else []
    return [
        f"{found.ways.index(way) + 1}{'~' if found.ties(way) else ''}",
        way.name,
        f"{way.gpus:,}",
        way.plan_name,
        three_digits(way.step_time),
        f"{three_digits(float(way.interval.low))}-{three_digits(float(way.interval.high))}",
        f"{way.tokens_per_s:,.0f}",
        f"{way.tokens_per_s / way.gpus:,.0f}",
        "-".join(dict.fromkeys(cells)) or "-",
        three_digits(max(share.peak for share in way.shares) / GIB),
    ]


def _part(share: PartShare) -> list[str]:
    usable = share.part.pools[0].node.accelerator.usable_memory
    return [
        share.part.name,
        f"{share.part.gpus:,}",
        share.words or "as every other",
        f"{share.busy:.0%}",
        three_digits(share.peak / GIB),
        three_digits(usable / GIB),
    ]
