"""Whatever a file holds, it is read or refused in a line; nothing crashes, hangs or takes much memory."""

import random
import resource
import time
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalogue.hardware import accelerator
from planner.dumps.cluster_toml import cluster_toml
from planner.dumps.findings import findings
from planner.dumps.node import node_of
from planner.dumps.reading import dump_of
from planner.dumps.text import read_text
from planner.dumps.words import lines_of
from planner.errors import FileFormatError, SpecError
from tests.dumps.samples import EXCERPTS, real
from tests.dumps.test_ib_devices import DEVINFO, GIDS, IBSTAT
from tests.dumps.test_nccl_graph import LOG, TREE
from tests.dumps.test_nccl_xml import SWITCHED

TEXTS = [real(path.name) for path in EXCERPTS] + [DEVINFO, GIDS, IBSTAT, LOG, TREE, SWITCHED]
TEXT = st.sampled_from(TEXTS)
WORDS = st.sampled_from(
    [
        *("GPU0", "GPU1", "NIC0", "X", "NV18", "SYS", "PIX", "<system>", "<cpu numaid='0'>", "<pci>", "float", "sum"),
        *("-1", "0", "9" * 400, "1e999", "nan", "N/A", "Link 0:", "25 GB/s", "CA 'x'", "Port 1:", "algbw  busbw", "\t"),
        *("=== System : maxBw 1.0 totalBw 1.0 ===", "+ NVL[1.0] - GPU/0-1000", "node1:1:2 [0] NCCL INFO ", "\n"),
    ]
)


def use(text):
    """Everything that is done with a dump, or one line that refuses it."""
    refusal = refused(text)
    assert refusal is None or (refusal.strip() and "\n" not in refusal and len(refusal) < 1000)


def refused(text):
    """Why a text is refused, or None where everything that is done with a dump is done."""
    try:
        dump = dump_of(text, path="x.txt")
        assert lines_of(dump)
        findings(dump)
        if dump.topology:
            cluster_toml(node_of(dump.topology, accelerator("h100-sxm")))
    except SpecError as error:
        return str(error)
    return None


@settings(max_examples=200)
@given(TEXT, st.floats(0, 1), st.floats(0, 1))
def test_any_part_of_a_file_is_read_or_refused(text, start, end):
    use(text[int(start * len(text) / 4) : int(end * len(text))])


@settings(max_examples=150)
@given(TEXT, st.randoms(use_true_random=False))
def test_lost_and_shuffled_lines_are_read_or_refused(text, chance):
    kept = [line for line in text.splitlines() if chance.random() < 0.8]
    if chance.random() < 0.3:
        chance.shuffle(kept)
    use("\n".join(kept))


@settings(max_examples=200)
@given(TEXT, st.lists(st.tuples(st.floats(0, 1), st.characters(codec="utf-8")), max_size=20))
def test_broken_characters_are_read_or_refused(text, slips):
    characters = list(text)
    for place, character in slips:
        characters[int(place * (len(characters) - 1))] = character
    use("".join(characters))


@settings(max_examples=150)
@given(st.lists(WORDS, max_size=60), st.sampled_from([" ", "  ", "\t"]))
def test_words_of_every_format_in_any_order_are_read_or_refused(words, blank):
    use(blank.join(words))


@settings(max_examples=100)
@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(data):
    use(data.decode("utf-8", "replace"))


@settings(max_examples=100)
@given(TEXT, st.integers(0, 10**30), st.randoms(use_true_random=False))
def test_absurd_numbers_are_read_or_refused(text, number, chance):
    words = text.split(" ")
    numbers = [i for i, word in enumerate(words) if word.strip().isdigit()]
    for i in chance.sample(numbers, min(len(numbers), 10)):
        words[i] = str(number)
    use(" ".join(words))


GARBAGE = {
    "one line": lambda size: "GPU0 X " + "x" * size,
    "matrix": lambda size: "GPU0 X NV18 SYS\n" * (size // 16),
    "wide matrix": lambda size: ("\t" + "GPU0 " * 300 + "\n" + "GPU0 " + "SYS " * 5000 + "\n") * (size // 21_500),
    "log": lambda size: "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer\n" * (size // 72),
    "capitals": lambda size: "n:1:2 [0] NCCL INFO " + "A1_ " * (size // 4),
    "table": lambda size: "  1024  256  float  sum  -1  999  999  999  0\n" * (size // 46),
    "blanks": lambda size: "CA 'x'\nState:" + " " * size + "x\n",
    "colons": lambda size: "hca_id: x\n" + "state:: " * (size // 8),
    "dots": lambda size: "DEV PORT INDEX GID\n" + "." * size,
    "links": lambda size: "GPU 0: x\n" + "Link 0: 25 GB/s\n" * (size // 16),
    "xml": lambda size: "<system><cpu>" + "<pci busid='0'>" * (size // 15),
    "attributes": lambda size: "<system><cpu numaid='" + "0" * size,
    "bytes": lambda size: "".join(map(chr, random.Random(1).choices(range(32, 127), k=size))),
}
"""So many bytes that have the marks of a format and make no sense."""


def seconds(act):
    start = time.process_time()
    act()
    return time.process_time() - start


@pytest.mark.parametrize("kind", GARBAGE)
def test_two_megabytes_of_garbage_take_a_second_or_two(kind):
    assert seconds(partial(use, GARBAGE[kind](2_000_000))) < 4


def use_file(path):
    """As `use`, with the limits of a file."""
    with suppress(FileFormatError):
        use(read_text(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", GARBAGE)
def test_fifty_megabytes_of_garbage_take_seconds_and_little_memory(kind, tmp_path):
    path = tmp_path / "garbage.txt"
    path.write_text(GARBAGE[kind](50_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert seconds(lambda: use_file(path)) < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20
