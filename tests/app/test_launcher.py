"""How the app is started: on this machine only, sending nothing, and with one line where Streamlit is missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from app import answers, answers_at_scale
from app.cli import SETTINGS, flags
from tests.app.running import opened, problems

ROOT = Path(__file__).parents[2]


def test_the_command_and_the_settings_of_streamlit_run_agree():
    written = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))

    def value(name):
        found = written
        for part in name.split("."):
            found = found[part]
        return str(found).lower()

    assert {name: value(name) for name in SETTINGS} == {name: str(each).lower() for name, each in SETTINGS.items()}
    assert written["server"]["address"] == "localhost"


def test_it_listens_on_this_machine_and_sends_no_statistics():
    told = flags(8501, "localhost", headless=True)
    assert "--server.address=localhost" in told
    assert "--browser.gatherUsageStats=false" in told
    assert "--server.headless=true" in told


@pytest.mark.parametrize("missing", ["streamlit", "app.cli"])
def test_without_streamlit_one_line_says_what_to_install(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from planner.cli.main import main; main(['app'])"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.strip().count("\n") == 0
    assert "pip install 'planner[app]'" in result.stderr


def test_help_imports_neither_streamlit_nor_the_app():
    code = (
        "import sys, click.testing as t; from planner.cli.main import main; r = t.CliRunner().invoke(main, ['--help']);"
        "print([n for n in ('streamlit', 'app', 'pandas') if n in sys.modules], 'in a browser' in r.stdout)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout == "[] True\n"


@pytest.mark.parametrize("page", ["", "memory", "time", "network", "compare"])
def test_a_second_look_at_a_page_searches_nothing(page, monkeypatch):
    app = opened(page, model="llama-3.2-1b", count=3)
    assert problems(app) == []

    def searched(*_asked, **_more):
        raise AssertionError("searched again")

    for module, name in (
        (answers, "recommend"),
        (answers, "fit_report"),
        (answers, "simulated"),
        (answers, "link_traffic"),
    ):
        monkeypatch.setattr(module, name, searched)
    monkeypatch.setattr(answers_at_scale, "sides", searched)
    app.run()
    assert problems(app) == []
