"""What each axis of one plan puts on every link in a step: the bytes of the estimate on the routes of the topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from planner.estimate.messages import stage_message, tied_message
from planner.estimate.records import Role
from planner.estimate.setting import Job
from planner.estimate.volume import Volume, communication_volume
from planner.quantities import Bytes, Column
from planner.spec.cluster import Cluster
from planner.spec.plan import Plan
from planner.topology.contention import AxisLoads
from planner.topology.group_links import load_of_axis, load_of_stages, share_of
from planner.topology.placement import AXES, groups, layouts
from planner.topology.traffic import Parts


class AxisBytes(NamedTuple):
    """Of one axis: ranks of a group, bytes per step on every link, and what the rank that sends most sends.

    `one_way` is the same of a rank's messages in one direction (a pipeline has two), `each` what such a rank sends in
    it; `parts` say how much of this stays in its link domain, and how much leaves.
    """

    ranks: int
    loads: AxisLoads
    sent: Bytes
    one_way: AxisLoads
    each: Bytes
    parts: Parts


def axis_bytes(job: Job, plan: Plan, cluster: Cluster) -> dict[str, AxisBytes]:
    """The traffic of every axis that sends anything. Raises SpecError as `group_links` does."""
    volumes = {role: communication_volume(job.model, plan, job.workload, job.stack, role=role) for role in Role}
    role, found = roles_of_ranks(plan), {}
    for axis in AXES:
        sent = _of_rank(axis, role, volumes)
        if sent.any():
            ranks, _, share = share_of(plan, cluster, axis)
            most = float(sent.max())
            if axis == "pp":
                both, one_way = _stage_loads(job, plan, cluster), load_of_axis(plan, cluster, axis)
                found[axis] = AxisBytes(ranks, both, most, one_way, 1.0, share.parts)
            else:
                loads = load_of_axis(plan, cluster, axis, sent)
                found[axis] = AxisBytes(ranks, loads, most, loads, most, share.parts)
    return found


def roles_of_ranks(plan: Plan) -> Column:
    """The pipeline role (a Role) of every rank of a plan."""
    stages, role = groups(layouts(plan)["pp"]), np.full(int(plan.world_size), int(Role.MIDDLE))
    role[stages[:, -1]] = Role.LAST
    role[stages[:, 0]] = Role.FIRST
    return role


def _of_rank(axis: str, role: Column, volumes: Mapping[Role, Volume]) -> Column:
    """What every rank sends in its group of an axis."""
    by_role: list[Bytes] = [float(getattr(volumes[each], axis).total) for each in Role]
    return np.array(by_role)[role]


def _stage_loads(job: Job, plan: Plan, cluster: Cluster) -> AxisLoads:
    """Activations and gradients of every micro-batch and chunk between neighbouring stages.

    From the last stage to the first go what passes from one chunk to the next and the gradient of a tied embedding.
    """
    tensor, tied = float(stage_message(job, plan).size), float(tied_message(job, plan).size)
    micro_batches, chunks = plan.num_microbatches, plan.virtual_stages
    each, ends = micro_batches * chunks * tensor, micro_batches * (chunks - 1) * tensor + tied
    return load_of_stages(plan, cluster, each=each, ends=ends)
