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


def pipeline_time(
    plans: Plan, stage: Stages, send: Seconds, *, micro_batch: MicroBatchTime, layer: MicroBatchTime
) -> PipelineTime:
    """Filling, draining and waiting beyond the slowest rank's own work, and the sends on the critical path."""
    m, v = plans.num_microbatches, plans.virtual_stages
    total = micro_batch.total
    role = total.argmax(axis=0)
    slowest = total.max(axis=0)
    head = (micro_batch.head * stage.has_head).max(axis=0)
    others = np.einsum("k,kn->n", stage.total, layer.total) + head - slowest
    schedule = np.asarray(plans.schedule)
    by_schedule = {
        Schedule.GPIPE: cost.gpipe_time(m, slowest=slowest, others=others),
        Schedule.ONE_F_ONE_B: cost.one_f_one_b_time(m, slowest=slowest, others=others),
        Schedule.INTERLEAVED: cost.interleaved_time(m, slowest=slowest, others=others, virtual_stages=v),
        Schedule.ZB_H1: _zb_h1(plans, micro_batch, role),
    }
    busy = m * slowest
    makespan = np.select([schedule == kind for kind in by_schedule], list(by_schedule.values()), busy)
    return PipelineTime(role, makespan - busy, _sends(plans, send))


def _zb_h1(plans: Plan, micro_batch: MicroBatchTime, role: Column) -> Seconds:
    """ZB-H1 with every stage as slow as the slowest: an upper bound for unequal stages."""
    row = np.arange(len(plans))
    total, forward, weight = (
        part[role, row] for part in (micro_batch.total, micro_batch.forward, micro_batch.weight_gradient)
    )
    return cost.zb_h1_time(
        plans.num_microbatches,
        plans.pp,
        forward=forward,
        backward_input=total - forward - weight,
        backward_weight=weight,
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
