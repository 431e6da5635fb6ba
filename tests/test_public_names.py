import ast
import subprocess
import sys
from pathlib import Path

import pytest

import planner


@pytest.mark.parametrize("name", planner.__all__)
def test_every_public_name_resolves(name):
    assert getattr(planner, name).__name__.lower().endswith(name.lower().split("_")[-1])


def test_names_for_type_checkers_are_the_same():
    tree = ast.parse(Path(planner.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert {alias.asname for line in block.body for alias in line.names} == set(planner.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'planet'"):
        planner.planet  # noqa: B018


def test_importing_planner_imports_nothing_else():
    code = "import sys, planner; print([name for name in ('numpy', 'networkx', 'click') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
