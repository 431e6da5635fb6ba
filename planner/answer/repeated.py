"""A command line that asks a question again as it was asked: what the user chose, and nothing that was assumed."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from planner.answer.choices import Choices


def repeated(verb: str, arguments: tuple[str, ...], choices: Choices, **own: object) -> str:
    """The command with its arguments, the options of the question that were chosen, and its `own` options.

    An own option that is True is a switch, one that is None or False is left out.

    >>> repeated("min-gpus", ("gpt2",), Choices(seq_len=1024), days=3, weak=True, strong=False)
    'planner min-gpus gpt2 --seq-len 1024 --days 3 --weak'
    """
    words = ["planner", verb, *arguments]
    for name, value in {**asdict(choices), **own}.items():
        if value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    return shlex.join(words)
