"""`planner diagnose`."""

import json
import re
import shlex
from pathlib import Path

import pytest

from planner.answer.diagnosis import failures, faults, inside, limits, memory, network, pairs, runs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")
MODULES = (failures, faults, inside, limits, memory, network, pairs, runs)
FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 79.11 "
    "GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the "
    "allocated memory 61.20 GiB is allocated by PyTorch, and 15.30 GiB is reserved by PyTorch but unallocated.\n"
)


@pytest.fixture
def run(planner):
    """Runs the command in a wide window."""
    return lambda *arguments: planner("diagnose", *arguments, COLUMNS="300")


@pytest.fixture
def error(tmp_path):
    """A file with an error message."""
    path = tmp_path / "oom.txt"
    path.write_text(FRAGMENTED)
    return path


def test_the_example_of_the_page_is_what_is_printed(planner, tmp_path, monkeypatch):
    name, text = re.search(r"<!-- file: (\S+) -->\n```text\n(.+?)```", PAGE, re.DOTALL).groups()
    command, shown = re.search(r"<!-- output of: planner (.+?) -->\n```text\n(.+?)```", PAGE, re.DOTALL).groups()
    (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    result = planner(*shlex.split(command))
    assert (result.exit_code, result.stdout) == (0, shown)


def test_every_cause_stands_in_the_page():
    sources = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in MODULES)
    literal = r'"([A-Za-z/][\w /,-]+)"'
    named = set(re.findall(rf"\bCause\(\s*{literal}", sources) + re.findall(rf"\bcause={literal}", sources))
    named |= {cause for cause, _ in inside.CAUSES_OF_FINDINGS.values()} | {row[0] for row in failures.SIMPLE.values()}
    named |= {*faults.FAULTS, memory.FULL, "activation memory over budget", "model states over budget"}
    assert len(named) > 40
    assert sorted(cause for cause in named if cause not in PAGE) == []


def test_the_first_line_is_the_answer_then_files_then_causes_in_order(run, error):
    result = run(error)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith(f"Memory fragmentation: {error}, line 1: 15.3 GiB reserved but unallocated")
    assert lines[2] == f"{error}: messages (out of memory)"
    assert [line for line in lines if re.match(r"\d\. ", line)] == [
        "1. memory fragmentation (shown)",
        "2. out of memory (possible)",
    ]


def test_json_is_stable(run, error):
    data = json.loads(run(error, "--json").stdout)
    assert list(data) == [
        "schema_version",
        "answer",
        "verdict",
        "files",
        "expected",
        "measured",
        "comparisons",
        "causes",
        "next_commands",
        "notes",
    ]
    assert (data["schema_version"], data["verdict"]) == (1, "memory fragmentation")
    assert data["files"] == [{"path": str(error), "taken_for": "messages (out of memory)", "problem": None}]
    assert list(data["causes"][0]) == ["cause", "evidence", "setting", "next_command", "strength"]
    assert data["expected"] == {"speed": None, "memory": None, "collectives": [], "plan": None}


def test_speed_and_memory_stand_beside_the_plan_s_in_json_and_text(run, planner, tmp_path):
    arguments = ("recommend", "llama-3.1-8b", "1xdgx-h100", "--emit", tmp_path, "-q", "--json")
    best = json.loads(planner(*arguments).stdout)["plans"][0]
    tps = f"{best['tokens_per_s_per_gpu']:.0f}/gpu"
    options = (
        "--plan",
        tmp_path / "plan.json",
        "--measured-tps",
        tps,
        "--measured-mem",
        f"{best['peak_memory_gib']}GiB",
    )
    text, data = run(*options).stdout, json.loads(run(*options, "--json").stdout)
    assert text.startswith("Healthy: speed ")
    assert data["verdict"] == "healthy"
    assert data["measured"]["speed"]["value"] == pytest.approx(best["tokens_per_s"], rel=1e-3)
    low, high = data["expected"]["speed"]["interval"]
    assert low < data["expected"]["speed"]["value"] < high
    assert data["expected"]["memory"]["value"] == pytest.approx(best["peak_memory_gib"])
    assert data["expected"]["plan"]["plan"] == best["plan"]


def test_an_unknown_file_is_one_sentence_on_stderr_and_the_rest_goes_on(run, error, tmp_path):
    odd = tmp_path / "notes.bin"
    odd.write_bytes(bytes(range(256)))
    result = run(odd, error)
    assert result.exit_code == 0
    assert f"{odd}: unknown" in result.stdout
    assert [line for line in result.stderr.splitlines() if str(odd) in line and "nothing that is known" in line]
    assert run("-q", odd, error).stderr == ""


def test_files_that_are_all_unknown_leave_with_exit_code_4(run, tmp_path):
    odd = tmp_path / "notes.bin"
    odd.write_bytes(bytes(range(256)))
    result = run(odd, tmp_path / "missing.log")
    assert result.exit_code == 4
    assert len(result.stderr.splitlines()) == 1
    assert "missing.log: cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name what there is"),
        (("--model", "llama-3.1-8b"), "name what there is"),
        (("--model", "lama-3.1-8b", "--cluster", "1xdgx-h100"), "did you mean llama-3.1-8b"),
        (("--model", "llama-3.1-8b", "--cluster", "1xdgx-h100", "--fix", "tp=3"), "TP 3 does not divide"),
        (("--model", "gpt2", "--cluster", "1xh100-sxm", "--measured-tps", "quick"), "--measured-tps"),
        (("--model", "gpt2", "--cluster", "1xh100-sxm", "--measured-mem", "all"), "--measured-mem"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_that_says_what_would_be_right(run, arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert len([line for line in result.stderr.splitlines() if line.startswith("planner: ")]) == 1
    assert said in result.stderr


def test_an_unknown_accelerator_is_refused(run, error):
    result = run(error, "--gpu", "b9000")
    assert result.exit_code == 2
    assert "--gpu: unknown accelerator 'b9000'" in result.stderr
