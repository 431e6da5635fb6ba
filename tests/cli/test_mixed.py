import json
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "mixed.md").read_text(encoding="utf-8")
POOLS = '[[pools]]\nnodes = 1\nnode = "dgx-h100"\n[[pools]]\nnodes = 1\nnode = "dgx-a100"\n'
JOB = ("--seq-len", "2048", "--global-batch-size", "192")


@pytest.fixture
def unequal(tmp_path):
    path = tmp_path / "unequal.toml"
    path.write_text(POOLS)
    return path


def test_first_line_is_the_answer_and_last_line_the_question(planner, unequal):
    result = planner("mixed", "llama-3.2-1b", unequal, *JOB)
    assert result.exit_code == 0, result.stderr
    first, *_, last = result.stdout.splitlines()
    assert re.match(
        r"Train llama-3\.2-1b on unequal with uneven (layers|micro-batches) on .+, [\d.]+ m?s per step "
        r"\(.+ to .+, \w+\), [\d,]+ tokens/s, "
        r"[\d.]+ times as fast as one pace for all and [\d.]+ times as fast as h100-sxm alone",
        first,
    )
    assert last.startswith("planner mixed llama-3.2-1b ")
    for part in ("one pace", "uneven micro-batches on", "h100-sxm alone", "a100-sxm-80gb alone", "waits", "without"):
        assert part in result.stdout
    assert planner(*last.split()[1:], "-q").stdout == result.stdout


def test_narrow_windows_and_money(planner, unequal):
    narrow = planner("mixed", "llama-3.2-1b", unequal, *JOB, "-q", COLUMNS="60").stdout
    *lines, question = narrow.splitlines()
    assert max(map(len, lines)) <= 60
    assert question.startswith("planner mixed")
    cheap = json.loads(planner("mixed", "llama-3.2-1b", unequal, *JOB, "-q", "--json", "--objective", "usd").stdout)
    prices = [way["usd_per_million_tokens_range"][1] for way in cheap["ways"]]
    assert prices == sorted(prices)


def test_every_key_of_the_json_is_documented(planner, unequal):
    data = json.loads(planner("mixed", "llama-3.2-1b", unequal, *JOB, "-q", "--json").stdout)
    assert data["schema_version"] == 1
    own = {"answer", "loss", "verdicts", "how", "ways", "nothing_fits", "assumed", "notes"}
    assert own <= data.keys()
    way = next(way for way in data["ways"] if way["loss_weights"])
    run = way["parts"][0]["replicas"][0]
    for key in (*own, *way, *way["parts"][0], *run):
        assert f"`{key}`" in PAGE
    done = sum(
        run["replicas"] * run["micro_batch_size"] * run["num_microbatches"]
        for part in way["parts"]
        for run in part["replicas"]
    )
    assert done == 192


def test_recommend_begins_with_the_answer_on_unequal_nodes(planner, unequal):
    whole = planner("recommend", "llama-3.2-1b", unequal, *JOB, "--top", "1", "-q")
    first = planner("mixed", "llama-3.2-1b", unequal, *JOB, "-q").stdout.splitlines()[0]
    assert whole.stdout.splitlines()[0] == first
    assert "all nodes at one pace" in whole.stdout
    data = json.loads(planner("recommend", "llama-3.2-1b", unequal, *JOB, "-q", "--json").stdout)
    assert data["mixed"]["answer"] == first
    targeted = planner("recommend", "llama-3.2-1b", unequal, *JOB, "-q", "--target", "accelerate").stdout
    assert targeted.startswith("Train llama-3.2-1b on unequal (16 GPUs) with ")
    plain = json.loads(planner("recommend", "llama-3.2-1b", "1xdgx-h100", *JOB, "-q", "--json").stdout)
    assert "mixed" not in plain


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (("llama-3.2-1b", "2xdgx-h100"), 2, "all nodes of 2xdgx-h100 are alike"),
        (("llama-3.1-405b", "UNEQUAL"), 3, "none of"),
        (("llama-3.2-1b", "UNEQUAL", "--precision", "fp8"), 2, "no fp8 matrix peak"),
        (("llama-3.2-1b", "UNEQUAL", "--objective", "memory"), 2, "compared by throughput or usd"),
        (("llama-3.2-1b", "nowhere.toml"), 4, "nowhere.toml"),
    ],
)
def test_what_cannot_be_asked_gets_one_line(planner, unequal, line, code, words):
    result = planner("mixed", *(unequal if each == "UNEQUAL" else each for each in line), "--quiet")
    assert result.exit_code == code
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
