import json
import re
from pathlib import Path

LINE = ("feed", "llama-3.1-8b", "2xdgx-h100")
PAGE = (Path(__file__).parents[2] / "docs" / "feed.md").read_text(encoding="utf-8")
OWN = (
    "answer", "plan", "samples_per_s", "sample_bytes", "copies", "read_gb_per_s", "storage_gb_per_s",
    "workers_per_node", "host_memory_gb_per_s", "host_memory_bandwidth_gb_per_s", "keeps_up", "launching", "batch",
)  # fmt: skip


def test_first_line_is_the_answer_and_the_last_asks_the_same_again(planner):
    first = planner(*LINE, "--tokens", "1T", "--from-batch", "64", "--learning-rate", "1e-4")
    assert first.exit_code == 0, first.stderr
    assert re.match(r"llama-3\.1-8b on 2xdgx-h100 takes [\d,]+ tokens/s: .+ keeps up; the step ", first.stdout)
    again = planner(*first.stdout.splitlines()[-1].split()[1:])
    assert again.stdout == first.stdout
    assert "assumed" not in again.stderr


def test_tables_have_rates_launches_and_advice(planner):
    out = planner(*LINE, "--from-batch", "64", "-q").stdout
    for part in ("storage, each sample read once", "host memory, per node", "loader workers", "CUDA graphs"):
        assert part in out
    assert "batch: 2 times as large; learning rate 1.41 times (square root, Malladi et al. 2022 (Adam))" in out


def test_every_key_of_the_json_is_documented(planner):
    data = json.loads(planner(*LINE, "--json", "-q").stdout)
    assert set(OWN) <= data.keys()
    named = [*OWN, *data["launching"][0], *data["batch"]]
    assert [key for key in named if f"`{key}`" not in PAGE] == []


def test_impossible_input_is_one_line_and_exit_code_2(planner):
    result = planner(*LINE, "-q", "--storage-gb-per-s", "-1")
    assert result.exit_code == 2
    assert result.stderr == "planner: --storage-gb-per-s: must be positive and finite, not -1\n"
