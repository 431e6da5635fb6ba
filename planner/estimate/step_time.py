"""Step time of every plan: from layers over stages and the pipeline to the optimizer."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from planner.estimate.data_parallel_time import kept_weights_exposed, once_per_step_exposed, root_exposed
from planner.estimate.layer_communication import layer_communication
from planner.estimate.layer_time import layer_time
from planner.estimate.optimizer_time import offload_exposed, optimizer_time
from planner.estimate.parameters import LocalParameters, local_adapters, local_parameters
from planner.estimate.pipeline_time import pipeline_time
from planner.estimate.records import StepTime
from planner.estimate.setting import Setting
from planner.estimate.stage_time import MicroBatchTime, head_time, layer_micro_batch, stage_micro_batch
from planner.estimate.stages import Stages, stages
from planner.quantities import Column
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.topology.links import Links


def step_time(
    model: Model, plans: Plan, workload: Workload, cluster: Cluster, links: Links, *, profile: Profile, stack: Stack
) -> StepTime:
    """Time of one optimizer step by term; scalars for a scalar plan. `links` belong to the plans row for row.

    Raises SpecError where the accelerator lacks the precision.
    """
    setting = Setting.of(model, workload, cluster, profile, stack)
    if plans.is_scalar:
        return _step_time(setting, plans.columns(), links.columns())[0]
    return _step_time(setting, plans.columns(), links)


def _step_time(setting: Setting, plans: Plan, links: Links) -> StepTime:
    stage = stages(setting.model, plans)
    wire = layer_communication(setting, plans, links)
    layer = layer_micro_batch(setting, plans, layer_time(setting, plans), wire)
    by_role = stage_micro_batch(layer, stage, head_time(setting, plans, links))
    pipeline = pipeline_time(setting, plans, links, stage, micro_batch=by_role, layer=layer)
    role, row = pipeline.role, np.arange(len(plans))
    micro_batch = _of_role(by_role, role, row)
    dense, experts, root = _trainable(setting, plans, stage, role, row)
    once = once_per_step_exposed(setting, plans, links, (dense, experts), micro_batch)
    once = once + kept_weights_exposed(setting, plans, stage.layers[:, role, row], wire, micro_batch)
    m = plans.num_microbatches
    every = {name: m * getattr(micro_batch, name) for name in MicroBatchTime.TERMS}
    every["dp_exposed"] = every["dp_exposed"] + once + root_exposed(setting, plans, links, root)
    return StepTime(
        **every,
        pp_exposed=pipeline.sends,
        bubble=pipeline.bubble,
        optimizer=optimizer_time(setting, plans, dense, experts),
        offload=offload_exposed(setting, plans, dense, experts, micro_batch),
        fixed=np.full(len(plans), setting.profile.fixed_time),
    )


def _of_role(by_role: MicroBatchTime, role: Column, row: Column) -> MicroBatchTime:
    """The chosen rank's times, shape (rows,)."""
    return replace(by_role, **{field.name: getattr(by_role, field.name)[role, row] for field in fields(by_role)})


def _trainable(
    setting: Setting, plans: Plan, stage: Stages, role: Column, row: Column
) -> tuple[Column, Column, Column]:
    """Trained parameters outside experts and in experts, and those of embedding and head, on the chosen rank."""
    local: LocalParameters = local_parameters(setting.model, plans, stage)
    root = local.root[role, row]
    if setting.workload.method == "full":
        return local.outside_experts[role, row], local.experts[role, row], root
    adapters = local_adapters(setting.model, plans, stage, setting.workload.lora_rank)[role, row]
    return adapters, 0.0 * adapters, root
