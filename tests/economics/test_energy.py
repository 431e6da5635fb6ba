import pytest

from planner.economics.energy import JOULES_PER_KWH, JOULES_PER_MWH, energy, energy_cost

HOUR = 3600.0


def test_a_thousand_gpu_hours_at_a_kilowatt_draw_a_megawatt_hour_and_the_building_its_share():
    used = energy(power=1000.0, device_time=1000 * HOUR, pue=1.56)
    assert used / JOULES_PER_MWH == pytest.approx(1.56)
    assert energy_cost(used, price=0.08 / JOULES_PER_KWH) == pytest.approx(1560 * 0.08)


def test_the_published_energy_of_llama_3_1_405b_is_its_gpu_hours_times_the_board_power():
    """Model card of Llama 3.1: 30.84M GPU-hours of H100 at 700 W, without host and building."""
    used = energy(power=700.0, device_time=30.84e6 * HOUR, pue=1.0)
    assert used / JOULES_PER_MWH == pytest.approx(21_588)
