"""The table of layers (DESIGN section 3) and the sizes of files and functions, read from the source by ast."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).parents[1]
STANDARD = set(sys.stdlib_module_names)
TRAINER = "planner.emit.trainer"

BASE = {"quantities", "rows", "errors", "tables", "distinct"}
ESTIMATE = BASE | {"spec", "catalogue", "topology", "cost", "estimate"}
EVERYTHING = ESTIMATE | {"dumps", "simulate", "search", "validate", "explain", "emit", "economics", "answer", "cli"}
MAY_IMPORT = {
    **dict.fromkeys(BASE, BASE),
    "spec": BASE | {"spec"},
    "catalogue": BASE | {"spec", "catalogue"},
    "topology": BASE | {"spec", "topology"},
    "dumps": {"quantities", "errors", "spec", "catalogue", "dumps"},
    "cost": {"quantities", "cost"},
    "estimate": ESTIMATE,
    "simulate": BASE | {"spec", "simulate"},
    "search": ESTIMATE | {"simulate", "search"},
    "validate": ESTIMATE | {"validate"},
    "explain": ESTIMATE | {"simulate", "explain"},
    "emit": ESTIMATE | {"emit"},
    "economics": ESTIMATE | {"economics"},
    "answer": EVERYTHING - {"cli"},
    "cli": EVERYTHING,
    "__main__": {"cli"},
}
"""Layer -> layers of planner that it may import. `planner/__init__.py` may name all, and none may import it."""

THIRD_PARTY = {"cost": {"numpy"}, "topology": {"numpy", "networkx"}, "emit": {"numpy", "yaml"}}
ELSEWHERE = {"numpy", "click", "rich"}


def modules(folder):
    """Dotted name -> syntax tree of every module below a folder of the repository."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for path, name in names.items()}


PLANNER = modules("planner")


def for_types_only(tree):
    """Nodes under `if TYPE_CHECKING:`."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inside for block in blocks for inside in ast.walk(block)}


def imports(name, tree, *, types=True):
    """Dotted names that a module imports anywhere, also inside functions and, if `types`, for type hints only."""
    skipped = set() if types else for_types_only(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            is_package = (ROOT / name.replace(".", "/") / "__init__.py").exists()
            above = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield full if (full := f"{source}.{alias.name}") in PLANNER else source


def layer(name):
    """The part of planner that a module belongs to; empty for planner itself and what is outside."""
    return f"{name}.".split(".")[1] if name.startswith("planner.") else ""


def top(name):
    return name.partition(".")[0]


def in_trainer(name):
    return name.startswith(TRAINER)


EDGES = [(name, used) for name, tree in PLANNER.items() for used in imports(name, tree)]


def test_every_part_of_planner_has_its_row_in_the_table():
    assert {layer(name) for name in PLANNER} - {""} <= MAY_IMPORT.keys()


def test_imports_only_point_left():
    wrong = [
        f"{name} imports {used}"
        for name, used in EDGES
        if top(used) == "planner" and name != "planner" and layer(used) not in MAY_IMPORT.get(layer(name), ())
    ]
    assert wrong == []


def test_there_is_no_import_cycle():
    graph = {name: set(imports(name, tree, types=False)) & PLANNER.keys() for name, tree in PLANNER.items()}
    TopologicalSorter(graph).prepare()


def test_imports_are_seen_inside_functions_and_when_relative():
    source = "def f():\n    import torch\n    from ..rows import Rows\n    from planner.cost import overlap\n"
    assert list(imports("planner.spec.plan", ast.parse(source))) == ["torch", "planner.rows", "planner.cost.overlap"]


def test_planner_imports_its_declared_dependencies_and_networkx_only_in_topology():
    wrong = [
        f"{name} imports {used}"
        for name, used in EDGES
        if not in_trainer(name) and top(used) not in STANDARD | {"planner"} | THIRD_PARTY.get(layer(name), ELSEWHERE)
    ]
    assert wrong == []


def test_trainer_is_files_to_copy_that_import_torch_the_standard_library_and_themselves():
    siblings = {name.rpartition(".")[2] for name in PLANNER if in_trainer(name)}
    inside = [(name, used) for name, used in EDGES if in_trainer(name)]
    assert [
        edge for edge in inside if not in_trainer(edge[1]) and top(edge[1]) not in STANDARD | siblings | {"torch"}
    ] == []
    assert [edge for edge in EDGES if in_trainer(edge[1]) and not in_trainer(edge[0])] == []


def test_calibration_uses_records_formulas_and_the_trainer_only():
    """What fits collectives, kernels, steps predicts with the planner's own estimates, and reads tables as it does.

    The command asks and answers as the planner's own commands do.
    """
    predicting = (
        "collectives", "collectives_fit", "kernel_fits", "tile_fits", "steps", "step_profile", "few_runs", "accuracy",
    )  # fmt: skip
    own = {f"calibration.{name}": ESTIMATE | {"validate"} for name in predicting}
    fitting = ("kernel_profile", "collective_profile", "profile_fit", "machine_cluster")
    own |= {f"calibration.{name}": ESTIMATE | {"dumps"} for name in fitting}
    own |= {f"calibration.{name}": EVERYTHING for name in ("cli", "command", "sensitivity")}
    wrong = [
        f"{name} imports {used}"
        for name, tree in modules("calibration").items()
        for used in imports(name, tree)
        if top(used) == "planner" and not in_trainer(used)
        if layer(used) not in own.get(name, BASE | {"spec", "cost"})
    ]
    assert wrong == []


def test_app_uses_public_names_of_planner_only():
    nodes = [(name, node) for name, tree in modules("app").items() for node in ast.walk(tree)]
    assert [
        name for name, node in nodes if isinstance(node, ast.Import) and any(layer(a.name) for a in node.names)
    ] == []
    assert [name for name, node in nodes if isinstance(node, ast.ImportFrom) and layer(node.module or "")] == []
    public = [(name, node) for name, node in nodes if isinstance(node, ast.ImportFrom) and node.module == "planner"]
    assert public != []
    assert [(name, a.name) for name, node in public for a in node.names if a.name not in planner.__all__] == []


def functions(*folders):
    for folder in folders:
        for name, tree in modules(folder).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{name}.{node.name}", node


def body_lines(function):
    """Lines of a function's body, its docstring apart."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return function.end_lineno - body[0].lineno + 1 if body else 0


def positional(function):
    names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
    return len([name for name in names if name not in ("self", "cls")])


@pytest.mark.parametrize("folder", ["planner", "calibration", "app", "tests"])
def test_no_file_is_longer_than_400_lines(folder):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}


def test_no_function_has_more_than_60_lines():
    found = {name: body_lines(function) for name, function in functions("planner", "calibration", "app", "tests")}
    assert {name: lines for name, lines in found.items() if lines > 60} == {}


def test_no_function_takes_more_than_five_positional_arguments():
    found = {name: positional(function) for name, function in functions("planner", "calibration", "app")}
    assert {name: count for name, count in found.items() if count > 5} == {}
