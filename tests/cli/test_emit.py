import json
import os
import re
import subprocess
import sys

import pytest

QUESTION = ("recommend", "llama-3.2-1b", "2xrtx-4090", "--target", "pytorch", "--quiet")


@pytest.fixture
def plan(planner, tmp_path):
    """A folder with a plan.json."""
    folder = tmp_path / "kept"
    result = planner(*QUESTION, "--emit", folder)
    assert result.exit_code == 0, result.stderr
    (folder / "launch.sh").unlink()
    return folder


def test_what_was_written_and_how_to_start_it_is_printed(planner, plan, tmp_path):
    result = planner("emit", plan / "plan.json", "--target", "slurm", "--into", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    first, second, third = result.stdout.splitlines()
    pattern = rf"Wrote job\.sbatch, plan\.json, trainer/ \(\d+ files\) into {tmp_path}/run for slurm,pytorch\."
    assert re.fullmatch(pattern, first)
    assert (second, third) == ("Start it with:", f"  cd {tmp_path}/run && sbatch job.sbatch")
    assert result.stderr.startswith("note: partition, account and time limit ")


def test_a_folder_with_a_plan_does_as_well(planner, plan, tmp_path):
    both = [
        planner("emit", each, "--target", "k8s", "--into", tmp_path / "run", "--force")
        for each in (plan, plan / "plan.json")
    ]
    assert both[0].exit_code == 0
    assert both[0].stdout == both[1].stdout


def test_json_has_what_the_documentation_says(planner, plan, tmp_path):
    result = planner("emit", plan, "--target", "torchrun", "--into", tmp_path / "run", "--json")
    data = json.loads(result.stdout)
    assert list(data) == ["schema_version", "target", "files", "start", "notes"]
    assert (data["schema_version"], data["target"], data["notes"]) == (1, "torchrun,pytorch", [])
    assert data["start"] == f"{tmp_path}/run/launch.sh"
    assert all(os.path.isfile(path) for path in data["files"])
    assert str(tmp_path / "run" / "plan.json") in data["files"]


def test_a_folder_beside_us_is_called_so_that_a_shell_finds_it(planner, plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = json.loads(planner("emit", plan, "--target", "torchrun", "--into", "run", "--json").stdout)
    assert data["start"] == "./run/launch.sh"
    monkeypatch.chdir(tmp_path / "run")
    data = json.loads(planner("emit", plan, "--target", "torchrun", "--into", ".", "--json", "--force").stdout)
    assert data["start"] == "./launch.sh"


def test_files_that_are_there_stay_without_force(planner, plan, tmp_path):
    line = ("emit", plan, "--target", "torchrun", "--into", tmp_path / "run")
    assert planner(*line).exit_code == 0
    (tmp_path / "run" / "launch.sh").write_text("mine")
    again = planner(*line)
    assert again.exit_code == 2
    assert again.stderr == f"planner: --force: {tmp_path}/run/launch.sh is there already; --force replaces it\n"
    assert (tmp_path / "run" / "launch.sh").read_text() == "mine"
    assert planner(*line, "--force").exit_code == 0
    assert (tmp_path / "run" / "launch.sh").read_text().startswith("#!/usr/bin/env bash\n")


def test_a_plan_may_be_emitted_into_its_own_folder_and_what_was_changed_by_force(planner, plan):
    assert planner("emit", plan, "--target", "torchrun", "--into", plan).exit_code == 0
    (plan / "launch.sh").write_text("my own")
    assert planner("emit", plan, "--target", "torchrun", "--into", plan).exit_code == 2
    assert planner("emit", plan, "--target", "torchrun", "--into", plan, "--force").exit_code == 0
    assert (plan / "launch.sh").read_text() != "my own"


def test_what_cannot_be_expressed_is_one_line_and_leaves_nothing(planner, tmp_path):
    kept = planner(
        "recommend", "llama-3.2-1b", "1xdgx-h100", "--fix", "sharding=zero1", "--quiet", "--emit", tmp_path / "kept"
    )
    assert kept.exit_code == 0, kept.stderr
    result = planner("emit", tmp_path / "kept", "--target", "pytorch", "--into", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "pytorch has no sharding zero1" in result.stderr
    assert "--target pytorch --fix " in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"--target": "slrum"}, 2, "--target: unknown target 'slrum'; did you mean slurm"),
        ({"--target": "slurm,k8s"}, 2, "slurm and kubernetes do not go together"),
        ({"--into": "{plan}/plan.json"}, 4, "plan.json: is no folder"),
        ({"--into": "{plan}/plan.json/run"}, 4, "cannot be written: File exists"),
        ({"PLAN": "{plan}/missing"}, 4, "missing: cannot be read: No such file"),
        ({"PLAN": "{plan}/trainer"}, 4, "trainer/plan.json: cannot be read: No such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(planner, plan, tmp_path, change, code, message):
    given = {"PLAN": str(plan), "--target": "torchrun", "--into": str(tmp_path / "run")} | change
    words = [value.format(plan=plan) for value in given.values()]
    result = planner("emit", words[0], "--target", words[1], "--into", words[2])
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_recommend_by_a_combined_name_searches_what_the_trainer_can_express(planner):
    line = ("recommend", "llama-3.1-8b", "2xdgx-h100", "--top", "50", "--json", "--quiet")
    by_both = json.loads(planner(*line, "--target", "slurm,accelerate").stdout)
    assert by_both["stack"] == "hf-fsdp"
    assert {entry["plan"]["pp"] for entry in by_both["plans"]} == {1}
    launcher = json.loads(planner(*line, "--target", "kubernetes").stdout)
    assert launcher["stack"] == "pytorch"
    assert launcher["plans"] == json.loads(planner(*line, "--target", "trainer").stdout)["plans"]


def test_emitting_loads_no_torch(plan, tmp_path):
    code = (
        "import sys\nfrom planner.cli.main import main\n"
        f"try:\n    main(['emit', {str(plan)!r}, '--target', 'torchrun', '--into', {str(tmp_path / 'run')!r}])\n"
        "except SystemExit as left:\n    assert not left.code\nprint('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("False\n")
