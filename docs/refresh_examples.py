"""Run the commands whose output the documentation shows, and put what they print in its place.

    python docs/refresh_examples.py

A block is a comment `<!-- output of: COMMAND -->` (a planner command, COLUMNS=... before it if wanted) followed by a
fenced block; `<!-- plan.json of: COMMAND -->` shows the file that `--emit` writes, its inputs shortened.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("README.md", "docs/plan.md")
BLOCK = re.compile(r"(<!-- (output|plan\.json) of: (.+?) -->\n```\w*\n)(.*?)(```)", re.DOTALL)
SHORTENED = ("model", "cluster", "workload", "stack")


def run(command: str, *more: str) -> str:
    """What a planner command prints on stdout."""
    words = [*shlex.split(command), *more]
    settings = dict(word.split("=", 1) for word in words if re.fullmatch(r"[A-Z]+=\d+", word))
    line = [sys.executable, "-m", *(word for word in words if word not in [f"{k}={v}" for k, v in settings.items()])]
    result = subprocess.run(line, capture_output=True, text=True, check=True, env=os.environ | settings)
    return result.stdout.rstrip()


def plan_file(command: str) -> str:
    """The plan.json of a recommendation, with its inputs shortened."""
    with tempfile.TemporaryDirectory() as folder:
        run(command, "--emit", folder)
        data = json.loads((Path(folder) / "plan.json").read_text(encoding="utf-8"))
    return json.dumps({key: {"...": "..."} if key in SHORTENED else value for key, value in data.items()}, indent=2)


def refreshed(text: str) -> str:
    """The text with every block printed anew."""

    def anew(found: re.Match[str]) -> str:
        printed = run(found[3]) if found[2] == "output" else plan_file(found[3])
        return f"{found[1]}{printed}\n{found[5]}"

    return BLOCK.sub(anew, text)


if __name__ == "__main__":
    for name in FILES:
        path = ROOT / name
        path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
