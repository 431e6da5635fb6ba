import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from planner.economics.checkpoints import daly_interval, first_order_loss, transfer_time, young_interval
from planner.economics.failures import goodput

RATIOS = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.5)
"""Of the time to write a checkpoint to the mean time between failures."""


def exact_interval(write, mtbf=1.0, restart=0.0):
    def lost(interval):
        return 1 - goodput(interval, write=write, restart=restart, mtbf=mtbf)

    return minimize_scalar(lost, bounds=(1e-3 * mtbf, 2 * mtbf), method="bounded", options={"xatol": 1e-9}).x


def test_a_terabyte_at_fifty_gb_per_s_takes_twenty_seconds():
    assert transfer_time(1e12, 50e9) == 20.0


def test_young_by_hand():
    """15 s to write, a failure every 3 h: sqrt(2 x 15 x 10,800) = 569.2 s."""
    assert young_interval(15.0, 3 * 3600.0) == pytest.approx(569.21, abs=0.01)


@pytest.mark.parametrize(("hours", "minutes"), [(24.0, 117.0), (6.0, 57.0), (0.25, 9.1)])
def test_daly_as_in_his_figures(hours, minutes):
    """Daly 2006, figures 3 to 5: dumps of 5 minutes."""
    assert daly_interval(5 * 60.0, hours * 3600.0) / 60 == pytest.approx(minutes, rel=0.01)


@pytest.mark.parametrize("ratio", RATIOS)
def test_daly_is_the_optimum_of_the_goodput_within_one_percent(ratio):
    assert daly_interval(ratio, 1.0) == pytest.approx(exact_interval(ratio), rel=0.01)


def test_young_is_the_limit_of_rare_failures_and_too_long_for_frequent_ones():
    assert young_interval(1e-4, 1.0) == pytest.approx(exact_interval(1e-4), rel=0.005)
    assert young_interval(0.01, 1.0) / exact_interval(0.01) == pytest.approx(1.05, abs=0.005)


@pytest.mark.parametrize("restart", [0.0, 0.1, 3.0])
def test_the_best_interval_does_not_depend_on_the_restart(restart):
    assert exact_interval(0.01, restart=restart) == pytest.approx(exact_interval(0.01), rel=1e-4)


def test_beyond_two_failures_per_checkpoint_the_interval_is_the_time_between_failures():
    assert daly_interval(2.0, 1.0) == 1.0
    assert daly_interval(np.array([0.01, 5.0]), 1.0).tolist() == pytest.approx([float(daly_interval(0.01, 1.0)), 1.0])


def test_first_order_loss_by_hand_and_against_the_goodput():
    loss = first_order_loss(600.0, write=15.0, restart=60.0, mtbf=36000.0)
    assert loss == pytest.approx(15 / 600 + 300 / 36000 + 60 / 36000)
    assert 1 / goodput(600.0, write=15.0, restart=60.0, mtbf=36000.0) - 1 == pytest.approx(loss, rel=0.02)
