"""Every failure of a command as one line on stderr and an exit code; a traceback only with PLANNER_DEBUG=1."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from planner.errors import PlannerError

INTERNAL_ERROR = 1
USAGE = 2
UNWRITABLE = 4
INTERRUPTED = 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What writing an answer to a full disk fails with."""
NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What click from 8.2 on raises for a group without a command: a help text, not a message of one line."""


def exit_code_of(command: Callable[[], int]) -> int:
    """Run a command; its exit code: 0 done, 1 our error, 2 usage, 3 no plan, 4 bad file, 5 does not fit.

    A reader that stops early (`planner ls models | head`) is not an error.
    """
    try:
        code = command()
        if sys.stdout is not None:  # None where it was closed before the start
            sys.stdout.flush()
        return code
    except PlannerError as error:
        return _fail(str(error), error.exit_code)
    except NO_ARGUMENTS as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        return _fail(_usage_line(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return _fail(f"the answer cannot be written: {error.strerror}", UNWRITABLE)
        where = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(
            f"internal error: {where}; please report it with the command line (PLANNER_DEBUG=1 shows where)",
            INTERNAL_ERROR,
        )


def _fail(message: str, code: int) -> int:
    if os.environ.get("PLANNER_DEBUG") == "1":
        traceback.print_exc()
    click.echo(f"planner: {' '.join(message.split())}", err=True)
    return code


def _usage_line(error: click.ClickException) -> str:
    """What was wrong, and whose help says what would be right."""
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    return f"{message} (see {context.command_path} --help)" if context else message
