"""Commands of other packages: they join through the entry-point group `planner.commands`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

from planner.errors import PlannerError

EXTRAS = {"calibrate": "calibration", "tune": "calibration", "app": "app"}
"""Command -> the extra of the package that brings what it imports."""
SUMMARIES = {
    "app": "Explore plans by eye, in a browser.",
    "calibrate": "Measure this machine, and show what a profile rests on.",
}
"""Command -> its line in the help, so that the help imports none of them."""


class MissingExtra(PlannerError):
    """A command whose packages are not installed."""

    exit_code = 2


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="planner.commands")}


def installed() -> dict[str, str]:
    """Name of each registered command -> where it comes from, for the help."""
    return {
        name: SUMMARIES.get(name, f"From {point.module.partition('.')[0]}.")
        for name, point in sorted(_entry_points().items())
    }


def how_to_install(name: str) -> str:
    """The line that brings a missing command."""
    return f"pip install 'planner[{EXTRAS[name]}]'"


def load(name: str) -> click.Command:
    """The command of an entry point. Raises MissingExtra when it, or something that it imports, is not installed."""
    point = _entry_points().get(name)
    if point is None:
        raise MissingExtra(f"planner {name} is not installed; it comes with: {how_to_install(name)}")
    try:
        command: click.Command = point.load()
    except ModuleNotFoundError as error:
        hint = how_to_install(name) if name in EXTRAS else f"install {error.name}"
        raise MissingExtra(f"planner {name} needs {error.name}, which is not installed; {hint}") from error
    return command
