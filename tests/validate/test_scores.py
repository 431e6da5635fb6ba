import numpy as np
import pytest

from planner.validate.scores import cross_rescaled, half, rescaled, score


def test_a_perfect_prediction_scores_zero():
    measured = np.array([1.0, 5.0, 9.0])
    assert score(measured, measured).maximum == 0


def test_bias_is_signed_and_errors_are_not():
    one = score(np.array([1.0, 1.0, 1.0]), np.array([0.5, 0.8, 1.1]))
    assert one.median == pytest.approx(0.2)
    assert one.bias == pytest.approx(-0.2)
    assert one.maximum == pytest.approx(0.5)


def test_rows_without_measurement_or_prediction_do_not_count():
    assert score(np.array([0.0, 2.0, 2.0]), np.array([1.0, 0.0, 2.0])).n == 1
    assert score(np.zeros(2), np.ones(2)).n == 0


def test_halves_depend_on_the_name_alone_and_are_about_equal():
    names = [f"row-{number}" for number in range(1000)]
    chosen = dict(zip(names, half(names), strict=True))
    assert 400 < sum(chosen.values()) < 600
    assert all(half([name])[0] == chosen[name] for name in reversed(names))


def test_a_factor_common_to_a_group_is_removed_by_rescaling():
    predicted = np.linspace(1, 9, 200)
    groups = ["h100", "a100"] * 100
    measured = predicted * np.where(np.arange(200) % 2, 1.3, 0.7)
    names = [f"row-{number}" for number in range(200)]
    assert cross_rescaled(measured, predicted, groups, names) == pytest.approx(measured)


def test_the_factor_of_a_half_is_learned_from_the_other_half_only():
    names = [f"row-{number}" for number in range(40)]
    first = half(names)
    measured = np.where(first, 2.0, 3.0)
    result = cross_rescaled(measured, np.ones(40), ["one"] * 40, names)
    assert set(result[first]) == {3.0}
    assert set(result[~first]) == {2.0}


def test_a_group_without_a_row_to_fit_to_does_not_count():
    result = rescaled(np.ones(2), np.ones(2), ["alone", "other"], np.array([False, True]))
    assert result.tolist() == [0.0, 1.0]
