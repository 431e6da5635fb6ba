"""Reading hand-written TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from planner.errors import FileFormatError


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises FileFormatError, with the line at fault, if it cannot be read or parsed."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise FileFormatError("is not UTF-8 text", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not TOML: {error}", where=str(path)) from error
