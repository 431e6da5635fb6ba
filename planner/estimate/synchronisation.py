"""When data-parallel ranks talk: with every micro-batch or once per step."""

from __future__ import annotations

import numpy as np

from planner.quantities import Column
from planner.spec.plan import GradientSync, Plan, Sharding


def keeps_weights(plans: Plan) -> Column:
    """Rows whose pipeline gathers ZeRO-3's weights once per step."""
    return (np.asarray(plans.sharding) == Sharding.ZERO3_KEEP) & (np.asarray(plans.pp) > 1)


def weight_gathers(plans: Plan) -> tuple[Column, Column]:
    """How often a micro-batch gathers ZeRO-3's weights of a layer, in forward and in backward (0 or 1).

    A pipeline that keeps its weights gathers them once per step instead.
    """
    return np.where(keeps_weights(plans), 0, 1), np.where(np.asarray(plans.sharding) == Sharding.ZERO3, 1, 0)


def reduces_once(plans: Plan) -> Column:
    """Rows whose gradients are reduced once per step: summed locally until the last micro-batch."""
    usual = (np.asarray(plans.sharding) < Sharding.ZERO2) | keeps_weights(plans)
    asked = np.asarray(plans.gradient_sync)
    return (asked == GradientSync.ONCE) | (usual & (asked != GradientSync.EVERY))
