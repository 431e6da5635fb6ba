"""`planner topo`: how a cluster is wired, as its parallel groups feel it, from a description or from a dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.cli.groups import print_groups
from planner.cli.options import cluster_argument, json_option, network_option
from planner.cli.printing import note, print_json, whole_line

OF_DUMPS = ("gpu", "nodes", "toml", "force")
"""Options that only a dump takes."""
gpu_option = click.option(
    "--gpu", metavar="NAME", help="Accelerator of a dump that does not name it, such as h100-sxm."
)


@click.group()
def topo() -> None:
    """Show how the parallel groups of a cluster are wired, and check what a machine says of itself."""


@topo.command(short_help="Print what one GPU gets of the network in each parallel group.")
@cluster_argument
@network_option
@click.option("--tp", type=click.IntRange(1), metavar="N", help="Tensor-parallel degree of the layout.")
@click.option("--pp", type=click.IntRange(1), metavar="N", help="Pipeline stages of the layout.")
@click.option("--cp", type=click.IntRange(1), metavar="N", help="Context-parallel degree of the layout.")
@click.option("--dp-replicate", type=click.IntRange(1), metavar="N", help="Replicas of the sharded model.")
@click.option("--rank-order", default="tp_cp_dp_pp", show_default=True, metavar="ORDER", help="Axes, innermost first.")
@gpu_option
@click.option("--nodes", type=click.IntRange(1, 100_000), metavar="N", help="So many hosts like a dump's [1].")
@click.option("--toml", type=click.Path(path_type=Path), metavar="FILE", help="Write a dump's hosts as a cluster file.")
@click.option("--force", is_flag=True, help="Replace the file of --toml.")
@json_option
def show(cluster: str, network: str | None, rank_order: str, as_json: bool, **asked: Any) -> None:
    """Print what one GPU gets in each parallel group of CLUSTER while the sister groups talk too.

    Without degrees: tensor groups of 1, 2, 4 ... GPUs up to a node, the rest data-parallel. In place of CLUSTER a file
    may stand that a machine printed: nvidia-smi topo -m, NCCL's topology XML or graph lines; its node is made first.
    """
    from planner.cli.topo_dump import is_dump, show_dump

    degrees = {name: asked[name] for name in ("tp", "pp", "cp", "dp_replicate") if asked[name] is not None}
    of_dump = {name: asked[name] for name in OF_DUMPS}
    if is_dump(cluster):
        return show_dump(
            Path(cluster), network=network, degrees=degrees, rank_order=rank_order, as_json=as_json, **of_dump
        )
    for name in OF_DUMPS:
        if of_dump[name]:
            raise click.UsageError(f"--{name} is for a file that a machine printed, and {cluster} is a cluster")
    return _show_cluster(cluster, network, degrees, rank_order, as_json=as_json)


def _show_cluster(
    cluster: str, network: str | None, degrees: dict[str, int], rank_order: str, *, as_json: bool
) -> None:
    from dataclasses import asdict

    from planner.answer.question import machines_of
    from planner.answer.wiring import layouts, rank_order_of, wiring
    from planner.topology.describe import describe

    machines = machines_of(cluster, network)
    plans = layouts(machines, degrees)
    groups = list(wiring(machines, plans, rank_order_of(rank_order)))
    if as_json:
        rows = [asdict(group) for group in groups]
        return print_json({"schema_version": 1, "cluster": machines.name, "gpus": machines.world_size, "groups": rows})
    for remark in machines.notes:
        note(f"note: {remark}")
    for line in describe(machines):
        whole_line(line)
    print_groups(groups)
    return None


@topo.command(short_help="Say what looks wrong in what a machine printed.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@gpu_option
@json_option
def check(files: tuple[Path, ...], gpu: str | None, as_json: bool) -> None:
    """Say what looks wrong in what a machine printed, why, and which command to run next.

    Each FILE holds what nvidia-smi topo -m, nvidia-smi nvlink -s, ibstat, ibv_devinfo or show_gids printed, NCCL's
    topology XML, a log with NCCL_DEBUG=INFO, or several of these. Files of different kinds are taken as one host's.
    """
    from planner.cli.topo_dump import check_dumps

    check_dumps(files, gpu, as_json=as_json)
