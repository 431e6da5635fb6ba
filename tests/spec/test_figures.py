"""Figures: units are named, directions and packages divided, nonsense refused in one line."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.quantities import GIB
from planner.spec.figures import EXAMPLES, read_figure

BASES = sorted(EXAMPLES)


@pytest.mark.parametrize(
    ("entry", "base", "value"),
    [
        ("80 GiB", "B", 80 * GIB),
        ("400 Gb/s", "B/s", 50e9),
        ("400Gb/s", "B/s", 50e9),
        ("1e3 TFLOP/s", "FLOP/s", 1e15),
        ("2.5 us", "s", 2.5e-6),
        ("700 W", "W", 700.0),
        (132, "1", 132.0),
        ({"value": 3.35, "unit": "TB/s"}, "B/s", 3.35e12),
    ],
)
def test_figure_is_converted_to_base_units(entry, base, value):
    assert read_figure(entry, base, where="f").value == pytest.approx(value)


@pytest.mark.parametrize("base", BASES)
def test_example_in_the_messages_is_itself_a_figure(base):
    assert read_figure(EXAMPLES[base], base, where="f").value > 0


def test_both_directions_together_are_halved():
    entry = {"value": 900, "unit": "GB/s", "scope": "per GPU, both directions together"}
    assert read_figure(entry, "B/s", where="f").value == 450e9


def test_a_package_of_two_devices_is_shared_between_them():
    entry = {"value": 383, "unit": "TFLOP/s", "scope": "per package of 2 devices"}
    assert read_figure(entry, "FLOP/s", where="f").value == 191.5e12


def test_figure_without_source_is_provisional_unless_the_user_states_it():
    bare = {"value": 80, "unit": "GiB"}
    assert read_figure(bare, "B", where="f").source.provisional
    assert read_figure(bare, "B", where="f", origin="stated in my.toml").source.source == "stated in my.toml"
    assert not read_figure(bare | {"source": "datasheet"}, "B", where="f").source.provisional


@pytest.mark.parametrize(
    ("entry", "base", "says"),
    [
        ("400 gbps", "B/s", "ambiguous: write Gb/s"),
        ("400 Gbps", "B/s", "ambiguous: write Gb/s"),
        ("400", "B/s", "needs a unit"),
        (400, "B/s", "needs a unit"),
        ("400 GiB", "B/s", "does not fit here"),
        ("80 GB/s", "B", "does not fit here"),
        ("16 GT/s", "B/s", "does not fit here"),
        ("700 Watt", "W", "unknown unit"),
        ("-4 GB/s", "B/s", "positive"),
        ("0 GB/s", "B/s", "positive"),
        ("1.2.3 GB/s", "B/s", "not a number"),
        ("1e999 GB/s", "B/s", "positive and finite"),
        ({"value": math.nan, "unit": "GB/s"}, "B/s", "positive and finite"),
        ({"value": math.inf, "unit": "GB/s"}, "B/s", "positive and finite"),
        ({"value": 10**400, "unit": "GB/s"}, "B/s", "positive and finite"),
        ({"value": True, "unit": "GB/s"}, "B/s", "must be a number"),
        ({"value": "4", "unit": "GB/s"}, "B/s", "must be a number"),
        ({"value": 4, "unit": 7}, "B/s", "must be text"),
        ({"value": 4}, "B/s", "needs a unit"),
        ({"unit": "GB/s"}, "B/s", "has no value"),
        ({"valeu": 4, "unit": "GB/s"}, "B/s", "did you mean value"),
        ([4, "GB/s"], "B/s", "must be a figure"),
        (None, "B/s", "must be a figure"),
    ],
)
def test_what_is_no_figure_is_refused_with_the_place_and_the_cure(entry, base, says):
    with pytest.raises(SpecError, match=says) as error:
        read_figure(entry, base, where="my.toml: node.link_bandwidth")
    message = str(error.value)
    assert message.startswith("my.toml: node.link_bandwidth")
    assert "\n" not in message


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=6), children, max_size=3),
    max_leaves=6,
)
tables = st.fixed_dictionaries({"value": plain, "unit": st.sampled_from(["GB/s", "gbps", "GiB", "s", ""]) | plain})


@given(entry=plain | tables, base=st.sampled_from(BASES))
def test_any_entry_is_a_positive_figure_or_one_line_of_error(entry, base):
    message, value = "", 1.0
    try:
        value = read_figure(entry, base, where="f").value
    except SpecError as error:
        message = str(error)
    assert "\n" not in message
    assert math.isfinite(value)
    assert value >= 0
