"""`planner pool`: several jobs on fixed nodes, on shared nodes, and on a pool that a fabric joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.cli.options import cluster_argument, json_option, network_option, quiet_option
from planner.cli.printing import note, print_json, say, whole_line


@click.command()
@click.argument("jobs", type=click.Path(path_type=Path))
@cluster_argument
@click.option("--fabric", metavar="NAME,...", help="Networks that may join the pool, a port per GPU [the file's].")
@network_option
@click.option(
    "--objective",
    type=click.Choice(["makespan", "turnaround"], case_sensitive=False),
    default="makespan",
    show_default=True,
    help="All done soonest, or the mean from arrival to end.",
)
@click.option(
    "--restart-seconds",
    type=float,
    default=60.0,
    show_default=True,
    metavar="S",
    help="Until a job goes on with another number of GPUs, beside moving its state.",
)
@click.option("--usd-per-gpu-hour", type=float, metavar="USD", help="Price [the catalogue's range].")
@quiet_option
@json_option
def pool(jobs: Path, cluster: str, *, as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Divide the GPUs of CLUSTER among the JOBS of a file, and say whether disaggregation pays.

    JOBS is a TOML file with a [[jobs]] table for each job. Compares fixed nodes with shared nodes, a memory pool and a
    pool of GPUs that any job may draw from over a fabric.
    """
    from planner.answer.pool.answer import pool as answer
    from planner.answer.pool.trial import PoolChoices
    from planner.cli.pool_report import print_pool

    found = answer(jobs, cluster, PoolChoices(**chosen))
    if not quiet:
        note(f"assumed: {'; '.join(found.assumed)}")
    if as_json:
        return print_json(found.as_dict())
    print_pool(found)
    say()
    return whole_line(found.command)
