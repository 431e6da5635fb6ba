"""From one micro-batch per rank to all micro-batches of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import pipeline as cost
from planner.estimate.records import Role
from planner.estimate.stage_time import StageTime
from planner.quantities import Column, Seconds
from planner.spec.plan import Plan, Schedule


@dataclass(frozen=True)
class PipelineTime:
    """Seconds of shape (rows,) for all micro-batches; `role` is the slowest rank's."""

    role: Column
    bubble: Seconds
    sends: Seconds


def pipeline_time(plans: Plan, send: Seconds, time: StageTime) -> PipelineTime:
    """Filling, draining and waiting beyond the slowest rank's own work, and the sends on the critical path.

    `send` is the time of one tensor between two stages, `time` that of one micro-batch on each role; all middle ranks
    count as the heaviest of them.
    """
    m, v = plans.num_microbatches, plans.virtual_stages
    first, middle, last = time.total
    role = np.where(last > np.maximum(first, middle), Role.LAST, np.where(middle > first, Role.MIDDLE, Role.FIRST))
    slowest = time.total.max(axis=0)
    others = first + np.maximum(plans.pp - 2, 0) * middle + (plans.pp > 1) * last - slowest
    schedule = np.asarray(plans.schedule)
    by_schedule = {
        Schedule.GPIPE: cost.gpipe_time(m, slowest=slowest, others=others),
        Schedule.ONE_F_ONE_B: cost.one_f_one_b_time(m, slowest=slowest, others=others),
        Schedule.INTERLEAVED: cost.interleaved_time(m, slowest=slowest, others=others, virtual_stages=v),
        Schedule.ZB_H1: _zb_h1(plans, time),
    }
    busy = m * slowest
    makespan = np.select([schedule == kind for kind in by_schedule], list(by_schedule.values()), busy)
    return PipelineTime(role, makespan - busy, np.maximum(_sends(plans, send), _send_bound(plans, send, makespan)))


def _zb_h1(plans: Plan, time: StageTime) -> Seconds:
    """ZB-H1 with every part as slow as on the rank where it is slowest: an upper bound for unequal stages."""
    backward = time.total - time.forward - time.weight_gradient
    return cost.zb_h1_time(
        plans.num_microbatches,
        plans.pp,
        forward=time.forward.max(axis=0),
        backward_input=backward.max(axis=0),
        backward_weight=time.weight_gradient.max(axis=0),
    )


def _send_bound(plans: Plan, send: Seconds, makespan: Seconds) -> Seconds:
    """What the links between stages cannot carry within the schedule; GPipe's two directions take turns."""
    turns = np.where(np.asarray(plans.schedule) == Schedule.GPIPE, 2, 1)
    count = turns * plans.num_microbatches * plans.virtual_stages * (plans.pp > 1)
    return cost.send_bound_exposed(count, send=send, makespan=makespan)


def _sends(plans: Plan, send: Seconds) -> Seconds:
    """What sending activations and their gradients between stages adds, by schedule."""
    schedule = np.asarray(plans.schedule)
    by_schedule = {
        Schedule.GPIPE: cost.gpipe_send_exposed(plans.pp, send=send),
        Schedule.ONE_F_ONE_B: cost.one_f_one_b_send_exposed(plans.num_microbatches, plans.pp, send=send),
        Schedule.INTERLEAVED: cost.interleaved_send_exposed(plans.pp, plans.virtual_stages, send=send),
        Schedule.ZB_H1: cost.zb_h1_send_exposed(plans.num_microbatches, plans.pp, send=send),
    }
    return np.select([schedule == kind for kind in by_schedule], list(by_schedule.values()), 0.0)
