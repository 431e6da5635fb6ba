import os
import stat

import pytest

from planner.emit import write
from planner.emit.write import write_files
from planner.errors import FileFormatError, SpecError

FILES = {"launch.sh": "#!/bin/sh\nexit 0\n", "plan.json": "{}\n", "trainer/model.py": "x = 1\n"}


def tree(folder):
    """Every file below a folder with its text."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def failing(monkeypatch, error, *, after=0):
    """Let os.replace do its work so many times, then fail."""
    real, calls = os.replace, []

    def replace(*arguments):
        calls.append(arguments)
        if len(calls) > after:
            raise error
        return real(*arguments)

    monkeypatch.setattr(write.os, "replace", replace)


def test_a_new_folder_has_the_files_and_nothing_else(tmp_path):
    paths = write_files(FILES, tmp_path / "a" / "run")
    assert tree(tmp_path) == {f"a/run/{name}": text for name, text in FILES.items()}
    assert paths == [tmp_path / "a" / "run" / name for name in FILES]


def test_scripts_can_be_executed_and_others_not(tmp_path):
    write_files(FILES, tmp_path / "run")
    modes = {name: stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) for name in FILES}
    assert modes == {"launch.sh": 0o755, "plan.json": 0o644, "trainer/model.py": 0o644}
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


def test_what_is_there_already_stays_and_only_the_first_is_named(tmp_path):
    (tmp_path / "plan.json").write_text("mine")
    (tmp_path / "other").write_text("mine too")
    with pytest.raises(SpecError, match=r"plan\.json is there already; --force replaces it"):
        write_files(FILES, tmp_path)
    assert tree(tmp_path) == {"plan.json": "mine", "other": "mine too"}


def test_a_link_that_leads_nowhere_is_there_too(tmp_path):
    (tmp_path / "launch.sh").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SpecError, match=r"launch\.sh is there already"):
        write_files(FILES, tmp_path)


def test_force_replaces_files_and_leaves_the_rest(tmp_path):
    (tmp_path / "plan.json").write_text("mine")
    (tmp_path / "other").write_text("mine too")
    write_files(FILES, tmp_path, force=True)
    assert tree(tmp_path) == {**FILES, "other": "mine too"}


def test_force_replaces_a_link_and_not_what_it_points_to(tmp_path):
    (tmp_path / "kept").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").symlink_to(tmp_path / "kept")
    write_files(FILES, tmp_path / "run", force=True)
    assert (tmp_path / "kept").read_text() == "mine"
    assert tree(tmp_path / "run") == FILES


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("make", [False, True])
def test_an_interrupted_new_folder_is_not_there(tmp_path, monkeypatch, error, make):
    if make:
        (tmp_path / "run").mkdir()
    failing(monkeypatch, error)
    with pytest.raises((FileFormatError, KeyboardInterrupt)):
        write_files(FILES, tmp_path / "run")
    assert [path.name for path in tmp_path.rglob("*")] == (["run"] if make else [])


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", range(len(FILES)))
def test_an_interrupted_replacement_leaves_everything_as_it_was(tmp_path, monkeypatch, error, after):
    (tmp_path / "plan.json").write_text("mine")
    (tmp_path / "other").write_text("mine too")
    failing(monkeypatch, error, after=after)
    with pytest.raises((FileFormatError, KeyboardInterrupt)):
        write_files(FILES, tmp_path, force=True)
    assert tree(tmp_path) == {"plan.json": "mine", "other": "mine too"}
    assert sorted(os.listdir(tmp_path)) == ["other", "plan.json"]


def test_a_failure_while_writing_aside_leaves_nothing(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_files({**FILES, "plan.json/inside": "x"}, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(FileFormatError, match="run: is no folder"):
        write_files(FILES, tmp_path / "run")
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_files(FILES, tmp_path / "run" / "below")


def test_a_folder_in_the_place_of_a_file_is_not_replaced(tmp_path):
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(FileFormatError, match="is a folder"):
        write_files(FILES, tmp_path, force=True)


def test_an_empty_folder_that_a_shell_stands_in_stays_that_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = os.stat(".").st_ino
    write_files(FILES, tmp_path)
    assert os.stat(tmp_path).st_ino == before
    assert tree(tmp_path) == FILES


def test_a_linked_folder_is_written_through_the_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_files(FILES, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert tree(tmp_path / "real") == FILES


def test_a_file_with_the_same_text_is_in_nobodys_way(tmp_path):
    write_files({"a": "1", "b": "2"}, tmp_path)
    write_files({"a": "1", "c": "3"}, tmp_path)
    assert (tmp_path / "c").read_text() == "3"
