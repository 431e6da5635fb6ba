import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.emit.reading.shell import _split, flags, processes, shell_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=1\nrun --a $A --b ${A}", ["run", "--a", "1", "--b", "1"]),
        ("run --a ${B:-4} --b ${C-5}", ["run", "--a", "4", "--b", "5"]),
        ("N=2; G=4\nW=$(($N * $G))\nrun $W", ["2;", "run", "8"]),
        ("ARGS=(\n  --a 1   # one\n  --b 2\n)\nrun ${ARGS[@]}", ["--a", "1", "--b", "2", "run", "${ARGS[@]}"]),
        ('ARGS=("--a 1" "--b")\n', ["--a", "1", "--b"]),
        ("run \\\n  --a 1 \\\n  --b", ["run", "--a", "1", "--b"]),
        ("# run --a 1\n", []),
        ("run $UNKNOWN $((UNKNOWN * 2))", ["run", "$UNKNOWN", "$((UNKNOWN*2))"]),
    ],
)
def test_words_of_scripts(text, words):
    if ";" in text:
        text = text.replace("; ", "\n")
        words = words[1:]
    assert shell_words(text) == words


def test_nothing_is_run_and_nothing_grows_without_end(tmp_path):
    text = f"A=$(touch {tmp_path / 'pwned'})\nB=$B$B\nrun --a $A --b $B `touch {tmp_path / 'pwned'}`\n"
    words = shell_words(text)
    assert (words[0], words[1], words[3]) == ("run", "--a", "--b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("start", ["", "B=$A$A\nA=$B$B\n", "B=xxxxxxxx\n"])
def test_values_do_not_grow_without_end(start):
    assert sum(map(len, shell_words(start + "B=$B$B\n" * 40 + "run $B"))) < 300_000


@given(st.text(alphabet=st.sampled_from("ab$ {}()=+-*/:'\"\\\n#[]@1"), max_size=80))
def test_any_text_has_words(text):
    assert all(isinstance(word, str) for word in shell_words(text))


def test_options_with_and_without_values():
    assert flags(["--a_b", "1", "2", "--c=3", "--d"]) == {"--a-b": ["1", "2"], "--c": ["3"], "--d": []}


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("torchrun --nnodes 4 --nproc_per_node=8 x.py", 32),
        ("torchrun --standalone --nproc-per-node 8 x.py", 8),
        ("torchrun --nproc-per-node 8 x.py", 8),
        ("deepspeed --num_gpus 8 x.py", 0),
        ("accelerate launch --num_processes 16 --num_machines 2 x.py", 16),
        ("deepspeed --num_nodes 2 --num_gpus 8 x.py", 16),
        ("torchrun --nnodes $N --nproc-per-node 8 x.py", 0),
    ],
)
def test_processes_that_a_command_starts(line, number):
    assert processes(flags(shell_words(line))) == number


@given(st.text(alphabet=st.sampled_from("ab$ '\"\\=-*{}\t"), max_size=30))
def test_words_are_those_of_the_shell_grammar_of_the_standard_library(line):
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    assert _split(line) == words


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_900_000,
        '"' + "a b " * 470_000 + '"',
        'run "' + r"a\\" * 600_000,
        "A=" + "x" * 90_000 + "\n" + "$A " * 20_000,
    ],
    ids=["one word", "one quoted word", "a quote without end", "a long value in many words"],
)
def test_long_texts_take_time_and_room_in_proportion(text):
    began = time.process_time()
    assert sum(map(len, shell_words(text))) < 12_000_000
    assert time.process_time() - began < 5


def test_a_number_sign_within_a_word_begins_no_comment():
    assert shell_words("run --name exp#1 # a comment") == ["run", "--name", "exp#1"]


def test_arithmetic_nested_beyond_all_limits_stays_as_it_is():
    text = f"$(({'-' * 9000}1))"
    assert shell_words(text) == [text]
