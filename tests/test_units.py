"""Formulas of planner.cost and planner.economics: homogeneous in units, alike for a number and a column, finite."""

import importlib
import inspect
import pkgutil
from dataclasses import is_dataclass
from typing import Annotated, get_origin, get_type_hints

import numpy as np
import pytest

import planner.cost
from planner.quantities import Bytes, BytesPerSecond, Count, Seconds, unit_power

ROWS = 24
FACTOR = 7.0
LARGE_COUNT = 2**17

RANGES = {
    "Scalar": (0.05, 0.95),
    "Bytes": (1e3, 1e9),
    "Seconds": (1e-6, 1e-1),
    "BytesPerSecond": (1e9, 1e12),
    "Flop": (1e9, 1e15),
    "FlopPerSecond": (1e12, 1e15),
    "PerSecond": (1e-6, 1e2),
    "Usd": (1e-2, 1e3),
    "UsdPerSecond": (1e-4, 1e-2),
    "Watts": (1e2, 1e4),
    "Joules": (1e6, 1e12),
    "UsdPerJoule": (1e-9, 1e-7),
}


COST = {module.name for module in pkgutil.iter_modules(planner.cost.__path__, "planner.cost.")}
ECONOMICS = {
    f"planner.economics.{name}"
    for name in ("batch_scaling", "checkpoints", "energy", "failures", "feeding", "ownership", "resharding")
}


def public_functions():
    for module in sorted(COST | ECONOMICS):
        for name, value in vars(importlib.import_module(module)).items():
            if inspect.isfunction(value) and value.__module__ == module and not name.startswith("_"):
                yield value


FORMULAS = sorted(public_functions(), key=lambda function: (function.__module__, function.__name__))
every_formula = pytest.mark.parametrize(
    "formula", FORMULAS, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}"
)


def draw(formula, *, largest_count=16):
    """A column for each argument, in a range that suits the name of its hint; counts are ints from 2."""
    random = np.random.default_rng(7)
    # Scalar and Count are the same type once resolved: the names in the source tell them apart.
    names = {name: parameter.annotation for name, parameter in inspect.signature(formula).parameters.items()}
    return {
        name: random.integers(2, largest_count, ROWS, endpoint=True)
        if hint == "Count"
        else np.exp(random.uniform(*np.log(RANGES[hint]), ROWS))
        for name, hint in names.items()
    }


def row(columns, index):
    return {name: column[index].item() for name, column in columns.items()}


def units(formula):
    return get_type_hints(formula, include_extras=True)


def by_field(result, hint):
    """(value, hint) of a number, or of each field of a record."""
    if not is_dataclass(hint):
        return [(result, hint)]
    return [(getattr(result, name), field) for name, field in get_type_hints(hint, include_extras=True).items()]


def values(formula, arguments):
    return [value for value, _ in by_field(formula(**arguments), units(formula)["return"])]


def assert_homogeneous(formula, base):
    hints, columns = units(formula), draw(formula)
    scaled = {name: column * FACTOR ** unit_power(hints[name], base) for name, column in columns.items()}
    before = by_field(formula(**columns), hints["return"])
    for value, (expected, hint) in zip(values(formula, scaled), before, strict=True):
        assert value == pytest.approx(expected * FACTOR ** unit_power(hint, base), rel=1e-9)


def assert_no_overflow(formula):
    columns = draw(formula, largest_count=LARGE_COUNT)
    floats = {name: column.astype(float) for name, column in columns.items()}
    for value, expected in zip(values(formula, columns), values(formula, floats), strict=True):
        assert value == pytest.approx(expected, rel=1e-12)


def test_formulas_are_found_in_every_module():
    assert {formula.__module__ for formula in FORMULAS} == COST | ECONOMICS


@every_formula
def test_formula_declares_the_unit_of_every_argument_and_result(formula):
    hints = units(formula)
    result = hints.pop("return")
    results = get_type_hints(result, include_extras=True).values() if is_dataclass(result) else [result]
    assert list(hints) == list(inspect.signature(formula).parameters)
    assert all(get_origin(hint) is Annotated for hint in [*hints.values(), *results])


@every_formula
@pytest.mark.parametrize("base", ["B", "s", "USD", "W"])
def test_formula_is_dimensionally_homogeneous(formula, base):
    assert_homogeneous(formula, base)


@every_formula
def test_formula_gives_a_column_what_it_gives_each_row_to_the_bit(formula):
    columns = draw(formula)
    by_column = [np.broadcast_to(value, ROWS).tolist() for value in values(formula, columns)]
    by_row = [values(formula, row(columns, i)) for i in range(ROWS)]
    assert by_column == [list(value) for value in zip(*by_row, strict=True)]


@every_formula
def test_formula_takes_one_column_among_numbers(formula):
    columns = draw(formula)
    for name, column in columns.items():
        mixed = row(columns, 0) | {name: column}
        by_row = [values(formula, row(columns, 0) | {name: column[i].item()}) for i in range(ROWS)]
        by_column = [np.broadcast_to(value, ROWS).tolist() for value in values(formula, mixed)]
        assert by_column == [list(value) for value in zip(*by_row, strict=True)]


@every_formula
def test_formula_is_finite_for_finite_input(formula):
    with np.errstate(all="raise"):
        for value in values(formula, draw(formula)):
            assert np.isfinite(value).all()


@every_formula
def test_formula_does_not_overflow_on_columns_of_large_counts(formula):
    assert_no_overflow(formula)


def with_hidden_latency(size: "Bytes", bandwidth: "BytesPerSecond") -> "Seconds":
    return size / bandwidth + 1e-6


def with_product_for_quotient(size: "Bytes", bandwidth: "BytesPerSecond") -> "Seconds":
    return size * bandwidth


def with_bytes_added_to_seconds(size: "Bytes", time: "Seconds") -> "Seconds":
    return size + time


def with_sixteen_bit_elements(elements: "Count") -> "Bytes":
    return 2.0 * elements


def with_product_of_counts(layers: "Count", batch: "Count", seq_len: "Count", hidden: "Count") -> "Count":
    return 24 * layers * batch * seq_len * hidden**2


@pytest.mark.parametrize(
    "formula",
    [with_hidden_latency, with_product_for_quotient, with_bytes_added_to_seconds, with_sixteen_bit_elements],
)
def test_check_of_units_catches_a_wrong_formula(formula):
    def check_all():
        for base in ("B", "s"):
            assert_homogeneous(formula, base)

    with pytest.raises(AssertionError):
        check_all()


def test_check_of_overflow_catches_a_product_of_counts():
    with pytest.raises(AssertionError):
        assert_no_overflow(with_product_of_counts)
