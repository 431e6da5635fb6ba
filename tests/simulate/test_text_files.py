"""Files written in parts: whole or not at all, and only files are replaced."""

import gzip
import os
import stat
import threading

import pytest

from planner.errors import FileFormatError
from planner.simulate.text_files import write_parts

PARTS = ["one ", "zwö\n", "", "three\n"]


def broken():
    yield "part"
    raise KeyboardInterrupt


def test_parts_follow_each_other(tmp_path):
    write_parts(tmp_path / "new" / "a.txt", PARTS)
    assert (tmp_path / "new" / "a.txt").read_text(encoding="utf-8") == "one zwö\nthree\n"
    assert stat.S_IMODE((tmp_path / "new" / "a.txt").stat().st_mode) == 0o644
    assert os.listdir(tmp_path / "new") == ["a.txt"]


def test_a_name_in_gz_is_compressed_and_the_same_each_time(tmp_path):
    write_parts(tmp_path / "a.gz", PARTS)
    write_parts(tmp_path / "b.gz", iter(PARTS))
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == "".join(PARTS)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_an_interruption_leaves_the_old_file_alone(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_parts(tmp_path / "a.txt", broken())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to("a.txt")
    write_parts(tmp_path / "link", ["new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_pipe_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text(encoding="utf-8")))
    reader.start()
    write_parts(tmp_path / "pipe", PARTS)
    reader.join()
    assert read == ["".join(PARTS)]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFormatError, match=r"file/a\.json: cannot be written: Not a directory"):
        write_parts(tmp_path / "file" / "a.json", PARTS)
    with pytest.raises(FileFormatError, match="cannot be written: Is a directory"):
        write_parts(tmp_path, PARTS)
