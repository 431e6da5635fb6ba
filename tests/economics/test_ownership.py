import pytest

from planner.economics import ownership as own

HOUR, KW = 3600.0, 1000.0


def upkeep():
    """1.05 kW at PUE 1.5 and 0.10 USD/kWh, and 146.1 USD per kW and month: 0.1575 + 0.21 USD an hour."""
    hosting = 146.1 / (KW * own.SECONDS_PER_MONTH)
    return own.upkeep(1.05 * KW, pue=1.5, electricity=0.10 / (KW * HOUR), hosting=hosting)


def test_upkeep_is_electricity_for_building_and_machine_and_the_rent_of_the_place():
    assert pytest.approx(730.5 * HOUR) == own.SECONDS_PER_MONTH
    assert upkeep() * HOUR == pytest.approx(1.05 * 1.5 * 0.10 + 1.05 * 146.1 / 730.5)


def test_an_owned_gpu_costs_its_depreciation_and_upkeep_over_the_hours_used():
    """40,000 USD less a tenth over 5 years of 8,766 h: 0.8214 USD an hour; with 0.3675 upkeep, at 80 % use 1.486."""
    price = own.owned_price(40e3, resale_share=0.1, life=5 * own.SECONDS_PER_YEAR, running=upkeep(), utilisation=0.8)
    assert price * HOUR == pytest.approx((36e3 / 43830 + 0.3675) / 0.8)
    assert price * HOUR == pytest.approx(1.486, abs=5e-4)


def test_buying_breaks_even_when_the_rent_saved_has_paid_the_purchase():
    """3 USD an hour at 80 % use saves 2.4 - 0.3675 an hour: 1,484.7 USD a month, 26.9 months for 40,000 USD."""
    saving = own.saving_of_owning(3.0 / HOUR, upkeep(), 0.8)
    months = own.break_even_time(40e3, saving) / own.SECONDS_PER_MONTH
    assert months == pytest.approx(40e3 / (2.0325 * 730.5))
    assert months == pytest.approx(26.94, abs=0.01)


def test_at_break_even_owner_and_tenant_have_paid_the_same():
    rent, used = 3.0 / HOUR, 0.8
    time = own.break_even_time(40e3, own.saving_of_owning(rent, upkeep(), used))
    assert 40e3 + upkeep() * time == pytest.approx(rent * used * time)


def test_an_owner_who_uses_little_never_breaks_even():
    assert own.saving_of_owning(3.0 / HOUR, upkeep(), 0.1) < 0


def test_with_the_premium_both_networks_cost_the_same_per_step():
    slow, fast, price = 1.2, 1.0, 2.5
    assert own.premium(price, slow, fast) == pytest.approx(0.5)
    assert (price + own.premium(price, slow, fast)) * fast == pytest.approx(price * slow)
