"""What a run draws from the grid."""

from __future__ import annotations

from planner.quantities import Joules, Scalar, Seconds, Usd, UsdPerJoule, Watts

JOULES_PER_KWH = 3.6e6
JOULES_PER_MWH = 3.6e9


def energy(power: Watts, device_time: Seconds, pue: Scalar) -> Joules:
    """Energy of a run, cooling and losses of the building included.

    E = P T_dev PUE

    `power` is one accelerator's with its share of host, switches and storage, `device_time` that of all together.
    Source: definition of the power usage effectiveness (The Green Grid; ISO/IEC 30134-2).

    >>> energy(power=1000.0, device_time=3600.0, pue=1.5) / JOULES_PER_KWH
    1.5
    """
    return power * device_time * pue


def energy_cost(used: Joules, price: UsdPerJoule) -> Usd:
    """What the energy costs.

    C = E price

    Source: definition. Demand charges and taxes are not in it.

    >>> energy_cost(2 * JOULES_PER_MWH, price=0.08 / JOULES_PER_KWH)
    160.0
    """
    return used * price
