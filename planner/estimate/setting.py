"""What all plans of one question share: model, workload, stack, kernels and network."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate.communication import Network
from planner.estimate.kernels import Kernels
from planner.spec.cluster import Cluster
from planner.spec.model import Model
from planner.spec.profile import Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload


@dataclass(frozen=True)
class Job:
    """What is trained and by which conventions, on whatever machine."""

    model: Model
    workload: Workload
    stack: Stack


@dataclass(frozen=True)
class Setting(Job):
    """The inputs of a step time that do not vary from plan to plan."""

    cluster: Cluster
    profile: Profile
    kernels: Kernels
    network: Network

    @classmethod
    def of(cls, model: Model, workload: Workload, cluster: Cluster, profile: Profile, stack: Stack) -> Setting:
        """Kernels and network follow from the cluster and its profile."""
        kernels = Kernels(cluster.accelerator, profile, workload.precision, workload.attention)
        return cls(model, workload, stack, cluster, profile, kernels, Network.of(cluster, profile))
