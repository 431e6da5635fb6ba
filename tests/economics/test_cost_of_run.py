import numpy as np
import pytest

from planner.economics import cost_of_run as cost

HOUR = 3600.0


def test_a_trillion_tokens_at_a_million_a_second_take_eleven_and_a_half_days():
    run = cost.cost_of_run(1e12, 1e6, world_size=100, price=(2.0 / HOUR, 5.0 / HOUR))
    assert run.days == pytest.approx(11.574, abs=1e-3)
    assert run.gpu_hours == pytest.approx(1e6 / HOUR * 100)
    assert run.usd_low == pytest.approx(run.gpu_hours * 2.0)
    assert run.usd_high == pytest.approx(run.gpu_hours * 5.0)


def test_money_does_not_depend_on_how_many_share_the_work_at_equal_efficiency():
    few, many = (cost.cost_of_run(1e12, 1e4 * n, n, (1 / HOUR, 1 / HOUR)) for n in (8, 800))
    assert few.usd_low == pytest.approx(many.usd_low)
    assert few.days == pytest.approx(100 * many.days)


def test_a_run_costs_its_tokens_times_the_price_per_million():
    run = cost.cost_of_run(3e9, 8e4, world_size=8, price=(2.5 / HOUR, 2.5 / HOUR))
    per_million = cost.cost_per_million_tokens(1e4, 2.5 / HOUR)
    assert run.usd_low == pytest.approx(3e9 / 1e6 * per_million)


def test_a_column_of_speeds_equals_its_scalars():
    speeds = np.array([1e5, 2e5, 4e5])
    column = cost.cost_of_run(1e12, speeds, 16, (1e-3, 2e-3))
    assert column.usd_high.tolist() == [cost.cost_of_run(1e12, s, 16, (1e-3, 2e-3)).usd_high for s in speeds.tolist()]


def test_a_run_of_no_tokens_costs_nothing():
    assert cost.cost_of_run(0.0, 1e5, 16, (1e-3, 2e-3)).usd_high == 0
