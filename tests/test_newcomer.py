"""The first thing that a newcomer does, in an empty folder and a fresh virtual environment."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_first_command_of_the_readme_answers_in_a_fresh_clone(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository, not a copy of its files")
    clone, environment = tmp_path / "clone", tmp_path / "environment"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    command = re.search(r"^    (pip install .+)$", (clone / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(command, shell=True, cwd=clone, env=kept | {"PATH": path}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert re.search(r"^Train llama-3.1-8b on 2xdgx-h100 \(16 GPUs\) with .+ per step", found.stdout, re.MULTILINE)
    installed = subprocess.run([environment / "bin/pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "torch" not in installed
