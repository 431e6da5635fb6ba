"""Long texts into a file in parts: compressed where the name ends so, and the old file or the new one, never a part."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from planner.errors import FileFormatError


def write_parts(path: Path, parts: Iterable[str]) -> None:
    """Write a text that comes in parts; a name that ends in .gz gets it compressed. Folders are made if missing.

    Raises FileFormatError where it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if not target.parent.exists():
            target.parent.mkdir(parents=True)
        if target.exists() and not target.is_file():  # a pipe or a device, which must not be replaced by a file
            with target.open("wb") as file:
                _fill(file, parts, compressed=path.suffix == ".gz")
        else:
            _replace(target, parts, compressed=path.suffix == ".gz")
    except OSError as error:
        raise FileFormatError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def _replace(target: Path, parts: Iterable[str], *, compressed: bool) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            _fill(file, parts, compressed=compressed)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _fill(file: BinaryIO, parts: Iterable[str], *, compressed: bool) -> None:
    """The parts as UTF-8; compressed without name and date, so that the same text gives the same bytes."""
    if not compressed:
        file.writelines(part.encode() for part in parts)
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=file, mtime=0) as packed:
        for part in parts:
            packed.write(part.encode())
