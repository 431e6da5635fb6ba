"""The page on dumps says what is so."""

import re
from pathlib import Path

from planner.dumps.recognise import FORMATS

PAGE = (Path(__file__).parents[2] / "docs" / "dumps.md").read_text(encoding="utf-8")


def test_python_of_the_page_runs():
    exec(compile(re.search(r"```python\n(.+?)```", PAGE, re.DOTALL).group(1), "dumps.md", "exec"), {})


def test_every_format_is_on_the_page():
    words = {word for name in FORMATS for word in re.findall(r"[\w-]{4,}", name.lower())}
    assert {word for word in words if word not in PAGE.lower()} == set()
