"""`planner validate`: predictions against what was measured."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options import json_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("runs", required=False, type=FILE, metavar="[FILE]")
@click.option(
    "--collectives",
    metavar="FILE",
    type=FILE,
    help="A CSV of measured collectives, as `planner import nccl-tests` writes, in place of FILE.",
)
@click.option(
    "--calibrate",
    type=click.Choice(["half"], case_sensitive=False),
    help="Predict each half of a table of collectives' sizes from the other half.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|FILE",
    help="Efficiency profile for runs on its accelerator; may be repeated.",
)
@click.option(
    "--kernels",
    type=click.Choice(["gemm", "attention", "moe", "nccl"], case_sensitive=False),
    help="FILE is a CSV of timed kernels of this kind.",
)
@json_option
def validate(
    *,
    runs: Path | None,
    collectives: Path | None,
    calibrate: str | None,
    profiles: tuple[str, ...],
    kernels: str | None,
    as_json: bool,
) -> None:
    """Score predictions against a table of measurements: of training runs, of collectives, or of kernels.

    FILE is a CSV of training runs (docs/validate.md). Every row is predicted from what it states alone, measured or
    not.
    """
    if (runs is None) == (collectives is None):
        raise click.UsageError("name one table: FILE, or --collectives FILE")
    if collectives is not None:
        if profiles or kernels:
            raise click.UsageError("--profile is for training runs" if profiles else "--kernels is for FILE")
        from planner.cli.validate_collectives import validate_collectives

        return validate_collectives(collectives, calibrate=calibrate is not None, as_json=as_json)
    if calibrate:
        raise click.UsageError("--calibrate is for --collectives")
    if kernels:
        if profiles:
            raise click.UsageError("--profile is for training runs")
        from planner.cli.validate_kernels import validate_kernels

        return validate_kernels(kernels, Path(str(runs)), as_json=as_json)
    from planner.cli.validate_runs import validate_runs

    return validate_runs(Path(str(runs)), profiles=profiles, as_json=as_json)
