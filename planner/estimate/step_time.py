"""Step time of every plan: from layers over stages and the pipeline to the optimizer."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from planner.estimate.data_parallel_time import (
    data_parallel_wire,
    kept_weights_exposed,
    once_per_step_exposed,
    root_exposed,
)
from planner.estimate.layer_communication import layer_communication
from planner.estimate.layer_time import layer_time
from planner.estimate.optimizer_time import offload_exposed, optimizer_time
from planner.estimate.parameters import rank_parameters
from planner.estimate.pipeline_time import pipeline_time
from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.stage_time import MicroBatchTime, layer_micro_batch, stage_micro_batch
from planner.estimate.stages import stages
from planner.quantities import Column
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.links import Links, PlacedLinks


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
    wire = layer_communication(setting, plans, links)
    compute = layer_time(setting, plans)
    layer = layer_micro_batch(setting, plans, compute, wire)
    by_role = stage_micro_batch(layer, stage, compute.head + wire.head)
    pipeline = pipeline_time(plans, stage, wire.send, micro_batch=by_role, layer=layer)
    role, row = pipeline.role, np.arange(len(plans))
    micro_batch = _of_role(by_role, role, row)
    rank = rank_parameters(setting.model, plans, setting.workload, stage, role)
    wire_dp = data_parallel_wire(setting, plans, links, rank, role)
    terms = {name: plans.num_microbatches * getattr(micro_batch, name) for name in MicroBatchTime.TERMS}
    terms["dp_exposed"] = (
        terms["dp_exposed"]
        + once_per_step_exposed(setting, wire_dp, micro_batch)
        + kept_weights_exposed(setting, plans, stage.layers[:, role, row], wire, micro_batch)
        + root_exposed(plans, wire_dp)
    )
    return StepTime(
        **terms,
        pp_exposed=pipeline.sends,
        bubble=pipeline.bubble,
        optimizer=optimizer_time(setting, plans, rank.dense, rank.experts),
        offload=offload_exposed(setting, plans, rank.dense, rank.experts, micro_batch),
        fixed=np.full(len(plans), setting.profile.fixed_time),
    )


def _of_role(by_role: MicroBatchTime, role: Column, row: Column) -> MicroBatchTime:
    """The chosen rank's times, shape (rows,)."""
    return replace(by_role, **{field.name: getattr(by_role, field.name)[role, row] for field in fields(by_role)})
