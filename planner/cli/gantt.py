"""The drawing of a step in the terminal."""

from __future__ import annotations

import os

import click

from planner.cli.printing import window_width
from planner.explain.gantt import gantt
from planner.simulate.simulation import Simulation

WIDEST = 160
"""Columns of the drawing at most: those of a pipe or file have no end."""


def print_gantt(simulation: Simulation) -> None:
    """The drawing on stdout, as wide as the window; in colours where they are allowed (a terminal without NO_COLOR)."""
    from rich.console import Console

    width = min(window_width(), WIDEST)
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto", highlight=False)
    with console.capture() as captured:
        console.print(gantt(simulation, width), soft_wrap=True)
    click.echo(captured.get(), nl=False)
