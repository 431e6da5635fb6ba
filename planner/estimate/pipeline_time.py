"""From one micro-batch per rank to all micro-batches of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import pipeline as cost
from planner.estimate.stage_time import MicroBatchTime
from planner.estimate.stages import Stages
from planner.quantities import Column, Seconds
from planner.spec.plan import Plan, Schedule


@dataclass(frozen=True)
class PipelineTime:
    """Seconds of shape (rows,) for all micro-batches; `role` is the slowest rank's."""

    role: Column
    bubble: Seconds
    sends: Seconds


def pipeline_time(plans: Plan, stage: Stages, send: Seconds, micro_batch: MicroBatchTime) -> PipelineTime:
    """Filling, draining and waiting beyond the slowest rank's own work, and the sends on the critical path.

    `send` is the time of one tensor between two stages, `micro_batch` that of one micro-batch on each role; all
    middle ranks count as the heaviest of them.
    """
    m, v, total = plans.num_microbatches, plans.virtual_stages, micro_batch.total
    role, slowest = total.argmax(axis=0), total.max(axis=0)
    others = (total * ranks_of_role(plans)).sum(axis=0) - slowest
    schedule = np.asarray(plans.schedule)
    by_schedule = {
        Schedule.GPIPE: cost.gpipe_time(m, slowest=slowest, others=others),
        Schedule.ONE_F_ONE_B: cost.one_f_one_b_time(m, slowest=slowest, others=others),
        Schedule.INTERLEAVED: cost.interleaved_time(m, slowest=slowest, others=others, virtual_stages=v),
        Schedule.ZB_H1: _zb_h1(plans, micro_batch),
    }
    busy = m * slowest
    makespan = np.select([schedule == kind for kind in by_schedule], list(by_schedule.values()), busy)
    return PipelineTime(role, makespan - busy, _sends(plans, send))


def ranks_of_role(plans: Plan) -> Column:
    """How many pipeline ranks each role stands for, shape (roles, rows): one first, one last, the others middle."""
    pp = np.asarray(plans.pp)
    return np.stack([np.ones_like(pp), np.maximum(pp - 2, 0), np.where(pp > 1, 1, 0)])


def _zb_h1(plans: Plan, micro_batch: MicroBatchTime) -> Seconds:
    """ZB-H1 with every part as slow as on the rank where it is slowest: an upper bound for unequal stages."""
    forward, weight = micro_batch.forward.max(axis=0), micro_batch.weight_gradient.max(axis=0)
    backward = (micro_batch.total - micro_batch.forward - micro_batch.weight_gradient).max(axis=0)
    return cost.zb_h1_time(
        plans.num_microbatches, plans.pp, forward=forward, backward_input=backward, backward_weight=weight
    )


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
