"""A machine with round figures, so that times can be checked by hand."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from planner.estimate.step_time import step_time
from planner.spec.accelerator import Accelerator
from planner.spec.cluster import Cluster, Fabric, Node, Pool, Wiring
from planner.spec.model import Attention, Layer, Mlp, Model
from planner.spec.plan import Plan
from planner.spec.profile import CollectiveFit, Profile
from planner.spec.stack import Stack
from planner.spec.workload import Workload
from planner.tables import Table
from planner.topology.group_links import group_links

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


def constant(value: float, dimensions: int) -> Table:
    return Table.of([[1.0, 1e9]] * dimensions, [value] * 2**dimensions)


def cluster_of(nodes: int = 1, *, link: float = 400e9, nic: float = 50e9) -> Cluster:
    accelerator = Accelerator(
        name="round", vendor="x", architecture="x", memory=80e9, usable_memory=80e9, memory_bandwidth=2e12,
        peak={"bf16": 1e15, "fp8": 2e15}, multiprocessors=100, pcie_bandwidth=50e9,
    )  # fmt: skip
    fabric = Fabric("round-net", "infiniband", 8, nic, 5e-6)
    node = Node(
        "round-node", accelerator, 8, Wiring.SWITCH, "nvlink4", link, 1e-6, fabric,
        host_memory=1e12, host_memory_bandwidth=200e9,
    )  # fmt: skip
    return Cluster(f"{nodes}xround-node", (Pool(node, nodes),))


def profile_of(efficiency: float = 0.5, latency: float = 0.0, penalty: float = 0.0) -> Profile:
    fit = CollectiveFit(efficiency=1.0, start=latency, step_latency=latency)
    return Profile(
        "round", "round", "datasheet",
        gemm={"bf16": constant(efficiency, 3), "fp8": constant(efficiency, 3)},
        attention={"flash": constant(efficiency, 2)},
        collectives={(kind, name): fit for kind in ("nvlink4", "infiniband") for name in COLLECTIVES},
        overlap_penalty=penalty, launch_time=0.0, kernel_overhead=0.0, attention_overhead=0.0, fixed_time=0.0,
        memory_efficiency=1.0, compute_scale=1.0, attention_backward_efficiency=1.0,
    )  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """One model on one machine; `time(plan)` is its step time."""

    model: Model
    cluster: Cluster
    workload: Workload
    profile: Profile
    stack: Stack = field(default_factory=lambda: Stack("round"))

    def time(self, plan: Plan):
        return step_time(
            self.model, plan, self.workload, self.cluster, group_links(plan, self.cluster),
            profile=self.profile, stack=self.stack,
        )  # fmt: skip


@pytest.fixture
def dense_model() -> Model:
    layer = Layer(Attention(32, 8, 128), Mlp(14336), other_parameters=8192)
    return Model(name="dense", hidden_size=4096, vocab_size=128000, layers=(layer,) * 32)


@pytest.fixture
def bench(dense_model) -> Bench:
    return Bench(dense_model, cluster_of(1), Workload(64, 4096), profile_of())


@pytest.fixture
def slow_links() -> Cluster:
    return cluster_of(1, link=50e9)


@pytest.fixture
def slow_network() -> Cluster:
    return cluster_of(2, nic=1.25e6)


@pytest.fixture
def columns() -> Plan:
    pp = np.array([1, 2, 4, 1])
    return Plan(
        tp=np.array([1, 2, 2, 8]), pp=pp, dp_shard=np.array([8, 2, 1, 1]), num_microbatches=np.array([8, 32, 64, 64]),
        schedule=np.where(pp > 1, 2, 0), sharding=np.array([3, 1, 0, 0]), recompute=np.array([0, 1, 2, 0]),
        sequence_parallel=np.array([0, 1, 1, 1]),
    ).columns()  # fmt: skip
