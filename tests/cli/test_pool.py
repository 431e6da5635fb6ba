import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "jobs.toml"
PAGE = (ROOT / "docs" / "pool.md").read_text(encoding="utf-8")


def test_first_line_is_the_answer_and_last_line_the_question(planner):
    result = planner("pool", EXAMPLE, "1xdgx-h100")
    assert result.exit_code == 0, result.stderr
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("3 jobs on 1xdgx-h100 (8 GPUs): best on ")
    assert "isaggregation" in first
    assert last == f"planner pool {EXAMPLE} 1xdgx-h100 --objective makespan --restart-seconds 60"
    for part in ("shared nodes", "pool over ib-ndr400", "pool over roce-100", "pretrain", "small"):
        assert part in result.stdout
    assert "60.0 s until a job goes on" in result.stderr
    again = planner(*last.split()[1:], "-q")
    assert (again.stdout, again.stderr) == (result.stdout, "")


def test_narrow_windows(planner):
    *lines, _ = planner("pool", EXAMPLE, "1xdgx-h100", "-q", COLUMNS="60").stdout.splitlines()
    assert max(map(len, lines)) <= 60


def test_every_key_of_the_json_and_the_file_is_documented(planner):
    data = json.loads(planner("pool", EXAMPLE, "1xdgx-h100", "-q", "--json", "--usd-per-gpu-hour", "2").stdout)
    assert data["schema_version"] == 1
    way = data["ways"][0]
    assert way["usd_range"] == pytest.approx([2 * 8 * way["makespan_h"]] * 2)
    job = way["jobs"][0]
    for key in (*data, *way, *job, *job["spans"][0]):
        assert f"`{key}`" in PAGE
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if " = " in line:
            assert f"`{line.split(' = ')[0]}`" in PAGE


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (("nowhere.toml", "1xdgx-h100"), 4, "nowhere.toml: cannot be read"),
        (("EXAMPLE", "1xdgx-h1000"), 2, "unknown node type"),
        (("EXAMPLE", "1xdgx-h100", "--fabric", "string"), 2, "--fabric: unknown network"),
        (("EXAMPLE", "1xdgx-h100", "--restart-seconds", "nan"), 2, "--restart-seconds"),
        (("EXAMPLE", "1xrtx-3090"), 3, "pretrain fits on no number of GPUs"),
    ],
)
def test_what_cannot_be_asked_gets_one_line(planner, line, code, words):
    result = planner("pool", *(EXAMPLE if each == "EXAMPLE" else each for each in line), "-q")
    assert result.exit_code == code
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
