"""Step time of every plan: from layers over stages and the pipeline to the optimizer."""

from __future__ import annotations

import numpy as np

from planner.cost.overlap import exposed_time
from planner.estimate.layer_communication import layer_communication
from planner.estimate.layer_time import layer_time
from planner.estimate.once_per_step import OncePerStep, once_per_step
from planner.estimate.pipeline_time import pipeline_time
from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.stage_time import StageTime, layer_micro_batch
from planner.estimate.stages import stages
from planner.quantities import Scalar, Seconds
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.links import Links, PlacedLinks

BACKWARD_SHARE: Scalar = 2 / 3
"""Backward's part of a micro-batch: two of three passes over every matrix product."""


def step_time(
    model: Model,
    plans: Plan,
    workload: Workload,
    cluster: Cluster,
    links: Links | PlacedLinks,
    *,
    profile: Profile,
    stack: Stack,
) -> StepTime:
    """Time of one optimizer step by term; scalars for a scalar plan. `links` belong to the plans row for row.

    Raises SpecError where the accelerator lacks the precision.
    """
    setting = Setting.of(model, workload, cluster, profile, stack)
    if plans.is_scalar and isinstance(links, Links):
        return _step_time(setting, plans.columns(), links.columns())[0]
    return _step_time(setting, plans.columns(), links)


def _step_time(setting: Setting, plans: Plan, links: Links | PlacedLinks) -> StepTime:
    stage = stages(setting.model, plans)
    compute, wire = layer_time(setting, plans), layer_communication(setting, plans, links)
    once = once_per_step(setting, plans, links)
    layer = layer_micro_batch(setting, plans, compute, wire)
    time = StageTime.of(stage, layer, head=compute.head + wire.head, root=once.root)
    pipeline = pipeline_time(plans, wire.send, time)
    m, slowest, penalty = plans.num_microbatches, time.total.max(axis=0), setting.profile.overlap_penalty
    terms = {name: m * term for name, term in time.terms(pipeline.role).items()}
    terms["dp_exposed"] = terms["dp_exposed"] + data_parallel_exposed(setting, once, slowest)
    return StepTime(
        **terms,
        pp_exposed=pipeline.sends,
        bubble=pipeline.bubble,
        optimizer=once.optimizer,
        offload=once.offload + m * exposed_time(slowest, once.streamed, penalty=penalty),
        fixed=np.full(len(plans), setting.profile.fixed_time),
    )


def data_parallel_exposed(setting: Setting, once: OncePerStep, micro_batch: Seconds) -> Seconds:
    """What the last backward does not hide of the reduction, nor the next forward of the gather of new weights.

    Gradients of earlier micro-batches are summed locally. Nothing is hidden where the stack does not overlap them, nor
    of what is late.
    """
    penalty, late = setting.profile.overlap_penalty, once.late_reduce + once.late_gather
    reduce = exposed_time(BACKWARD_SHARE * micro_batch, once.reduce - once.late_reduce, penalty=penalty)
    gather = exposed_time((1 - BACKWARD_SHARE) * micro_batch, once.gather - once.late_gather, penalty=penalty)
    return late + np.where(setting.stack.overlap_gradients > 0, reduce + gather, once.reduce + once.gather - late)
