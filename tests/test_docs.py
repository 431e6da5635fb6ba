"""The documentation says what is so: commands that it shows run, files that it shows are of that form."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import planner
from planner.cli.main import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted(set(re.findall(r"`(planner (?:recommend|fits|explain|topo show|show|ls) [^`<]*)`", README)))


def run(command):
    return CliRunner().invoke(main, shlex.split(command)[1:], prog_name="planner")


def test_readme_sets_everything_up_with_two_lines():
    lines = [line.strip() for line in README.splitlines() if line.startswith("    pip install")]
    assert len(lines) == 2
    assert lines[0].endswith("planner recommend llama-3.1-8b 2xdgx-h100")
    assert lines[1] == "pip install -e '.[test]' && python -m pytest"


def test_ci_runs_the_very_line_of_the_readme_and_the_slow_tests():
    script = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    assert "pip install -e '.[test]' && python -m pytest" in script
    assert any("python -m pytest -m slow" in line for line in script)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_runs(command):
    result = run(command.replace("path/to/config.json", "llama-3.1-8b"))
    assert result.exit_code in (0, 5), result.stderr
    assert result.stdout


def test_the_example_of_the_readme_is_the_output_of_its_command():
    command, shown = re.search(r"<!-- output of: COLUMNS=132 (.+?) -->\n```text\n(.+?)```", README, re.DOTALL).groups()
    printed = CliRunner().invoke(main, shlex.split(command)[1:], env={"COLUMNS": "132"}).stdout

    def form(text):
        return {
            line.split(":")[0] for line in text.splitlines() if re.match(r"(next|limit|instead|fit|not legal): ", line)
        }

    assert form(shown) == form(printed)
    assert shown.splitlines()[-1] == printed.splitlines()[-1]


def test_python_of_the_readme_runs(capsys):
    code = re.search(r"```python\n(.+?)```", README, re.DOTALL).group(1)
    exec(compile(code, "README.md", "exec"), {})
    assert "Train llama-3.1-8b on 2xdgx-h100" in capsys.readouterr().out


def test_data_flow_of_the_design_runs():
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    names = {}
    exec(compile(re.search(r"```python\n(.+?)```", text, re.DOTALL).group(1), "design.md", "exec"), names)
    assert len(names["plans"]) == len(names["memory"]) == len(names["time"])
    assert names["answer"].best.step_time > 0


def test_plan_json_in_the_documentation_has_the_keys_of_a_real_one(tmp_path):
    text = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    shown = json.loads(re.search(r"```json\n(.+?)```", text, re.DOTALL).group(1))
    best = planner.recommend("llama-3.1-8b", "2xdgx-h100", top=1).best
    written = json.loads(planner.write_plan(best, tmp_path).read_text(encoding="utf-8"))
    assert shown.keys() == written.keys()
    for part in ("plan", "profile", "prediction"):
        assert shown[part].keys() == written[part].keys()
    for key in (*written, *written["plan"]):
        assert f"`{key}`" in text


def links(page):
    """Files that a page links to."""
    return [page.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_the_documentation_links_to_exist(page):
    assert [link for link in links(page) if not link.exists()] == []


def test_the_readme_links_to_every_page():
    assert {link.resolve() for link in links(ROOT / "README.md")} >= {page.resolve() for page in PAGES[1:]}
