import importlib
import inspect
import pkgutil
from dataclasses import fields

import pytest

import planner.cost
from planner.estimate.records import MemoryUse, StepTime
from planner.explain.formula import formula
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS


def cost_functions():
    for module in pkgutil.iter_modules(planner.cost.__path__):
        loaded = importlib.import_module(f"planner.cost.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if function.__module__ == loaded.__name__ and not name.startswith("_"):
                yield function


def test_every_field_of_time_and_memory_is_a_term():
    assert list(TIME_TERMS) == [field.name for field in fields(StepTime)]
    assert list(MEMORY_TERMS) == list(MemoryUse.ITEMS)


@pytest.mark.parametrize(("name", "term"), [*TIME_TERMS.items(), *MEMORY_TERMS.items()])
def test_every_term_has_equation_and_source(name, term):
    assert term.formulas
    for each in term.formulas:
        assert each.equation
        assert each.source


@pytest.mark.parametrize("function", list(cost_functions()), ids=lambda f: f.__name__)
def test_every_cost_function_states_equation_and_source(function):
    found = formula(function)
    assert found.equation
    assert found.source


def ring(size: float) -> float:
    """Time of a ring.

    T = 2 size
        + size / 3

    W = size, which is explained. And more words.

    A remark. Source: somebody
    2021.

    >>> 1
    1
    """
    return size


def tree(size: float) -> float:
    """Time of a tree.

    T = size

    Source and validity as for `ring`.
    """
    return size


def twin(size: float) -> float:
    """Another.

    Equation, source and validity as for `ring`.
    """
    return size


def test_equation_runs_over_lines_and_source_to_the_end_of_its_paragraph():
    found = formula(ring)
    assert found.summary == "Time of a ring."
    assert found.equation == "T = 2 size + size / 3, W = size, which is explained"
    assert found.source == "somebody 2021."


def test_a_reference_to_another_function_is_followed():
    assert formula(tree).source == "somebody 2021."
    assert formula(twin).equation == formula(ring).equation
    assert formula(twin).summary == "Another."


def test_a_function_without_source_is_refused():
    with pytest.raises(ValueError, match="names no source"):
        formula(cost_functions)
