import pytest

from planner.economics.batch_scaling import (
    fitted_batch,
    fitted_learning_rate,
    linear_rate_factor,
    root_rate_factor,
)


def test_goyal_trained_32_times_the_batch_at_32_times_the_rate():
    """0.1 at 256 images became 3.2 at 8,192 (arXiv 1706.02677)."""
    assert 0.1 * linear_rate_factor(8192 / 256) == pytest.approx(3.2)


def test_adams_rate_grows_with_the_root():
    assert root_rate_factor(16.0) == 4.0
    assert root_rate_factor(0.25) == 0.5


@pytest.mark.parametrize(
    ("parameters", "sequences", "rate"), [(6.9e9, 2304, 4.2e-4), (67.4e9, 4608, 3.2e-4)], ids=["7B", "67B"]
)
def test_deepseek_trained_with_what_its_fit_says(parameters, sequences, rate):
    """DeepSeek LLM, table 2: 2T tokens in sequences of 4,096."""
    compute = 6 * parameters * 2e12
    assert fitted_batch(compute) == pytest.approx(sequences * 4096, rel=0.06)
    assert fitted_learning_rate(compute) == pytest.approx(rate, rel=0.03)
