"""Renting against buying, and what a faster part may cost."""

from __future__ import annotations

from planner.quantities import Scalar, Seconds, Usd, UsdPerJoule, UsdPerSecond, Watts

DAYS_PER_YEAR = 365.25
SECONDS_PER_YEAR = 86400.0 * DAYS_PER_YEAR
SECONDS_PER_MONTH = SECONDS_PER_YEAR / 12


def upkeep(power: Watts, *, pue: Scalar, electricity: UsdPerJoule, hosting: UsdPerJoule) -> UsdPerSecond:
    """What an owned accelerator costs while it stands there: electricity and the rent of its place.

    u = P (PUE electricity + hosting)

    `hosting` is the rent per unit of power that the place supplies (USD per kW and month), without electricity. Source:
    definition. Idle accelerators count at full power, which is an upper bound; staff and repairs are not in it.

    >>> round(upkeep(1000.0, pue=1.5, electricity=0.08 / 3.6e6, hosting=180 / (1000 * SECONDS_PER_MONTH)) * 3600, 4)
    0.3664
    """
    return power * (pue * electricity + hosting)


def owned_price(
    purchase: Usd, *, resale_share: Scalar, life: Seconds, running: UsdPerSecond, utilisation: Scalar
) -> UsdPerSecond:
    """What an owned accelerator costs per unit of the time in which it is used.

    c = (purchase (1 - resale) / life + running) / utilisation

    Comparable with a rent, which is paid only while it is used. Source: straight-line depreciation. Interest on the
    purchase is not in it.

    >>> owned_price(1000.0, resale_share=0.2, life=100.0, running=1.0, utilisation=0.5)
    18.0
    """
    return (purchase * (1 - resale_share) / life + running) / utilisation


def saving_of_owning(rent: UsdPerSecond, running: UsdPerSecond, utilisation: Scalar) -> UsdPerSecond:
    """What an owner saves per unit of time once the purchase is paid; below zero where renting is always cheaper.

    s = utilisation rent - running

    Source: definition.

    >>> saving_of_owning(rent=3.0, running=0.5, utilisation=0.5)
    1.0
    """
    return utilisation * rent - running


def break_even_time(purchase: Usd, saving: UsdPerSecond) -> Seconds:
    """Time after which an owner has paid less than a tenant, without selling anything.

    T = purchase / saving

    Source: definition; for a saving above zero.

    >>> break_even_time(purchase=30000.0, saving=1000.0)
    30.0
    """
    return purchase / saving


def premium(price: UsdPerSecond, slow_step: Seconds, fast_step: Seconds) -> UsdPerSecond:
    """What a part that shortens a step may add to the price until the work costs the same with and without it.

    p = price (t_slow / t_fast - 1)

    `price` is what is paid without the part. Source: price t_slow = (price + p) t_fast.

    >>> premium(price=2.0, slow_step=1.5, fast_step=1.0)
    1.0
    """
    return price * (slow_step / fast_step - 1)
