"""The table of what each parallel group gets of the links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from planner.cli.printing import Heading, say, table

if TYPE_CHECKING:
    from planner.answer.wiring import GroupWiring

HEADINGS = (
    Heading("layout", left=True),
    Heading("group", left=True),
    Heading("ranks"),
    Heading("in one\ndomain", 2),
    Heading("inside\n(GB/s)"),
    Heading("between\n(GB/s)"),
    Heading("ring bus\n(GB/s)"),
    Heading("latency\n(us)", 3),
)


def print_groups(groups: Iterable[GroupWiring]) -> None:
    """What each group gets, as a table; nothing where no group has more than one rank."""
    rows = [_row(group) for group in groups]
    if rows:
        say()
        table(HEADINGS, rows)
        say("Nominal bandwidth of one GPU, one direction; a domain is what one switch joins: a node or a rack.")


def _row(group: GroupWiring) -> list[str]:
    return [
        group.layout,
        group.group,
        str(group.ranks),
        str(group.in_one_domain),
        _number(group.inside_gb_per_s),
        _number(group.between_gb_per_s),
        _number(group.bus_gb_per_s),
        f"{group.latency_us:.1f}",
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
