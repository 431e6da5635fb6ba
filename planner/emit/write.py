"""Files written together: all of them or none, and none over another's by accident."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from planner.emit.job import Files
from planner.errors import FileFormatError, SpecError

SCRIPT_MODE, TEXT_MODE, FOLDER_MODE = 0o755, 0o644, 0o755


def write_files(files: Files, folder: Path, *, force: bool = False) -> list[Path]:
    """Write texts into a folder (made if missing); texts that begin with `#!` become executable. Returns their paths.

    Raises SpecError, with nothing written, where a file is there already and `force` does not allow to replace it, and
    FileFormatError where something cannot be written. Whatever ends it early, an interruption too, leaves no new file
    behind and the old ones as they were.
    """
    _check(files, folder, force=force)
    try:
        _write(files, folder)
    except OSError as error:
        where = str(error.filename or folder)
        raise FileFormatError(f"cannot be written: {error.strerror or error}", where=where) from error
    return [folder / name for name in files]


def _check(files: Files, folder: Path, *, force: bool) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise FileFormatError("is no folder", where=str(folder))
    there = [folder / name for name, text in files.items() if _is_other(folder / name, text)]
    if there and not force:
        raise SpecError(f"{there[0]} is there already; --force replaces it", where="--force")
    for path in there:
        if path.is_dir():
            raise FileFormatError("is a folder, and a file of that name is to be written", where=str(path))


def _is_other(path: Path, text: str) -> bool:
    """Whether something else than the text is there."""
    same = path.is_file() and not path.is_symlink() and path.read_bytes() == _encoded(text)
    return os.path.lexists(path) and not same


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _write(files: Files, folder: Path) -> None:
    """Everything is written aside first. A new folder, or one that was empty, then appears in one step."""
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    whole = not folder.exists() or _can_be_replaced(folder)
    aside = Path(tempfile.mkdtemp(dir=folder.parent if whole else folder, prefix=f".{folder.name}-", suffix=".part"))
    try:
        for name, text in files.items():
            _write_one(aside / "new" / name, text)
        if whole:
            os.chmod(aside / "new", FOLDER_MODE)
            os.replace(aside / "new", folder)
        else:
            _move(files, aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _can_be_replaced(folder: Path) -> bool:
    """Whether another folder may take the place of this one: empty, and not the one that a shell stands in."""
    empty = not any(folder.iterdir())
    return empty and os.access(folder.parent, os.W_OK) and not os.path.samefile(folder, os.curdir)


def _write_one(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_encoded(text))
    path.chmod(SCRIPT_MODE if text.startswith("#!") else TEXT_MODE)


def _move(files: Files, aside: Path, folder: Path) -> None:
    """Put each file in its place; where that fails, or is interrupted, put back what was there."""
    parents = {parent for name in files for parent in (folder / name).parents if parent != folder}
    new = sorted((parent for parent in parents if not parent.exists()), key=lambda each: -len(each.parts))
    done: list[str] = []
    try:
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / "old" / name).parent.mkdir(parents=True, exist_ok=True)
            done.append(name)
            if os.path.lexists(folder / name):
                os.rename(folder / name, aside / "old" / name)
            os.replace(aside / "new" / name, folder / name)
    except BaseException:
        for name in done:
            _put_back(name, aside, folder)
        for parent in new:
            with suppress(OSError):  # it was not made yet
                parent.rmdir()
        raise


def _put_back(name: str, aside: Path, folder: Path) -> None:
    if os.path.lexists(aside / "old" / name):
        os.rename(aside / "old" / name, folder / name)
    elif not os.path.lexists(aside / "new" / name):
        (folder / name).unlink(missing_ok=True)
