import ast
import importlib
import inspect
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import pytest

import planner
import planner.cost
from planner.catalogue.models import model
from planner.estimate.records import MemoryUse, StepTime
from planner.explain.formula import formula
from planner.explain.relevance import CONDITIONS, relevant_formulas
from planner.explain.symbols import symbols
from planner.explain.terms import MEMORY_TERMS, TIME_TERMS
from planner.explain.volume import VOLUME_TERMS
from planner.spec.plan import Plan, Schedule, Sharding
from planner.spec.workload import Workload


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


@pytest.mark.parametrize("schedule", list(Schedule)[1:])
def test_a_plan_shows_the_formulas_of_its_own_schedule_alone(schedule):
    plan = Plan(pp=4, schedule=schedule, virtual_stages=2 if schedule == Schedule.INTERLEAVED else 1)
    shown = {name for term in ("bubble", "pp_exposed") for name in names_of(term, plan)}
    other = {each.name.lower() for each in list(Schedule)[1:] if each is not schedule}
    assert any(schedule.name.lower() in name for name in shown)
    assert not any(f".{kind}_" in name for kind in other for name in shown)


def test_collectives_follow_from_sharding_and_sequence_parallelism():
    ddp, fsdp, hsdp = (
        Plan(dp_replicate=8),
        Plan(dp_shard=8, sharding=Sharding.ZERO3),
        Plan(dp_shard=4, dp_replicate=2, sharding=Sharding.ZERO3),
    )
    calls = [{name.rpartition(".")[2] for name in names_of("dp_exposed", plan)} for plan in (ddp, fsdp, hsdp)]
    assert calls[0] == {"exposed_time", "all_reduce_time", "bus_bandwidth", "two_domain_bandwidth"}
    gathers = {"all_gather_time", "reduce_scatter_time", "bus_bandwidth", "copying_bandwidth"}
    assert calls[1] == {"exposed_time", *gathers}
    assert calls[2] == calls[0] | calls[1]
    assert "planner.cost.collectives.all_reduce_time" not in names_of("tp_exposed", Plan(tp=2, sequence_parallel=1))


def test_every_condition_belongs_to_a_function_of_its_term():
    terms = TIME_TERMS | {f"memory {name}": term for name, term in MEMORY_TERMS.items()}
    for name, function in CONDITIONS:
        assert any(function in term.functions for key, term in terms.items() if key.removeprefix("memory ") == name)


def names_of(term, plan):
    return [each.name for each in relevant_formulas(term, TIME_TERMS[term], plan, Workload(64, 4096), model("gpt2"))]


def cost_functions_named_in(folder):
    """Names of the cost functions that the modules of a folder of the package mention."""
    paths = (Path(planner.__file__).parent / folder).glob("*.py")
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    named = {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {n.id for n in nodes if isinstance(n, ast.Name)}
    cached = {"state_bytes", "relative_traffic"}
    return named & ({function.__name__ for function in cost_functions()} | cached)


def test_the_formulas_that_are_shown_are_those_that_estimates_are_made_of():
    terms = (*TIME_TERMS.values(), *MEMORY_TERMS.values(), *VOLUME_TERMS.values())
    shown = {f.__name__ for term in terms for f in term.functions}
    assert cost_functions_named_in("estimate") - {"flops_utilization", "waiting_bytes"} - shown == set()
    assert shown - cost_functions_named_in("estimate") - cost_functions_named_in("cost") == set()


def used_formulas():
    terms = (*TIME_TERMS.values(), *MEMORY_TERMS.values(), *VOLUME_TERMS.values())
    found = {each.name: each for term in terms for each in term.formulas}
    return [each for each in found.values() if ".cost." in f".{each.name}"]


@pytest.mark.parametrize("found", used_formulas(), ids=lambda found: found.name.rpartition(".")[2])
def test_every_letter_of_an_equation_is_explained(found):
    (line,) = symbols([found])
    letters = set(re.findall(r"(?<![\w])[A-Za-z][0-9]?(?![\w])", found.equation))
    assert sorted(letters - set(re.findall(r"\w+", line))) == []


def test_a_source_says_nothing_to_callers_of_the_function():
    assert not [each.name for each in used_formulas() if "Raises" in each.source or "`" in each.source + each.equation]
