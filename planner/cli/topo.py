"""`planner topo`: how a cluster is wired, as its parallel groups feel it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from planner.cli.options import cluster_argument, json_option, network_option
from planner.cli.printing import Heading, note, print_json, say, table, whole_line

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


@click.group()
def topo() -> None:
    """Show how the parallel groups of a cluster are wired."""


@topo.command(short_help="Print what one GPU gets of the network in each parallel group.")
@cluster_argument
@network_option
@click.option("--tp", type=click.IntRange(1), metavar="N", help="Tensor-parallel degree of the layout.")
@click.option("--pp", type=click.IntRange(1), metavar="N", help="Pipeline stages of the layout.")
@click.option("--cp", type=click.IntRange(1), metavar="N", help="Context-parallel degree of the layout.")
@click.option("--dp-replicate", type=click.IntRange(1), metavar="N", help="Replicas of the sharded model.")
@click.option("--rank-order", default="tp_cp_dp_pp", show_default=True, metavar="ORDER", help="Axes, innermost first.")
@json_option
def show(cluster: str, network: str | None, rank_order: str, as_json: bool, **degrees: int | None) -> None:
    """Print what one GPU gets in each parallel group of CLUSTER while the sister groups talk too.

    Without degrees: tensor groups of 1, 2, 4 ... GPUs up to a node, the rest data-parallel.
    """
    from dataclasses import asdict

    from planner.answer.question import machines_of
    from planner.answer.wiring import layouts, rank_order_of, wiring
    from planner.topology.describe import describe

    machines = machines_of(cluster, network)
    plans = layouts(machines, {name: degree for name, degree in degrees.items() if degree is not None})
    groups = list(wiring(machines, plans, rank_order_of(rank_order)))
    if as_json:
        rows = [asdict(group) for group in groups]
        return print_json({"schema_version": 1, "cluster": machines.name, "gpus": machines.world_size, "groups": rows})
    for remark in machines.notes:
        note(f"note: {remark}")
    for line in describe(machines):
        whole_line(line)
    if not groups:
        return None
    say()
    table(HEADINGS, [_row(group) for group in groups])
    return say("Nominal bandwidth of one GPU, one direction; a domain is what one switch joins: a node or a rack.")


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
