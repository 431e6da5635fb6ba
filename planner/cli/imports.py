"""`planner import`: what other programs wrote, read as the planner's own."""

from __future__ import annotations

import click

from planner.cli.import_nccl_tests import nccl_tests
from planner.cli.import_plan import plan
from planner.cli.import_steps import steps


@click.group("import")
def imports() -> None:
    """Read what other programs wrote."""


imports.add_command(plan)
imports.add_command(nccl_tests)
imports.add_command(steps)
