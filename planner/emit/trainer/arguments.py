"""The trainer's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .data import TOKEN_TYPES
from .optimizer import LR_RULES
from .settings import PIPELINE_SCHEDULES, PRECISIONS


def _count(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(
        prog="trainer", description="Run a plan.json with plain PyTorch.", allow_abbrev=False
    )
    parser.add_argument("plan", type=Path, help="the plan.json to run")
    _add_run(parser)
    _add_learning(parser)
    _add_layout(parser)
    return parser.parse_args(arguments)


def _add_run(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("the run")
    run.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="[cuda where there is one]")
    run.add_argument("--shrink", action="store_true", help="the same degrees on a tiny model, to try a launch")
    run.add_argument("--steps", type=_count, default=20, help="optimizer steps in all [20]")
    run.add_argument("--timing-warmup", type=int, default=3, metavar="STEPS", help="left out of the summary [3]")
    run.add_argument("--seed", type=int, default=0, help="of parameters and synthetic data [0]")
    run.add_argument("--data", type=Path, metavar="FILE", help="token ids, flat binary [synthetic data]")
    run.add_argument("--data-type", choices=TOKEN_TYPES, default="uint16", help="of --data [uint16]")
    run.add_argument("--record", type=Path, default=Path("run.jsonl"), metavar="FILE", help="JSON lines [run.jsonl]")
    run.add_argument("--checkpoint", type=Path, metavar="DIR", help="save there, and resume from what is there")
    run.add_argument("--save-every", type=_count, default=500, metavar="STEPS", help="with --checkpoint [500]")
    run.add_argument("--keep", type=_count, default=2, metavar="N", help="newest checkpoints kept [2]")


def _add_learning(parser: argparse.ArgumentParser) -> None:
    learning = parser.add_argument_group("learning")
    learning.add_argument("--lr", type=float, default=3e-4, help="learning rate [3e-4]")
    learning.add_argument("--lr-warmup", type=int, default=0, metavar="STEPS", help="linear warm-up [0]")
    learning.add_argument(
        "--lr-rule",
        choices=LR_RULES,
        default="fixed",
        help="how the rate follows the batch from --lr-batch on: linear (SGD), sqrt (Adam) [fixed]",
    )
    learning.add_argument("--lr-batch", type=_count, metavar="N", help="sequences per step that --lr was chosen for")
    learning.add_argument("--weight-decay", type=float, default=0.1, help="[0.1]")
    learning.add_argument("--clip", type=float, default=1.0, metavar="NORM", help="of gradients; 0: no clipping [1]")


def _add_layout(parser: argparse.ArgumentParser) -> None:
    layout = parser.add_argument_group("other than the plan says")
    layout.add_argument("--precision", choices=PRECISIONS, help="[the plan's]")
    layout.add_argument("--schedule", choices=PIPELINE_SCHEDULES, help="of the pipeline [the plan's]")
    layout.add_argument("--compile", action=argparse.BooleanOptionalAction, help="[the plan's; never on a CPU]")
    layout.add_argument("--bucket-mb", type=float, default=25.0, help="gradient buckets of plain replicas [25]")
    layout.add_argument("--elastic", action="store_true", help="let the replicas follow the number of processes")
