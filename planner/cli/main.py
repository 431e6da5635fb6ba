"""The command line's front door: finds a command, runs it, and turns every failure into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from planner.cli import extensions
from planner.cli.failures import exit_code_of
from planner.errors import unknown_name

COMMANDS = {
    "recommend": "Rank the parallelism plans for a model on a cluster, and say why the best is best.",
    "fits": "Say whether a plan fits in memory, what dominates, and which dial to turn.",
    "min-gpus": "Say how few GPUs of each kind a model needs, to fit and to finish in time.",
    "scale": "Say how far a model scales on a node type, for one or several networks.",
    "mixed": "Say how to use a cluster of unequal nodes: uneven work, or without the slow ones.",
    "max": "Say the longest sequence, largest batch or model that fits a cluster, and the fastest.",
    "compare": "Set plans, clusters, networks, methods or models side by side, or say what a change would do.",
    "emit": "Write the files that run a plan, for a trainer and a launcher.",
    "import": "Read a framework's settings as a plan, and say what it will do.",
    "explain": "Show every term of a plan's time and memory with its value, formula and source.",
    "simulate": "Play one step of a plan: what each pipeline rank does, when, and what it holds.",
    "check": "Compare the closed forms of a plan with its simulation, term by term.",
    "diagnose": "Say why a run is slow, out of memory or stuck, and what to change.",
    "validate": "Score predictions of collectives against a table of measured ones.",
    "budget": "Say what a whole run takes: days, money, energy, checkpoints under failures, rent or buy.",
    "pool": "Divide GPUs among several jobs: fixed nodes, shared nodes, or a pool over a fabric.",
    "feed": "Say what storage, loaders and host have to keep up with, and what launches and the batch do.",
    "show": "Print what the planner read from a model, accelerator, node type, network or stack.",
    "ls": "List the catalogue: models, GPUs, nodes, networks, stacks.",
    "topo": "Show how the parallel groups of a cluster are wired.",
}
"""Command -> its line in the help. The module planner.cli.<command> is imported only when the command runs."""


class Commands(click.Group):
    """A group that imports a command when it is called, so that `planner --help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Own commands in the order of use, then those of installed extensions."""
        return [*COMMANDS, *extensions.installed()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; raises SpecError for an unknown name and MissingExtra where something has to be installed."""
        if cmd_name in COMMANDS:
            name = "imports" if cmd_name == "import" else cmd_name.replace("-", "_")  # import is a word of Python
            command: click.Command = getattr(import_module(f"planner.cli.{name}"), name)
            return command
        known = [*COMMANDS, *extensions.EXTRAS, *extensions.installed()]
        if cmd_name not in known:
            raise unknown_name("command", cmd_name, known)
        return extensions.load(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table rather than from the modules."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *extensions.installed().items()])
        missing = {k: v for k, v in extensions.EXTRAS.items() if k not in extensions.installed()}
        if missing:
            with formatter.section("With an extra installed"):
                formatter.write_dl([(name, extensions.how_to_install(name)) for name in missing])

    def main(self, args: Sequence[str] | None = None, prog_name: str = "planner", **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run a command line and leave the process with its exit code.

        click's own `main` would print several lines for a usage error and call a closed pipe a failure.
        """
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # a name that the terminal's encoding lacks is no failure
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no large matrices here, and starting threads takes time
        self._main_shell_completion(extra, prog_name)
        arguments = sys.argv[1:] if args is None else list(args)
        sys.exit(exit_code_of(lambda: self._run(arguments, prog_name, extra)))

    def _run(self, arguments: list[str], prog_name: str, extra: dict[str, Any]) -> int:
        try:
            with self.make_context(prog_name, arguments, **extra) as context:
                self.invoke(context)
        except click.exceptions.Exit as left:
            return left.exit_code
        return 0


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"planner {version('planner')}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print it.")
def main() -> None:
    """Which parallelism to train a model with, how fast it will be, what it costs, and whether it fits.

    Start with:  planner recommend llama-3.1-8b 2xdgx-h100
    """
