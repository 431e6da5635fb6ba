import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.emit.quoting import comment, job_name, one_line, shell_word, yaml_text

yaml = pytest.importorskip("yaml")

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LINES = st.lists(TEXTS, max_size=4).map(lambda parts: "\n".join(parts) + "\n")


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_any_text_is_one_word_of_bash(text):
    line = f"printf %s {shell_word(text)}"
    assert "\n" not in line
    printed = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout
    assert printed.decode() == text


def test_bytes_of_a_path_that_are_no_text_stay_themselves():
    line = f"printf %s {shell_word(b'a'.decode() + chr(0xDCFF))}"
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout == b"a\xff"


@given(TEXTS | LINES, TEXTS | LINES)
def test_any_text_comes_back_from_yaml(key, value):
    data = {key: value, "list": [value, {"inner": value, key: [value]}], "number": 3, "yes": True}
    assert yaml.safe_load(yaml_text(data)) == data


@pytest.mark.parametrize("text", ["no", "1e3", "2026-01-01", "~", "", "*a", "!x", "- a", "a: b", "# a", "|", "\tx\n"])
def test_what_yaml_takes_for_something_else_stays_text(text):
    assert yaml.safe_load(yaml_text({"a": text, "b": [text]})) == {"a": text, "b": [text]}


def test_empty_lists_and_mappings_are_kept():
    data = {"a": [], "b": {}, "c": [[], {}]}
    assert yaml.safe_load(yaml_text(data)) == data


@given(TEXTS | LINES)
def test_no_text_leaves_its_comment(text):
    for line in comment(text):
        assert line.startswith("#")
        assert line.isprintable()


def test_a_long_comment_is_wrapped_and_complete():
    words = [f"word{i}" for i in range(100)]
    lines = comment(" ".join(words), indent="    ")
    assert all(line.startswith("    # ") and len(line) <= 120 for line in lines)
    assert " ".join(line.removeprefix("    # ") for line in lines).split() == words


@given(TEXTS)
def test_a_text_becomes_a_name_that_schedulers_take(text):
    name = job_name(text)
    assert 0 < len(name) <= 44
    assert name[0].isalpha()
    assert name.isascii()
    assert name == name.lower()
    assert all(each.isalnum() or each == "-" for each in name)
    assert not name.endswith("-")


@given(TEXTS)
def test_one_line_is_one_line(text):
    assert len(one_line(text).splitlines()) <= 1
